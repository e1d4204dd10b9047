"""Updates the numbers of a user's own Markdown: only bound numbers change, every other byte stays.

A number is bound by an invisible anchor before it, `<!--dp:main.baseline.id.mean-->1.684`, or by a mapping file:
    - {row: v2_baseline, column: ID score, keys: [main.v2_baseline.id.mean, main.v2_baseline.id.sd]}
    - {after: "baseline scores ", keys: [main.v2_baseline.id.mean]}
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import yaml
from pydantic import Field

from dreamproof.base.errors import BadInput
from dreamproof.base.files import Unreadable, read_file, write_bytes
from dreamproof.base.text import nearest_word, quoted
from dreamproof.report.numbers import Number, Numbers
from dreamproof.settings.strict import YAML_BYTES, Settings, validate
from dreamproof.settings.yaml_guard import check_yaml

NUMBER = r"[-+−]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
ANCHOR = re.compile(rf"<!--\s*dp:(?P<key>[^\s<>`]+?)\s*-->(?P<gap>[ \t]*[*_`]*)(?P<number>{NUMBER})?")


UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "万": 1e4, "萬": 1e4, "亿": 1e8, "億": 1e8}
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺−", "0123456789-+-")
UNIT = re.compile(
    r"[*_`]{0,3} ?(?P<percent>[%％])|(?P<letter>[kKMG万萬亿億])(?![A-Za-z])"
    r"|\s*(?:×|[xX*·]|\\times|\\cdot)\s*10(?:\^\{?(?P<power>[-+−]?[0-9]{1,3})\}?|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,3}))"
)
UNIT_LENGTH = 24
PART_OF_MORE = re.compile(r"[.,/:-][0-9]")  # 1.234,5 or 1.2.3 or 1/2 or 2024-01-02: no number that could be replaced


class Binding(Settings):
    """Numbers named by their place: a table's row and column, or the text just before them."""

    keys: list[str] = Field(min_length=1)
    row: str | None = None
    column: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Change:
    """One bound number: its position, its old and its new text."""

    line: int
    key: str
    old: str
    new: str


@dataclass
class Rebound:
    """A document before and after; nothing is on disk until `write`."""

    path: Path
    before: str
    after: str
    changes: list[Change] = field(default_factory=list)
    bound: int = 0
    unknown_values: list[str] = field(default_factory=list)
    unclear_units: list[str] = field(default_factory=list)

    @property
    def diff(self) -> str:
        """The changed lines as a unified diff without context, empty if nothing changes."""
        old, new = (text.split("\n") for text in (self.before, self.after))
        changed = [number for number, (left, right) in enumerate(zip(old, new, strict=True)) if left != right]
        parts = [f"--- {self.path}\n+++ {self.path}\n"] if changed else []
        parts += [f"@@ -{number + 1} +{number + 1} @@\n-{old[number]}\n+{new[number]}\n" for number in changed]
        return "".join(parts)

    def write(self) -> None:
        """Replaces the document atomically."""
        write_bytes(self.path, self.after.encode("utf-8", "surrogateescape"))


def rebind(path: Path, numbers: Numbers, mapping: Path | None = None, proposed: Sequence[Binding] = ()) -> Rebound:
    """The document with its bound numbers replaced; raises BadInput for a binding that names nothing."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file", f"ls {quoted(path.parent)}") from None
    if b"\0" in content:
        raise BadInput(
            f"{path}: is UTF-16 or no text; numbers are only bound in UTF-8", f"iconv -f UTF-16 -t UTF-8 {path}"
        )
    before = content.decode("utf-8", "surrogateescape")
    result = Rebound(path, before, before)
    places: list[tuple[int, int, str]] = _anchored(before, path)
    if mapping is not None:
        places += _mapped(before, _read_mapping(mapping), mapping)
    places += _mapped(before, proposed, path)
    places.sort()
    for (_, end, first), (start, _, second) in pairwise(places):
        if start < end:
            raise BadInput(f"{path}: '{first}' and '{second}' are bound to the same number", f"grep -n 'dp:' {path}")
    result.bound = len(places)
    pieces, last, line = [], 0, 1
    for start, end, key in places:
        old = before[start:end]
        new = _new_text(old, before[end : end + UNIT_LENGTH], _known(key, numbers, path), result)
        pieces += [before[last:start], new]
        line += before.count("\n", last, start)
        last = end
        if new != old:
            result.changes.append(Change(line, key, old, new))
    result.after = "".join([*pieces, before[last:]])
    return result


def _anchored(text: str, path: Path) -> list[tuple[int, int, str]]:
    found = []
    for anchor in ANCHOR.finditer(text):
        if anchor["number"] is None:
            line = text.count("\n", 0, anchor.start()) + 1
            raise BadInput(
                f"{path}:{line}: no number follows the anchor '{anchor['key']}'", f"sed -n {line}p {quoted(path)}"
            )
        found.append((anchor.start("number"), anchor.end("number"), anchor["key"]))
    return found


def _known(key: str, numbers: Numbers, path: Path) -> Number:
    number = numbers.by_key.get(key)
    if number is None:
        near = nearest_word(key, numbers.by_key)
        hint = f"; did you mean '{near}'?" if near else ""
        raise BadInput(f"{path}: no number is called '{key}'{hint}", "cut -d, -f1 tables/numbers.csv")
    return number


def _new_text(old: str, behind: str, number: Number, result: Rebound) -> str:
    """The value in the author's format: unit, decimals, powers of ten, thousands commas and signs as before."""
    if number.value is None or not math.isfinite(number.value):
        result.unknown_values.append(number.key)
        return old
    scale = _unit(old, behind, number.value)
    if scale is None:
        result.unclear_units.append(number.key)
        return old
    return _formatted(number.value / scale, old)


def _formatted(value: float, old: str) -> str:
    """A value with the decimals, powers of ten, commas and signs of the old text; one digit more if it would be 0."""
    mantissa, power, exponent = re.split(r"([eE])", old) if "e" in old.lower() else (old, "", "")
    decimals = len(mantissa.partition(".")[2])
    signs = ("+" if old.startswith("+") else "") + ("," if "," in old else "")
    if not power and 0 < abs(value) < 0.5 * 10.0**-decimals:
        decimals = -math.floor(math.log10(abs(value)))
    text = format(value, f"{signs}.{decimals}{'e' if power else 'f'}")
    if power:
        digits, _, size = text.partition("e")
        plus = "+" if exponent.startswith("+") else ""
        text = (
            f"{digits}{power}{'-' if size[0] == '-' else plus}{size[1:].lstrip('0').zfill(len(exponent.strip('+-')))}"
        )
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", "−") if "−" in old else text


def _unit(old: str, behind: str, value: float) -> float | None:
    """What one unit of the author's number is worth; None if what stands behind it could mean two things."""
    if PART_OF_MORE.match(behind):
        return None
    found = UNIT.match(behind)
    if found is None:
        return 1.0
    raised = found["power"] or found["raised"]
    if raised is not None:
        size = 10.0 ** int(raised.translate(SUPERSCRIPTS))
        return size if value == 0 or size / 10 <= abs(value) < size * 1000 else None
    if found["percent"] is None:
        size = UNITS[found["letter"].lower()]
        return size if value == 0 or abs(value) >= size / 10 else None
    if abs(value) > 1:
        return 1.0
    return 0.01 if abs(float(old.replace(",", "").replace("−", "-"))) > 1 else None


def _read_mapping(path: Path) -> list[Binding]:
    content = read_file(path, YAML_BYTES)
    if isinstance(content, Unreadable):
        raise BadInput(f"{path}: {content.reason}", f"ls -ld {quoted(path)}")
    try:
        text = content.decode("utf-8-sig")
        check_yaml(text, path)
        items = yaml.safe_load(text) or []
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is not a list of bindings: {error}", f"cat {quoted(path)}") from None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadInput(f"{path}: is not a list of bindings like {{after: TEXT, keys: [KEY]}}", f"cat {quoted(path)}")
    hint = f"the keys of a binding: {', '.join(Binding.model_fields)}"
    return [validate(Binding, item, f"{path}, binding {number}", hint=hint) for number, item in enumerate(items, 1)]


def _mapped(text: str, bindings: Sequence[Binding], source: Path) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for binding in bindings:
        start, end, where = _span(text, binding, source)
        spots = [(start + spot.start(), start + spot.end()) for spot in re.finditer(NUMBER, text[start:end])]
        exact = binding.after is None and len(spots) != len(binding.keys)
        if exact or len(spots) < len(binding.keys):
            raise BadInput(
                f"{source}: {where} has {len(spots)} numbers for {len(binding.keys)} keys; it is not guessed which",
                "bind it by the text before it (after: …), or put <!--dp:KEY--> before the number",
            )
        found += [(*spot, key) for spot, key in zip(spots, binding.keys, strict=False)]
    return found


def _span(text: str, binding: Binding, source: Path) -> tuple[int, int, str]:
    """(start, end, name) of the text whose numbers are bound."""
    if binding.after is not None:
        if text.count(binding.after) != 1:
            seen = text.count(binding.after)
            raise BadInput(f"{source}: '{binding.after}' stands {seen} times, not once", f"cat {source}")
        start = text.index(binding.after) + len(binding.after)
        end = text.find("\n", start)
        return start, len(text) if end < 0 else end, f"the text after '{binding.after}'"
    if binding.row is None or binding.column is None:
        raise BadInput(f"{source}: a binding needs row and column, or after", f"cat {source}")
    spans = [span for span in table_cells(text) if span[2] == binding.row and span[3].startswith(binding.column)]
    name = f"row '{binding.row}', column '{binding.column}'"
    if len(spans) != 1:
        raise BadInput(f"{source}: {name} stands {len(spans)} times, not once", f"cat {source}")
    return spans[0][0], spans[0][1], name


def table_cells(text: str) -> list[tuple[int, int, str, str]]:
    """(start, end, row name, column name) of every cell of every pipe table."""
    found = []
    header: list[str] = []
    position = 0
    previous: list[str] = []
    for line in text.splitlines(keepends=True):
        cells = _cells(line)
        names = [line[start:end].strip() for start, end in cells]
        if cells and all(re.fullmatch(r":?-+:?", name) for name in names):
            header = previous
        elif cells and header:
            for (start, end), column in zip(cells[1:], header[1:], strict=False):
                found.append((position + start, position + end, _bare(names[0]), _bare(column)))
        elif not cells:
            header = []
        previous = names
        position += len(line)
    return found


def _bare(name: str) -> str:
    return name.strip("*`_ ")


def _cells(line: str) -> list[tuple[int, int]]:
    """Spans between the pipes of a table line; none for any other line."""
    if not line.lstrip().startswith("|"):
        return []
    pipes = [spot.start() for spot in re.finditer(r"(?<!\\)\|", line)]
    return [(left + 1, right) for left, right in pairwise(pipes)]
