"""Which declared cell a name or a path names: an arm and a seed, never a date or a job."""

import re

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import Cell
from dreamproof.settings.study import Study

ARM_AND_SEED = "--pattern '*_{arm}_*_{seed}'"
# Dates, times of the day and Unix times, which are no seeds.
STAMP = re.compile(
    r"(?<![0-9])(?:[0-9]{8}[-_T]?[0-9]{6}|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[-_T/ ][0-9]{2}[-:_.][0-9]{2}[-:_.][0-9]{2})?"
    r"|[0-9]{9,18})(?![0-9])"
)
NAMED_SEED = re.compile(r"(?<![A-Za-z0-9])s(?:eed)?[-_= ]?(?P<seed>[0-9]{1,9})(?![A-Za-z0-9])", re.IGNORECASE)
LAST_NUMBER = re.compile(r"(?<![A-Za-z0-9])(?P<seed>[0-9]{1,9})[^A-Za-z0-9]*$")


def arm_expression(study: Study) -> str:
    """A group of a regular expression that finds a declared arm; longer names first."""
    return rf"(?P<arm>{'|'.join(re.escape(arm) for arm in sorted(study.arms, key=len, reverse=True))})"


def condition_expression(study: Study) -> str:
    """The same for a declared condition."""
    names = sorted((one.name for one in study.conditions), key=len, reverse=True)
    return rf"(?P<condition>{'|'.join(map(re.escape, names))})"


def make_pattern(study: Study, pattern: str) -> re.Pattern[str]:
    """A regular expression over names, or over paths if the pattern has a slash.

    `{arm}` is a declared arm, `{condition}` a declared condition, `{seed}` and `{job}` are numbers, `*` anything.
    """
    needed = ["{arm}"] if len(study.seeds) == 1 or "{job}" in pattern else ["{arm}", "{seed}"]
    missing = [name for name in needed if pattern.count(name) != 1]
    if missing:
        raise BadInput(f"--pattern '{pattern}': {missing[0]} must occur exactly once", ARM_AND_SEED)
    parts = re.split(r"(\{arm\}|\{seed\}|\{job\}|\{condition\}|\*)", pattern)
    groups = {name: f"(?P<{name[1:-1]}>[0-9]{{1,18}})" for name in ("{seed}", "{job}")}
    groups |= {"{arm}": arm_expression(study), "{condition}": condition_expression(study), "*": ".*"}
    return re.compile("^" + "".join(groups.get(part, re.escape(part)) for part in parts) + "$")


def find_cell(study: Study, name: str, pattern: re.Pattern[str] | None = None) -> Cell | None:
    """The declared cell that a name or path names: by a pattern, else an arm and a seed with its word or at the end."""
    if pattern is None:
        arm, rest = arm_in(study, STAMP.sub("", name))
        found = NAMED_SEED.search(rest) or LAST_NUMBER.search(rest)
        named: dict[str, str | None] = {"arm": arm, "seed": found["seed"]} if arm and found else {}
    else:
        match = pattern.match(name)
        named = match.groupdict() if match is not None else {}
    arm, seed = named.get("arm"), named.get("seed")
    if arm is None or (seed is None and len(study.seeds) > 1):
        return None
    cell = Cell(arm, int(seed) if seed is not None else study.seeds[0])
    return cell if cell.seed in study.seeds else None


def arm_in(study: Study, name: str) -> tuple[str | None, str]:
    """The declared arm that stands in a name as a word, the last of them, and the name without it."""
    found = list(re.finditer(rf"(?<![A-Za-z0-9]){arm_expression(study)}(?![A-Za-z0-9])", name))
    if not found:
        return None, name
    return found[-1]["arm"], f"{name[: found[-1].start()]}-{name[found[-1].end() :]}"
