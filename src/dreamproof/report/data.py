"""The results of proven cells as plain data."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dreamproof.report.imported import BillLine
from dreamproof.runs.layout import Cell, RunFolder, StudyFolder
from dreamproof.runs.records import (
    RELATIVE_SCORE,
    SCORE,
    CollapseRecord,
    SummaryRecord,
)
from dreamproof.settings.study import Study
from dreamproof.stats.describe import interquartile_mean
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.state import StudyState

Floats = NDArray[np.float64]
FINAL = "final"
SELECTED = "selected"
TRAIN = "train"


@dataclass(frozen=True, order=True)
class Group:
    """Key of the values of one arm, condition, metric and checkpoint."""

    arm: str
    condition: str
    metric: str
    checkpoint: str = FINAL


@dataclass
class TrainFacts:
    """One train cell: whether it is proven, and its settings and code."""

    cell: Cell
    trained: bool
    state: str
    reason: str = ""
    agent_steps: int = 0
    of_agent_steps: int = 0
    gradient_steps: int | None = None
    parameter_hash: str = ""
    checkpoint: str = ""
    commit: str = ""
    settings_hash: str = ""
    resolved_hash: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    run_folder: str = ""
    lost: str = ""
    """The file of its proof that is gone, and why."""
    wall_seconds: float | None = None
    frozen: str | None = None
    cause: str | None = None
    evidence: list[str] = field(default_factory=list)
    attempts: int = 0
    imported: bool = False
    adapter: str = "native"
    output: str | None = None
    """Output of the newest attempt, relative to the study folder; some adapters read progress from it."""
    ledger_lines: list[int] = field(default_factory=list)
    selected_agent_steps: int | None = None
    summary: SummaryRecord | None = None
    collapses: list[CollapseRecord] = field(default_factory=list)

    @property
    def collapse_count(self) -> int:
        """Number of collapses of the validation return, from their records or the summary."""
        return max(len(self.collapses), self.summary.collapses if self.summary is not None else 0)

    @property
    def rollback_count(self) -> int:
        """Number of collapses that were rolled back."""
        recorded = sum(record.rolled_back_to is not None for record in self.collapses)
        return max(recorded, self.summary.rollbacks if self.summary is not None else 0)


@dataclass
class EvalFacts:
    """One eval cell: whether it is proven, and from which checkpoint."""

    cell: Cell
    condition: str
    evaluated: bool
    reason: str = ""
    episodes: int = 0
    parameter_hash: str = ""
    gradient_steps: int | None = None
    layouts: str = ""
    imported: bool = False
    ledger_lines: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class MeanOnly:
    """An imported mean without the values of its seeds, with their sd if it was given."""

    mean: float
    seeds: tuple[int, ...]
    sd: float | None = None


@dataclass(frozen=True)
class OtherScore:
    """A normalisation of returns that does not decide, and the tasks that it is taken over.

    `left_out` are the tasks of which some run lacks it, `arms_without` the evaluated arms that store none at all.
    """

    metric: str
    tasks: list[str]
    left_out: list[str]
    arms_without: list[str]

    @property
    def speaks_for_all(self) -> bool:
        """Whether at least half of the tasks are left."""
        return len(self.tasks) >= max(1, len(self.left_out))


@dataclass(frozen=True)
class AttemptFacts:
    """One attempt for timeline and money."""

    name: str
    work: str
    cells: tuple[str, ...]
    started: float
    ended: float | None
    wall_seconds: float | None
    cause: str | None
    evidence: tuple[str, ...]


@dataclass
class StudyEvidence:
    """All data of a report."""

    study: Study
    folder: StudyFolder
    cells: dict[Cell, TrainFacts] = field(default_factory=dict)
    evals: dict[tuple[Cell, str], EvalFacts] = field(default_factory=dict)
    values: dict[Group, dict[int, float]] = field(default_factory=dict)
    means: dict[Group, MeanOnly] = field(default_factory=dict)
    episodes: dict[Group, dict[int, Floats]] = field(default_factory=dict)
    floors: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    state: StudyState | None = None
    attempts: list[AttemptFacts] = field(default_factory=list)
    remedies: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    """Changes of the declaration since anything was trained."""
    accepted: list[Row] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    without_checkpoint: list[str] = field(default_factory=list)
    undeclared: dict[Cell, int] = field(default_factory=dict)
    """Cells of imported values whose seed the study does not declare, with the first line; they count nowhere."""
    sources: dict[tuple[Cell, str], list[int]] = field(default_factory=dict)
    bill: list[BillLine] = field(default_factory=list)
    first_declared: Study | None = None
    declared_before_results: Study | None = None
    """The newest declaration that is older than every evaluation."""
    analysis_changes: list[str] = field(default_factory=list)
    """What a verdict is taken from and was changed since."""
    last_event: float | None = None
    ledger_hash: str = ""

    @property
    def arms(self) -> list[str]:
        return list(self.study.arms)

    @property
    def declared_before_runs(self) -> bool:
        """Whether the ledger shows that the declaration is older than every run."""
        imported = any(facts.imported for facts in self.cells.values())
        return bool(self.rows) and not imported and not self.analysis_changes

    @property
    def conditions(self) -> list[str]:
        """Declared conditions; the training log if none is declared."""
        return [condition.name for condition in self.study.conditions] or [TRAIN]

    @cached_property
    def deciding_conditions(self) -> list[str]:
        """The distinct conditions whose mean decides; one of them unless the study declares more. All tasks count."""
        if self.study.decides is not None and self.study.tasks is not None:
            return self.study.decides.conditions
        if self.study.decides is not None:
            return self.distinct(self.study.decides.conditions)
        return [self.study.metric.condition if self.study.conditions else TRAIN]

    @property
    def primary_condition(self) -> str:
        """The condition that decides; several are joined into one, whose value of a seed is a mean over them.

        Tasks are joined under the name of their set.
        """
        return "+".join(self.deciding_conditions) if self.study.tasks is None else self.study.task

    def is_joined(self, group: Group) -> bool:
        """Whether these values are means, or IQMs, over several conditions."""
        return len(self.deciding_conditions) > 1 and group.condition == self.primary_condition

    def joined(self, values: list[float]) -> float:
        """One value of several conditions: their mean, or their IQM if that was declared."""
        decides = self.study.decides
        over_iqm = decides is not None and decides.over == "iqm"
        return interquartile_mean(np.array(values)) if over_iqm else float(np.mean(values))

    @property
    def other_score(self) -> OtherScore | None:
        """The normalisation of returns beside the deciding metric, in a study over many tasks that stores one.

        It is taken over the same tasks for all arms: those where every evaluation has a number. None where these are
        less than half of all tasks; then `hidden_score` has it.
        """
        found = self._stored_score
        return found if found is not None and found.speaks_for_all else None

    @property
    def hidden_score(self) -> OtherScore | None:
        """A normalisation of returns that is not shown, because too many tasks would be left out."""
        found = self._stored_score
        return found if found is not None and not found.speaks_for_all else None

    @cached_property
    def _stored_score(self) -> OtherScore | None:
        tasks, deciding = self.study.tasks or [], self.study.metric.name
        metric = SCORE if deciding == RELATIVE_SCORE else RELATIVE_SCORE
        holding = [arm for arm in self.arms if any(self.values.get(Group(arm, task, metric)) for task in tasks)]
        left_out = []
        for task in tasks:
            own = {arm: self.values.get(Group(arm, task, metric), {}) for arm in holding}
            evaluated = {arm: self.values.get(Group(arm, task, deciding), {}) for arm in holding}
            if not all(np.isfinite(own[arm].get(seed, np.nan)) for arm in holding for seed in evaluated[arm]):
                left_out.append(task)
        judged = [arm for arm in self.arms if any(self.values.get(Group(arm, task, deciding)) for task in tasks)]
        without = [arm for arm in judged if arm not in holding]
        counted = [task for task in tasks if task not in left_out]
        return OtherScore(metric, counted, left_out, without) if holding else None

    @property
    def needed_conditions(self) -> list[str]:
        """Conditions without which nothing can be decided."""
        return self.study.named_by_decides or self.deciding_conditions

    def distinct(self, conditions: list[str]) -> list[str]:
        """Conditions without those whose values of the deciding metric equal another's in every cell."""
        seen: dict[tuple[object, ...], str] = {}
        for name in conditions:
            tables = [self.values.get(Group(arm, name, self.study.metric.name), {}) for arm in self.arms]
            key = tuple((place, *pair) for place, table in enumerate(tables) for pair in sorted(table.items()))
            seen.setdefault(key or (name,), name)
        return list(seen.values())

    @property
    def metrics(self) -> list[str]:
        """Metrics that have a value somewhere: the primary one, the limited ones, others by name, signals last."""
        seen = {group.metric for group in [*self.values, *self.means]}
        first = [self.study.metric.name, *(limit.name for limit in self.study.limits)]
        # A name with a slash is a signal about episodes (coverage, detection), not something an agent is to reach.
        return [*dict.fromkeys(first), *sorted(seen - set(first), key=lambda name: ("/" in name, name))]

    @property
    def runs_absent(self) -> bool:
        """Whether the ledger proves cells whose run folders are not in the study folder."""
        proven = self.state is not None and any(cell.proof for cell in self.state.cells.values())
        return proven and not self.folder.runs.is_dir()

    def checkpoints(self, metric: str) -> list[str]:
        """Checkpoints for which a metric has values, the headline first."""
        seen = {group.checkpoint for group in [*self.values, *self.means] if group.metric == metric}
        return sorted(seen, key=lambda name: (name != FINAL, name))

    def kind(self, condition: str) -> str:
        """in_distribution, proxy, genuine or unknown."""
        for declared in self.study.conditions:
            if declared.name == condition and declared.kind is not None:
                return declared.kind
        return self.kinds.get(condition, "unknown")

    def kept_run(self, cell: Cell) -> RunFolder:
        """The run folder of a cell, also of an imported one."""
        return RunFolder(self.folder.root / self.cells[cell].run_folder)
