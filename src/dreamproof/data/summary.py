"""What files of episodes hold: tasks, episodes, returns, sizes and faults, read part by part."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dreamproof.base.errors import BadInput
from dreamproof.base.files import real_path
from dreamproof.data.members import wrong_checksums
from dreamproof.data.recordings import EpisodeFile, Recording, TaskInfo, conflicts, open_episodes, read_part

PART_BYTES = 128 << 20
BINS = 20


@dataclass
class TaskSummary:
    """Episodes of one task over all files."""

    number: int
    name: str | None
    observation_size: int | None
    action_size: int | None
    returns: list[np.ndarray] = field(default_factory=list)
    transitions: int = 0

    def add(self, other: "TaskSummary") -> None:
        """Takes in the episodes of another file."""
        self.returns += other.returns
        self.transitions += other.transitions

    def facts(self, edges: np.ndarray) -> dict[str, Any]:
        """Counts, returns and their histogram."""
        returns = np.concatenate(self.returns)
        shown = returns[np.isfinite(returns)]
        return {
            "number": self.number,
            "name": self.name,
            "observation_size": self.observation_size,
            "action_size": self.action_size,
            "episodes": len(returns),
            "transitions": self.transitions,
            "finite_returns": len(shown),
            "return": {
                "mean": float(shown.mean()),
                "min": float(shown.min()),
                "median": float(np.median(shown)),
                "max": float(shown.max()),
            }
            if len(shown)
            else None,
            "histogram": np.histogram(shown, edges)[0].tolist(),
        }


Tasks = dict[tuple[str | None, int], TaskSummary]


def summarise(paths: Sequence[Path]) -> dict[str, Any]:
    """The facts of all files: each file, each task, the edges of the histograms; `problems` are of whole files.

    A file among others that cannot be read is such a problem; if none can be read, the first is refused.
    """
    tasks: Tasks = {}
    opened, files, refused = [], [], []
    for path in paths:
        try:
            file = open_episodes(path)
            facts, own = _summarise_file(file)
        except BadInput as error:
            refused.append(error)
            continue
        opened.append(file)
        files.append(facts)
        for key, found in own.items():
            tasks.setdefault(key, replace(found, returns=[], transitions=0)).add(found)
    if refused and not opened:
        raise refused[0]
    different = {real_path(file.path): file.path for file in opened}.values()
    changed = [fault for path in different for fault in wrong_checksums(path)]
    every = np.concatenate([part for task in tasks.values() for part in task.returns])
    every = every[np.isfinite(every)]
    low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 0.0)
    edges = np.linspace(min(0.0, low), max(high, low + 1e-6, 1e-6), BINS + 1)
    return {
        "files": files,
        "problems": [*(error.seen for error in refused), *conflicts(opened), *changed],
        "tasks": [tasks[key].facts(edges) for key in sorted(tasks, key=lambda key: (key[1], key[0] or ""))],
        "histogram_edges": edges.tolist(),
    }


def _summarise_file(file: EpisodeFile) -> tuple[dict[str, Any], Tasks]:
    """The facts of a file, and its episodes by their task."""
    tasks: Tasks = {}
    faults: Counter[str] = Counter()
    for part in file.parts(PART_BYTES):
        episodes, found = read_part(file, part)
        faults += found
        _count(episodes, tasks)
    count, length = file.reward.shape
    facts = {
        "path": str(file.path),
        "bytes": file.path.stat().st_size,
        "episodes": count,
        "rows": length,
        "observation_size": file.observation.shape[2],
        "action_size": file.action.shape[2],
        "named": file.task_info is not None,
        "faults": {fault: number for fault, number in faults.items() if number},
    }
    return facts, tasks


def _count(episodes: Recording, tasks: Tasks) -> None:
    with np.errstate(invalid="ignore"):
        returns = episodes.reward.astype(np.float64).sum(1)
    for number in np.unique(episodes.task):
        own = episodes.task == number
        name, observed, taken = _described(episodes.task_info, int(number))
        found = tasks.setdefault((name, int(number)), TaskSummary(int(number), name, observed, taken))
        found.returns.append(returns[own])
        found.transitions += int((episodes.rows[own] - 1).sum())


def _described(info: TaskInfo | None, number: int) -> tuple[str | None, int | None, int | None]:
    if info is None or not 0 <= number < len(info.names):
        return None, None, None
    return info.names[number], info.observation_sizes[number], info.action_sizes[number]
