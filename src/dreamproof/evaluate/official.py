"""Evaluation on the official Safety-Gymnasium, and its difference from our own implementation."""

import dataclasses

import numpy as np
from scipy import stats

from dreamproof.base.commit import code_name
from dreamproof.envs.registry import make as make_env
from dreamproof.envs.shift import find_condition
from dreamproof.evaluate.episodes import Progress, evaluated, run_episodes
from dreamproof.evaluate.loading import Loaded
from dreamproof.runs.records import EvaluationRecord
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.strict import validate
from dreamproof.version import __version__

COMPARED = ("return", "cost", "goals")


def evaluate_officially(loaded: Loaded, episodes: int, progress: Progress) -> EvaluationRecord:
    """Complete episodes of one agent on the official task without shifts."""
    cell = validate(CELL_SETTINGS[loaded.run.trainer], loaded.run.settings, "settings of the run")
    task = f"Official{loaded.run.task}"
    there = dataclasses.replace(loaded, task_env=make_env(task, cell.env))
    (found,) = run_episodes([there], find_condition(there.env, "id"), "test", episodes, progress)
    return EvaluationRecord(
        condition="id",
        kind="in_distribution",
        task=task,
        has_cost=there.env.spec.has_cost,
        checkpoints={"final": evaluated(there, found, {})},
        code_version=__version__,
        code_commit=code_name(),
    )


def differences(official: EvaluationRecord, ours: EvaluationRecord) -> dict[str, tuple[float, float, float]]:
    """Mean, low and high of official minus ours (95 % Welch interval). Layouts differ, so episodes are not paired."""
    found = {}
    for name in COMPARED:
        there, here = (np.asarray(each.checkpoints["final"].episodes[name]) for each in (official, ours))
        gap = float(there.mean() - here.mean())
        if there.std() + here.std() == 0:
            found[name] = (gap, gap, gap)
            continue
        interval = stats.ttest_ind(there, here, equal_var=False).confidence_interval(0.95)
        found[name] = (gap, float(interval.low), float(interval.high))
    return found
