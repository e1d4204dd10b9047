"""A study of five tasks from tables, for tests of what reports show of several tasks."""

import csv
from pathlib import Path

TASKS = ("reach", "swing", "balance", "spin", "walk")
GAINS = {"reach": 0.2, "swing": 0.2, "balance": 0.2, "spin": 0.2, "walk": -0.5}
STUDY = """
name: many
question: Is flow better than MLP on five tasks?
metric: {name: score, smallest_difference: 0.05}
tasks: [reach, swing, balance, spin, walk]
trainer: {command: [train], evaluate: [evaluate]}
arms: {mlp: {a: 1}, flow: {a: 2}}
seeds: 5
agent_steps: 100
folder: .
"""


def score(arm: str, seed: int, task: str) -> float:
    """0.5 for the MLP, the task's gain for flow, and a little for the seed."""
    return 0.5 + (GAINS[task] if arm == "flow" else 0.0) + 0.01 * seed * (1 + 0.1 * TASKS.index(task))


def make_task_study(folder: Path) -> Path:
    """Five seeds of two arms on five tasks, as tables."""
    (folder / "imported").mkdir(parents=True)
    (folder / "study.yaml").write_text(STUDY)
    with (folder / "imported" / "results.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arm", "seed", "condition", "checkpoint", "metric", "value"])
        for arm in ("mlp", "flow"):
            for seed in range(5):
                rows.writerows([arm, seed, task, "final", "score", score(arm, seed, task)] for task in TASKS)
    with (folder / "imported" / "cells.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["arm", "seed", "state", "agent_steps", "gradient_steps"])
        rows.writerows([arm, seed, "proven", 100, 100] for arm in ("mlp", "flow") for seed in range(5))
    return folder
