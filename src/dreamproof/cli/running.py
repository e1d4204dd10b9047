"""The table of running cells: as many columns as fit the terminal, and the same as lines of a log."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dreamproof.cli.printing import table

if TYPE_CHECKING:
    from dreamproof.study.views.overview import Overview
    from dreamproof.study.views.running import RunningCell

MAX_ROWS = 40
MIN_WIDTH = 40
Show = Callable[["RunningCell"], str]


def _steps(one: "RunningCell") -> str:
    return f"{one.agent_steps:,}/{one.declared_agent_steps:,}" if one.work == "train" else "–"


def _rate(one: "RunningCell") -> str:
    return f"{one.agent_steps_per_second:,.1f}/s" if one.agent_steps_per_second else "–"


def _left(one: "RunningCell") -> str:
    from dreamproof.base.text import duration_text

    return "–" if one.liveness == "stalled" else duration_text(one.seconds_left)


def _progress(one: "RunningCell") -> str:
    from dreamproof.base.text import duration_text

    return "–" if one.progress_age_seconds is None else f"{duration_text(one.progress_age_seconds)} ago"


def _memory(one: "RunningCell") -> str:
    from dreamproof.base.text import bytes_text

    return bytes_text(one.gpu_bytes)


COLUMNS: dict[str, Show] = {
    "cell": lambda one: one.cell,
    "attempt": lambda one: one.attempt,
    "pid": lambda one: str(one.process_id or "–"),
    "phase": lambda one: one.phase,
    "agent steps": _steps,
    "rate": _rate,
    "left": _left,
    "metric": lambda one: "–" if one.metric is None else f"{one.metric:,.4g}",
    "GPU": lambda one: "–" if one.gpu_percent is None else f"{one.gpu_percent:.0f}%",
    "GPU memory": _memory,
    "progress": _progress,
    "money": lambda one: f"{one.money:.2f}",
    "state": lambda one: one.liveness,
    "job": lambda one: one.place,
}
# What is left out first where the terminal is narrow; cell, agent steps and state always stay.
DROPPED_FIRST = ("job", "money", "attempt", "pid", "phase", "GPU memory", "rate", "GPU", "metric", "progress", "left")


def running_table(running: "list[RunningCell]", metric: str, width: int | None = None) -> str:
    """What runs, in columns that fit `width`; all columns if there is none."""
    shown = running[:MAX_ROWS]
    names = [name for name in COLUMNS if name != "job" or any(one.place for one in shown)]
    for dropped in ("", *DROPPED_FIRST):
        names = [name for name in names if name != dropped]
        text = _table(shown, names, metric)
        if width is None or max(map(len, text.splitlines())) <= width:
            return text
    return text


def _table(running: "list[RunningCell]", names: list[str], metric: str) -> str:
    heads = [metric if name == "metric" else name for name in names]
    return table(heads, [[COLUMNS[name](one) for name in names] for one in running])


def running_text(one: "RunningCell", metric: str) -> str:
    """Everything about one running cell in a line."""
    parts = [f"pid {one.process_id or '–'}", f"phase {one.phase}", f"{_steps(one)} agent steps", _rate(one)]
    parts += [f"left {_left(one)}", f"{metric} {COLUMNS['metric'](one)}", f"GPU {COLUMNS['GPU'](one)} {_memory(one)}"]
    parts += [f"last progress {_progress(one)}", one.liveness]
    return ", ".join(parts)


def log_lines(overview: "Overview", metric: str) -> list[str]:
    """The state of a study for a log: one line for the study and one per running cell, each with the time."""
    import time

    from dreamproof.base.text import duration_text

    now = time.strftime("%Y-%m-%d %H:%M:%S")
    counts = [
        f"{what} {one.get('proven', 0)}/{one['declared']}"
        for what, one in (("trained", overview.train), ("evaluated", overview.evaluate))
    ]
    least = " without evaluations" if overview.without_evaluations else ""
    head = f"{now} {overview.name}: {', '.join(counts)}, left {duration_text(overview.seconds_left)}{least}"
    return [head, *(f"{now} {one.cell} {one.attempt}: {running_text(one, metric)}" for one in overview.running)]


def fit(text: str, width: int | None) -> str:
    """A text whose lines are no longer than `width`."""
    if width is None:
        return text
    return "\n".join(line if len(line) <= width else f"{line[: width - 1]}…" for line in text.splitlines())


def terminal_width() -> int | None:
    """Columns of the terminal, at least 40; None if the output goes to a file or another program."""
    import shutil
    import sys

    if not sys.stdout.isatty():
        return None
    return max(MIN_WIDTH, shutil.get_terminal_size().columns)
