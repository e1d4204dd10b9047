"""The gap (declared − proven) and the next work that fits into free slots. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dreamproof.base.errors import BadInput
from dreamproof.base.text import nearest_word
from dreamproof.runs.layout import Cell
from dreamproof.settings.checked import parse_seeds
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.study.ledger.cells import CellState, EvalState
from dreamproof.study.ledger.events import Work
from dreamproof.study.ledger.state import StudyState


@dataclass(frozen=True)
class Selection:
    """What one call works on; the study declares the same as ever. None means all."""

    arms: frozenset[str] | None = None
    seeds: frozenset[int] | None = None

    def holds(self, cell: Cell) -> bool:
        """Whether this call works on the cell."""
        return (self.arms is None or cell.arm in self.arms) and (self.seeds is None or cell.seed in self.seeds)

    @classmethod
    def parse(cls, study: Study, arms: str | None, seeds: str | None) -> "Selection":
        """The selection that `--arms a,b --seeds 0-2,4` asks for; names that are not declared are refused."""
        for flag, given, example in (("--arms", arms, ",".join(study.arms)), ("--seeds", seeds, "0-2,4")):
            if given is not None and not given.strip(" ,"):
                raise BadInput(f"{flag}: names none", f"write e.g. {flag} {example}, or leave it out for all")
        chosen_arms = frozenset(arm.strip() for arm in arms.split(",")) if arms else None
        for arm in sorted(chosen_arms or ()):
            if arm not in study.arms:
                hint = nearest_word(arm, study.arms)
                meant = f"; did you mean '{hint}'?" if hint else ""
                raise BadInput(
                    f"--arms {arms}: the study declares no arm '{arm}'{meant}",
                    f"choose from --arms {','.join(study.arms)}",
                )
        try:
            chosen_seeds = frozenset(parse_seeds(seeds)) if seeds else None
        except ValueError as error:
            raise BadInput(f"--seeds {seeds}: {error}", "write e.g. --seeds 0-2,4") from None
        undeclared = sorted((chosen_seeds or frozenset()) - set(study.seeds))
        if undeclared:
            raise BadInput(
                f"--seeds {seeds}: the study declares no seed {undeclared[0]}",
                "add it to 'seeds' in the study file, or leave it out of --seeds",
            )
        return cls(chosen_arms, chosen_seeds)


EVERYTHING = Selection()


@dataclass(frozen=True)
class Gap:
    """What is declared and not proven, in the order of the matrix."""

    train: list[CellState] = field(default_factory=list)
    evaluate: list[EvalState] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.train or self.evaluate)


def find_gap(state: StudyState, selection: Selection = EVERYTHING) -> Gap:
    """Declared minus proven, within the selection."""
    train = [known for cell, known in state.cells.items() if selection.holds(cell) and not state.trained(known)]
    evaluate = [
        known for (cell, _), known in state.eval_cells.items() if selection.holds(cell) and not state.evaluated(known)
    ]
    return Gap(train, evaluate)


@dataclass(frozen=True)
class PlannedAttempt:
    """What one attempt is to do."""

    work: Work
    cells: list[Cell]
    conditions: list[str]
    from_agent_steps: dict[str, int]
    micro_batches: int = 1


@dataclass(frozen=True)
class PlanQueries:
    """What planning must ask about a cell beyond the ledger."""

    is_ready: Callable[[Cell], bool]
    """Whether its waiting time is over."""
    kept_agent_steps: Callable[[CellState], int]
    """The step of its last good checkpoint."""
    groups: Mapping[str, str]
    """By arm: arms of one group may train in one pack."""


def jobs(state: StudyState, gap: Gap, queries: PlanQueries) -> Iterator[PlannedAttempt]:
    """Jobs that may start, best first: evaluations, then cells that have begun, then seed by seed over the arms."""
    assert state.study is not None
    yield from _evaluation_jobs(state, state.study, gap, queries)
    yield from _training_jobs(state.study, gap, queries)


def open_for_training(cell: CellState) -> bool:
    """Whether nothing works on the cell and nothing forbids it."""
    return cell.running is None and cell.stopped is None and cell.foreign is None


def open_for_evaluation(state: StudyState, cell: CellState) -> bool:
    """Whether the cell is trained, and nothing evaluates or forbids it."""
    return state.trained(cell) and cell.eval_running is None and cell.eval_stopped is None


def _pack_size(study: Study) -> int:
    return 1 if isinstance(study.trainer, CommandTrainer) else study.pack_cells


def _evaluation_jobs(state: StudyState, study: Study, gap: Gap, queries: PlanQueries) -> Iterator[PlannedAttempt]:
    missing: dict[Cell, list[str]] = {}
    for eval_cell in gap.evaluate:
        if open_for_evaluation(state, state.cells[eval_cell.cell]) and queries.is_ready(eval_cell.cell):
            missing.setdefault(eval_cell.cell, []).append(eval_cell.condition)
    groups: dict[tuple[str, tuple[str, ...]], list[Cell]] = {}
    for cell, conditions in missing.items():
        groups.setdefault((queries.groups[cell.arm], tuple(conditions)), []).append(cell)
    for (_, shared), cells in groups.items():
        for pack in _chunks(cells, _pack_size(study)):
            steps = {str(cell): known.proof.agent_steps for cell in pack if (known := state.cells[cell]).proof}
            yield PlannedAttempt("evaluate", pack, list(shared), steps)


def _training_jobs(study: Study, gap: Gap, queries: PlanQueries) -> Iterator[PlannedAttempt]:
    """Cells of one pack share group, step and micro-batches: a pack resumes from a step that all its cells have."""
    seed_order = {seed: place for place, seed in enumerate(study.seeds)}
    waiting = [cell for cell in gap.train if open_for_training(cell) and queries.is_ready(cell.cell)]
    waiting.sort(key=lambda cell: (cell.kept_agent_steps == 0, seed_order[cell.cell.seed]))
    taken: set[Cell] = set()
    for first in waiting:
        if first.cell in taken:
            continue
        size = min(_pack_size(study), first.pack_limit or study.pack_cells)
        step = queries.kept_agent_steps(first)
        pack = [first]
        for other in waiting if size > 1 else ():
            if len(pack) == size:
                break
            group = queries.groups[other.cell.arm] == queries.groups[first.cell.arm]
            alike = group and other.micro_batches == first.micro_batches and other.pack_limit == first.pack_limit
            if other is not first and other.cell not in taken and alike and queries.kept_agent_steps(other) == step:
                pack.append(other)
        taken |= {cell.cell for cell in pack}
        steps = {str(cell.cell): step for cell in pack}
        yield PlannedAttempt("train", [cell.cell for cell in pack], [], steps, first.micro_batches)


def _chunks(cells: list[Cell], size: int) -> Iterable[list[Cell]]:
    return (cells[start : start + size] for start in range(0, len(cells), size))


def declaration_changes(old: Study, new: Study) -> list[str]:
    """Every key that differs: `agent_steps: 1000 → 2000`."""
    changes: list[str] = []
    _differences(old.model_dump(mode="json"), new.model_dump(mode="json"), "", changes)
    return changes


def _differences(old: object, new: object, place: str, changes: list[str]) -> None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{place}.{key}" if place else str(key)
            if key not in old:
                changes.append(f"{inner}: added {_short(new[key])}")
            elif key not in new:
                changes.append(f"{inner}: removed (was {_short(old[key])})")
            else:
                _differences(old[key], new[key], inner, changes)
    elif old != new:
        changes.append(f"{place}: {_short(old)} → {_short(new)}")


def _short(value: object) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def changes_of_meaning(old: Study, new: Study) -> list[str]:
    """Changes that make old and new cells incomparable; additions to the matrix do not."""
    kept_arms = {name: settings for name, settings in new.arms.items() if name in old.arms}
    before = old.model_copy(update={"arms": {name: old.arms[name] for name in kept_arms}})
    after = new.model_copy(update={"arms": kept_arms})
    guarded = ("task", "trainer", "settings", "arms", "agent_steps", "evaluation_episodes", "metric", "constraint")
    changes = [change for change in declaration_changes(before, after) if change.startswith(guarded)]
    return [change for change in changes if not change.startswith("trainer.code:")]  # names files, changes none


def changes_of_analysis(declared: Study, since: list[list[int]], now: Study) -> list[str]:
    """How a study differs from what was declared before results were known, in what a verdict is taken from.

    `since` are the seeds of all later declarations. Added seeds are no such change, but their order is fixed then.
    """
    seeds = declared.seeds
    for later in since:
        seeds = later if later[: len(seeds)] == seeds else seeds
    guarded = ("metric", "constraint", "decides", "paired_seeds", "reference_arm")
    found = [change for change in declaration_changes(declared, now) if change.startswith(guarded)]
    if len(now.seeds) < len(declared.seeds) or now.seeds[: len(seeds)] != seeds[: len(now.seeds)]:
        found.append(f"seeds: {_short(seeds)} → {_short(now.seeds)}")
    if declared.reference != now.reference and declared.reference_arm == now.reference_arm:
        found.append(f"reference arm: {declared.reference} → {now.reference}")
    return [*found, *(f"arm {arm}: removed" for arm in declared.treatments if arm not in now.arms)]
