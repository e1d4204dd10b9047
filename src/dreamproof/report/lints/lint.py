"""What a lint is, and how it names cells and arms."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dreamproof.report.data import Group, StudyEvidence, TrainFacts
from dreamproof.runs.layout import Cell

BLOCK, WARN, NOTE = "block", "warn", "note"
LEVELS = (BLOCK, WARN, NOTE)
SHOWN_NAMES = 12


@dataclass(frozen=True)
class Lint:
    """One finding; `code` is its text key, `arms` are those without a verdict because of it (empty: all)."""

    code: str
    level: str
    facts: Mapping[str, object] = field(default_factory=dict)
    arms: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()


def names(items: Iterable[object]) -> str:
    """Items in one line; a long list is cut and ends with the number of the rest."""
    texts = [str(item) for item in items]
    more = len(texts) - SHOWN_NAMES
    return ", ".join(texts[:SHOWN_NAMES]) + (f" … (+{more})" if more > 0 else "")


def primary(evidence: StudyEvidence, arm: str) -> dict[int, float]:
    """Values of the deciding metric by seed."""
    return evidence.values.get(Group(arm, evidence.primary_condition, evidence.study.metric.name), {})


def compared(evidence: StudyEvidence) -> list[str]:
    """The reference and the arms that are compared with it, in declared order."""
    apart = evidence.study.arms_on_other_tasks
    return [arm for arm in evidence.arms if arm not in apart]


def judged(evidence: StudyEvidence, arms: tuple[str, ...]) -> tuple[str, ...]:
    """Arms whose verdict depends on these; all of them if the reference is among them."""
    return tuple(evidence.arms) if evidence.study.reference in arms else arms


def eval_names(keys: list[tuple[Cell, str]]) -> str:
    """arms/seeds × conditions, grouped so that a hundred cells stay one line."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for cell, condition in keys:
        seeds.setdefault((cell.arm, condition), []).append(cell.seed)
    conditions: dict[tuple[str, tuple[int, ...]], list[str]] = {}
    for (arm, condition), numbers in seeds.items():
        conditions.setdefault((arm, tuple(sorted(numbers))), []).append(condition)
    arms: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for (arm, own), where in conditions.items():
        arms.setdefault((own, tuple(where)), []).append(arm)
    return "; ".join(
        f"{','.join(who)}/{','.join(map(str, own))} × {','.join(where)}"
        for (own, where), who in list(arms.items())[:SHOWN_NAMES]
    ) + (" …" if len(arms) > SHOWN_NAMES else "")


def proven(evidence: StudyEvidence) -> list[TrainFacts]:
    """The cells that are trained."""
    return [facts for facts in evidence.cells.values() if facts.trained]


def by_arm(evidence: StudyEvidence, value: Callable[[TrainFacts], str]) -> dict[str, set[str]]:
    """The different values that the trained cells of each arm have."""
    found: dict[str, set[str]] = {}
    for facts in proven(evidence):
        if value(facts):
            found.setdefault(facts.cell.arm, set()).add(value(facts))
    return found
