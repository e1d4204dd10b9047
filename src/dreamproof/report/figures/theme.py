"""Style of every figure: colours, markers, hatches, fonts, and files whose bytes do not depend on the date."""

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import font_manager, rc_context
from matplotlib.figure import Figure

from dreamproof.base.files import write_bytes
from dreamproof.report.language import Texts, read_texts
from dreamproof.report.palette import COLOURS

# The bundled fonts have one weight; a warning about bold titles would not help the user.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

FONTS = Path(__file__).parent.parent / "fonts"
BUNDLED = {"zh-Hans": "DreamproofSansSC.otf", "zh-Hant": "DreamproofSansTC.otf"}
SYSTEM_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK TC",
    "Noto Sans CJK JP",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1)))
INK, SOFT, GRID = "#1c2430", "#5b6675", "#d8dde4"
LIMIT: dict[str, Any] = {"color": INK, "linewidth": 1.2, "linestyle": (0, (2, 2))}
DOTS_PER_INCH = 160
NOTE_LETTERS_PER_INCH = 15.0
LEGEND_HANDLE_INCHES, LETTER_INCHES = 0.66, 0.078


@dataclass(frozen=True)
class ArmStyle:
    """One arm's style in every figure."""

    colour: str
    marker: str
    line: Any


def arm_styles(arms: list[str]) -> dict[str, ArmStyle]:
    """A colour, a marker and a line style per arm, by its place in the declaration."""
    count = len(COLOURS)
    return {
        arm: ArmStyle(COLOURS[n % count], MARKERS[n % count], LINES[(n + n // count) % count])
        for n, arm in enumerate(arms)
    }


def chinese_font(texts: Texts) -> str | None:
    """The family of a font that has the language's characters: the bundled one, else an installed one, else None."""
    bundled = FONTS / BUNDLED.get(texts.language, "")
    if bundled.is_file():
        entry = font_manager.FontProperties(fname=str(bundled))
        known = {font.fname for font in font_manager.fontManager.ttflist}
        if str(bundled) not in known:
            font_manager.fontManager.addfont(str(bundled))
        return str(entry.get_name())
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return next((name for name in SYSTEM_FONTS if name in installed), None)


def label_texts(texts: Texts) -> Texts:
    """The texts of figure labels: English if no font has the characters."""
    return texts if not texts.chinese or chinese_font(texts) is not None else read_texts("en")


def beyond_bundled(names: str) -> bool:
    """Whether a study's names have characters that the bundled fonts may lack."""
    return any(ord(character) > 0x2E7F for character in names)


@contextmanager
def look(texts: Texts, names: str = "") -> Iterator[None]:
    """Sets fonts and lines for the figures drawn inside; `names` are texts of the study that labels will show."""
    families = ["DejaVu Sans"]
    found = chinese_font(texts) if texts.chinese else None
    if found is not None:
        families.append(found)
    if beyond_bundled(names):
        installed = {font.name for font in font_manager.fontManager.ttflist}
        families += [name for name in SYSTEM_FONTS if name in installed and name != found]
        ours = (chinese_font(read_texts(language)) for language in BUNDLED)
        families += [name for name in ours if name is not None and name not in families]
    settings = {
        "font.family": families,
        "font.size": 9,
        "axes.edgecolor": SOFT,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
        "text.color": INK,
        "legend.frameon": False,
        "hatch.linewidth": 0.7,
        "pdf.fonttype": 42 if len(families) == 1 else 3,
        "svg.hashsalt": "dreamproof",
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "figure.constrained_layout.use": True,
    }
    with rc_context(settings):  # type: ignore[arg-type]
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, without a window."""
    return Figure(figsize=(width, height), layout="constrained")


def add_note(figure: Figure, text: str) -> None:
    """A line above the axes: how many seeds, and what bars and bands mean."""
    room = NOTE_LETTERS_PER_INCH * figure.get_size_inches()[0]
    lines = [""]
    for word in re.split(r"(?<=[ 、，；：])", text):
        if _letters(lines[-1]) + _letters(word) > room:
            lines.append("")
        lines[-1] += word
    figure.suptitle("\n".join(line.rstrip() for line in lines), x=0.01, ha="left", fontsize=7.5, color=SOFT)


def legend_below(figure: Figure, axes: Any) -> None:
    """One legend under all axes, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        place_legend(figure, handles, labels)


def place_legend(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """Puts these entries under the axes, in as many columns as fit into the figure's width."""
    room = figure.get_size_inches()[0] - LEGEND_HANDLE_INCHES
    columns = len(labels)
    while columns > 1 and _legend_inches(labels, columns) > room:
        columns -= 1
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _legend_inches(labels: list[str], columns: int) -> float:
    """Approximate width of a legend; entries fill columns downwards, and the first columns take the remainder."""
    rows, longer = divmod(len(labels), columns)
    starts = [column * rows + min(column, longer) for column in range(columns + 1)]
    parts = [labels[start:end] for start, end in pairwise(starts)]
    return sum(LEGEND_HANDLE_INCHES + LETTER_INCHES * max(map(_letters, part)) for part in parts)


def _letters(text: str) -> float:
    return sum(1.8 if ord(character) > 0x2E7F else 1.0 for character in text)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes PNG and PDF without dates or program names, so that the same figure is the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    png, pdf = folder / f"{name}.png", folder / f"{name}.pdf"
    without_dates = {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None}
    formats: list[tuple[Path, dict[str, Any]]] = [
        (png, {"dpi": DOTS_PER_INCH, "metadata": {"Software": None}}),
        (pdf, {"metadata": without_dates}),
    ]
    for path, options in formats:
        content = io.BytesIO()  # written at once, so that a link that lies there is replaced, not followed
        figure.savefig(content, format=path.suffix[1:], **options)
        write_bytes(path, content.getvalue(), durable=False)
        figure.set_layout_engine("none")  # laid out once; both files have the same places
    return [png, pdf]
