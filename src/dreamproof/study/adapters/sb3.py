"""stable-baselines3: progress.csv or progress.json of its logger, monitor.csv of its environments, evaluations.npz."""

import functools
import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.files import Unreadable, read_file
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.study.adapters.api import FolderAdapter, Reading, Series, first_step, step_count
from dreamproof.study.adapters.checkpoints import RunSpan, Steps, find_checkpoints, kept_steps, newest_save
from dreamproof.study.adapters.folders import attempt_began, files_below, modified, newest, oldest_time, size_of
from dreamproof.study.adapters.rows import (
    TAIL_BYTES,
    WHOLE_BYTES,
    Row,
    latest_values,
    newest_step,
    prove_by_rows,
    recorded_seconds,
    series_of_rows,
    step_key,
    table_rows,
)

TOTAL = "time/total_timesteps"
ARRAY_BYTES = 256 << 20


@dataclass(frozen=True)
class Sb3Files:
    """What the loggers of one run wrote; None or empty for what is not there."""

    progress: Path | None
    monitors: list[Path]
    evaluations: Path | None

    @property
    def logs(self) -> list[Path]:
        """All of them."""
        return [path for path in (self.progress, *self.monitors, self.evaluations) if path is not None]


def find_files(root: Path) -> Sb3Files:
    """The newest progress file, the monitor files that lie next to each other, and the newest evaluations."""
    found = list(files_below(root))
    last = newest([path for path in found if path.name.endswith("monitor.csv")])
    return Sb3Files(
        newest([path for path in found if path.name in ("progress.csv", "progress.json")]),
        [path for path in found if path.name.endswith("monitor.csv") and last and path.parent == last.parent],
        newest([path for path in found if path.name == "evaluations.npz"]),
    )


def monitored_steps(path: Path) -> int:
    """Environment steps of the whole episodes in a monitor file."""
    return _count_steps(path, size_of(path), modified(path))


@functools.lru_cache(maxsize=1024)
def _count_steps(path: Path, size_bytes: int, written: float | None) -> int:
    """Reads a file once for each time it was written."""
    lengths = [row.get("l") for row in table_rows(path, WHOLE_BYTES)]
    return sum(int(length) for length in lengths if isinstance(length, int | float) and 0 <= length < math.inf)


def evaluation_series(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Mean return and episode length of every evaluation over its time step; no pickle in it is loaded."""
    import numpy as np

    content = read_file(path, ARRAY_BYTES)
    if isinstance(content, Unreadable):
        return {}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            steps = [int(step) for step in arrays["timesteps"].ravel()]
            named = {"eval/mean_reward": arrays["results"], "eval/mean_ep_length": arrays["ep_lengths"]}
            means = {name: np.asarray(values, float).reshape(len(steps), -1).mean(1) for name, values in named.items()}
    except (ValueError, LookupError, OSError, TypeError, OverflowError, EOFError, MemoryError, zipfile.BadZipFile):
        return {}
    return {name: list(zip(steps, map(float, values), strict=True)) for name, values in means.items()}


class Sb3Adapter(FolderAdapter):
    """Reads what stable-baselines3 writes by itself; steps and updates of a model come from the JSON in its archive."""

    name = "sb3"
    looks_for = "progress.csv, progress.json, *monitor.csv or evaluations.npz, and model archives (*.zip)"
    proves = (
        "steps by total_timesteps of the logger, else by the episodes of monitor.csv, and by num_timesteps in the "
        "model archive; updates by n_updates of either; finite losses where the logger wrote them"
    )

    def matches(self, run: RunFolder, output: Path | None = None) -> bool:
        """Whether one of its logs is there."""
        files = find_files(run.root)
        rows = table_rows(files.progress, TAIL_BYTES) if files.progress is not None else []
        named = not rows or self._key(rows) is not None
        return bool(files.monitors or files.evaluations or files.progress) and named

    def _key(self, rows: list[Row]) -> str | None:
        return step_key(rows, self.format.step_key or TOTAL)

    def _logged_steps(self, files: Sb3Files, limit_bytes: int) -> int:
        """By the first log there is: the logger's count, else whole episodes, else the last evaluation."""
        rows = table_rows(files.progress, limit_bytes) if files.progress is not None else []
        key = self._key(rows)
        if key is not None:
            return self.format.agent_steps(newest_step(rows, key))
        if files.monitors:
            return self.format.agent_steps(sum(map(monitored_steps, files.monitors)))
        evaluated = evaluation_series(files.evaluations).get("eval/mean_reward", []) if files.evaluations else []
        return self.format.agent_steps(evaluated[-1][0]) if evaluated else 0

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        """The newest count of any log, and the time of the newest model."""
        files, saved = find_files(run.root), newest_save(run.root)
        counters: dict[str, float] = {"checkpoint_time": saved} if saved is not None else {}
        steps = self._logged_steps(files, TAIL_BYTES)
        if not steps:
            return Reading(counters=counters)
        counters |= {"agent_steps": steps, "log_bytes": sum(map(size_of, files.logs))}
        return Reading(steps, None, "train", counters)

    def kept_agent_steps(self, run: RunFolder, output: Path | None = None) -> int:
        """Steps in the newest model."""
        files = find_files(run.root)
        return kept_steps(run.root, self._logged_steps(files, TAIL_BYTES), _span(run, files, [], output))

    def prove_training(
        self, run: RunFolder, agent_steps: int, output: Path | None = None, task: str | None = None
    ) -> TrainProof | str:
        """A model of the last step; logs may end earlier, as the last rollout is trained on and not logged again."""
        files = find_files(run.root)
        if not files.logs:
            return f"none of {self.looks_for}"
        rows = table_rows(files.progress, WHOLE_BYTES) if files.progress is not None else []
        logged = self._logged_steps(files, WHOLE_BYTES)
        saved = max((one.agent_steps or 0 for one in find_checkpoints(run.root)), default=0)
        reached = max(logged, saved)
        if reached < agent_steps:
            return f"its logs end at {logged:,} of {agent_steps:,} agent steps"
        return prove_by_rows(run, run.root, rows, Steps(agent_steps, reached), _span(run, files, rows, output))

    def began_agent_steps(self, run: RunFolder, output: Path) -> int | None:
        """By the logger, which writes its file anew at every start."""
        progress = find_files(run.root).progress
        rows = table_rows(progress, WHOLE_BYTES) if progress is not None else []
        key = self._key(rows)
        if progress is None or key is None:
            return None
        counts = (step_count(row.get(key)) for row in rows)
        return first_step(progress, [self.format.agent_steps(one) for one in counts if one is not None], output)

    def latest(self, run: RunFolder, output: Path | None = None) -> dict[str, float]:
        """From the last rows of the logger."""
        progress = find_files(run.root).progress
        return latest_values(table_rows(progress, TAIL_BYTES)) if progress is not None else {}

    def results(self, run: RunFolder, output: Path | None = None) -> Series:
        """Every number of the logger, the returns of whole episodes, and the evaluations."""
        files = find_files(run.root)
        rows = table_rows(files.progress, WHOLE_BYTES) if files.progress is not None else []
        key = self._key(rows)
        series: Series = series_of_rows(rows, key, self.format) if key is not None else {}
        if files.evaluations is not None:
            series |= evaluation_series(files.evaluations)
        return series | _episode_series(files.monitors)


def _episode_series(monitors: list[Path]) -> Series:
    """Return and length of every whole episode over the steps before its end, in the order of their ends."""
    rows = [row for path in monitors for row in table_rows(path, WHOLE_BYTES)]
    done: list[tuple[float, float, float]] = []
    for row in rows:
        values = [row.get(name) for name in ("t", "r", "l")]
        numbers = [float(value) for value in values if isinstance(value, int | float)]
        if len(numbers) == 3 and all(map(math.isfinite, numbers)):
            done.append((numbers[0], numbers[1], numbers[2]))
    series: Series = {}
    steps = 0
    for _, reward, length in sorted(done):
        steps += int(length)
        series.setdefault("episode/return", []).append((steps, reward))
        series.setdefault("episode/length", []).append((steps, length))
    return series


def _span(run: RunFolder, files: Sb3Files, rows: list[Row], output: Path | None) -> RunSpan:
    """When the run began and last wrote a log; its length by the logger or the monitors."""
    times = [time for path in files.logs if (time := modified(path)) is not None]
    started = [time for folder in {run.root, *(path.parent for path in files.logs)} if (time := oldest_time(folder))]
    last = [row.get("t") for path in files.monitors for row in table_rows(path, TAIL_BYTES)]
    seconds = [float(value) for value in last if isinstance(value, int | float) and 0 <= value < math.inf]
    recorded = recorded_seconds(rows) or max(seconds, default=None)
    return RunSpan(min(started, default=0.0), max(times, default=0.0), recorded, attempt_began(output))
