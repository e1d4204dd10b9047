"""The results of a study as pandas DataFrames, and its trained policies: `dreamproof.load("results/NAME")`."""

import importlib.util
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.text import quoted
from dreamproof.report.analysis import Analysis, analyse
from dreamproof.report.data import Group, StudyEvidence
from dreamproof.report.loading import load as load_evidence
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.study.adapters import find_adapter, study_format
from dreamproof.study.plan.open_study import open_study

if TYPE_CHECKING:
    import pandas as pd

    from dreamproof.evaluate.policy import Policy

CELL_COLUMNS = ["arm", "seed", "state", "agent_steps", "gradient_steps", "attempts", "wall_seconds", "run_folder"]
SCORE_COLUMNS = ["arm", "seed", "condition", "checkpoint"]
EPISODE_COLUMNS = [*SCORE_COLUMNS, "episode"]
CURVE_COLUMNS = ["arm", "seed", "agent_steps", "metric", "value"]
VERDICT_COLUMNS = [
    "arm",
    "reference",
    "metric",
    "condition",
    "verdict",
    "why",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "seeds",
    "limit",
]


def load(place: str | Path) -> "StudyResults":
    """The results of the study that a folder or a study file names."""
    return StudyResults(Path(place))


class StudyResults:
    """What is proven of one study at the moment it is loaded. Every table is a new pandas DataFrame."""

    def __init__(self, place: Path) -> None:
        opened = open_study(place)
        self.folder: Path = opened.folder.root
        self.name: str = opened.study.name
        self.question: str = opened.study.question
        self._declared = opened.study

    def __repr__(self) -> str:
        return f"StudyResults({self.name!r}, {self.folder})"

    @property
    def cells(self) -> "pd.DataFrame":
        """One row per (arm, seed): state, steps, attempts, wall seconds and the run folder."""
        rows = [
            (
                cell.arm,
                cell.seed,
                facts.state,
                facts.agent_steps,
                facts.gradient_steps,
                facts.attempts,
                facts.wall_seconds,
                str(self._evidence.kept_run(cell).root),
            )
            for cell, facts in self._evidence.cells.items()
        ]
        return _frame(rows, CELL_COLUMNS)

    @property
    def scores(self) -> "pd.DataFrame":
        """One row per (arm, seed, condition, checkpoint); one column per metric, the mean over episodes."""
        rows = [
            (group.arm, seed, group.condition, group.checkpoint, group.metric, value)
            for group, values in self._evidence.values.items()
            if not self._evidence.is_joined(group)
            for seed, value in values.items()
        ]
        return _wide(rows, SCORE_COLUMNS)

    @property
    def episodes(self) -> "pd.DataFrame":
        """One row per evaluation episode; one column per metric."""
        rows = [
            (group.arm, seed, group.condition, group.checkpoint, number, group.metric, float(value))
            for group, by_seed in self._evidence.episodes.items()
            for seed, values in by_seed.items()
            for number, value in enumerate(values)
        ]
        return _wide(rows, EPISODE_COLUMNS)

    @property
    def curves(self) -> "pd.DataFrame":
        """Everything the runs logged, in long form: one row per (arm, seed, agent_steps, metric)."""
        return _frame(list(self._logged()), CURVE_COLUMNS)

    @property
    def verdicts(self) -> "pd.DataFrame":
        """One row per arm that is compared with the reference: the verdict on the declared metric, and its evidence."""
        analysis = self._analysis
        return _frame([self._verdict(analysis, arm) for arm in analysis.verdicts], VERDICT_COLUMNS)

    def score_matrices(self, metric: str | None = None, checkpoint: str = "final") -> "dict[str, np.ndarray]":
        """By arm a (seeds, conditions) array, as rliable and similar libraries take it; NaN where nothing is proven."""
        evidence = self._evidence
        name = metric or evidence.study.metric.name
        tables = {
            arm: [evidence.values.get(Group(arm, where, name, checkpoint), {}) for where in evidence.conditions]
            for arm in evidence.arms
        }
        if not any(table for row in tables.values() for table in row):
            known = ", ".join(evidence.metrics)
            raise BadInput(f"{self.name} has no values of {name} ({checkpoint}); its metrics are {known}", "s.scores")
        seeds = evidence.study.seeds
        return {arm: np.array([[t.get(s, np.nan) for t in row] for s in seeds]) for arm, row in tables.items()}

    def write_parquet(self, folder: str | Path) -> list[Path]:
        """Writes cells, scores, episodes, curves and verdicts as Parquet files; needs the extra `parquet`."""
        if importlib.util.find_spec("pyarrow") is None:
            raise BadInput("Parquet files need pyarrow, which is not installed", "pip install 'dreamproof[parquet]'")
        place, written = Path(folder), []
        place.mkdir(parents=True, exist_ok=True)
        for name in ("cells", "scores", "episodes", "curves", "verdicts"):
            getattr(self, name).to_parquet(place / f"{name}.parquet", index=False)
            written.append(place / f"{name}.parquet")
        return written

    def policy(self, arm: str, seed: int, checkpoint: str = "final", task: str | None = None) -> "Policy":
        """The trained policy of one cell, `final` or `selected`; needs the extra `train`.

        task: which of them, in a study over several tasks.
        """
        from dreamproof.evaluate.policy import load_policy  # imports JAX, which the tables do not need

        return load_policy(self._kept_run(arm, seed), checkpoint, task)

    def write_policy(
        self, arm: str, seed: int, path: str | Path, checkpoint: str = "final", task: str | None = None
    ) -> int:
        """Writes that policy as one file, which `dreamproof.open_policy` reads; returns its size in bytes."""
        from dreamproof.evaluate.policy import load_agent
        from dreamproof.evaluate.policy_file import write_policy

        return write_policy(load_agent(self._kept_run(arm, seed), checkpoint, task), Path(path))

    def write_policies(self, folder: str | Path) -> list[Path]:
        """Writes the policy of every checkpoint that the cells kept, as ARM-seedN-stepK.npz; returns the files.

        Of an agent with policies of several tasks each is written, as ARM-TASK-seedN-stepK.npz. Arrays are rounded to
        float16: they are made to record data with.
        """
        from dreamproof.evaluate.calibration import as_evaluated
        from dreamproof.evaluate.loading import load_at
        from dreamproof.evaluate.policy_file import write_policy
        from dreamproof.jaxcore.checkpoints import AGENT_FILE

        place, written = Path(folder), []
        place.mkdir(parents=True, exist_ok=True)
        for cell, facts in self._evidence.cells.items():
            run = self._evidence.kept_run(cell)
            kept = run.checkpoint_folders() if facts.trained else []
            if self._evidence.folder.is_export:  # holds the weights of proven checkpoints at most
                kept = [each for each in kept if (each.root / AGENT_FILE).exists()]
            for checkpoint in kept:
                loaded, steps = as_evaluated(load_at(run, checkpoint.agent_steps), run), checkpoint.agent_steps
                policies = {f"-{task}": loaded.of_task(task) for task in loaded.tasks} or {"": loaded}
                for task, policy in policies.items():
                    written.append(place / f"{cell.arm}{task}-seed{cell.seed}-step{steps}.npz")
                    write_policy(policy, written[-1], half=True)
        return written

    def _kept_run(self, arm: str, seed: int) -> RunFolder:
        cell = Cell(arm, seed)
        if cell not in self._evidence.cells:
            known = ", ".join(map(str, self._evidence.cells))
            raise BadInput(
                f"{self.name} has no cell {cell}; it has {known}", f"dreamproof status {quoted(self.folder)}"
            )
        return self._evidence.kept_run(cell)

    @cached_property
    def _evidence(self) -> StudyEvidence:
        return load_evidence(self.folder, self._declared)

    @cached_property
    def _analysis(self) -> Analysis:
        return analyse(self._evidence)

    def _logged(self) -> Iterator[tuple[Any, ...]]:
        for cell, facts in self._evidence.cells.items():
            run = self._evidence.kept_run(cell)
            if not run.root.is_dir():
                continue
            output = self.folder / facts.output if facts.output is not None else None
            adapter = find_adapter(facts.adapter, study_format(self._evidence.study))
            for metric, points in adapter.results(run, output).items():
                last = {int(steps): float(value) for steps, value in points}  # a resumed run logs some steps again
                yield from ((cell.arm, cell.seed, steps, metric, last[steps]) for steps in sorted(last))

    def _verdict(self, analysis: Analysis, arm: str) -> tuple[Any, ...]:
        verdict = analysis.verdicts[arm]
        group: Group = analysis.primary(arm)
        shown = analysis.difference(arm)
        interval = shown.interval if shown is not None else None
        limit = analysis.constrained.get(arm)
        return (
            arm,
            analysis.evidence.study.reference,
            group.metric,
            group.condition,
            verdict.kind.value,
            verdict.why.value,
            shown.mean if shown is not None else None,
            interval.low if interval is not None else None,
            interval.high if interval is not None else None,
            shown.p if shown is not None else None,
            analysis.adjusted.get(group),
            verdict.seeds,
            limit.verdict.kind.value if limit is not None else None,
        )


def _frame(rows: list[tuple[Any, ...]], columns: list[str]) -> "pd.DataFrame":
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise BadInput("the tables need pandas, which is not installed", "pip install 'dreamproof[api]'") from None
    return pd.DataFrame(rows, columns=columns)


def _wide(rows: list[tuple[Any, ...]], index: list[str]) -> "pd.DataFrame":
    """From one row per value, `(*index, metric, value)`, to one row per index with a column per metric."""
    long = _frame(rows, [*index, "metric", "value"])
    if long.empty:
        return long[index]
    table = long.pivot_table(index=index, columns="metric", values="value", sort=False, dropna=False, observed=True)
    return table.dropna(how="all").reset_index().rename_axis(columns=None)
