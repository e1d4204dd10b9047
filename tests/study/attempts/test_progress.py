"""Progress is read again only where something may have changed."""

from pathlib import Path

from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.writer import RunWriter
from dreamproof.study.adapters.api import Reading
from dreamproof.study.adapters.native import NativeAdapter
from dreamproof.study.attempts.progress import AttemptProgress, CellProgress


class CountingAdapter(NativeAdapter):
    """Counts how often it is read."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self, run: RunFolder, output: Path | None = None) -> Reading:
        self.asked += 1
        return super().read(run, output)


def cell_progress(folder: Path, adapter: NativeAdapter | None = None) -> CellProgress:
    return CellProgress(RunFolder(folder), adapter or NativeAdapter(), "train", folder / "out")


def test_a_heartbeat_that_was_not_replaced_is_not_read_again(tmp_path: Path) -> None:
    adapter = CountingAdapter()
    progress = cell_progress(tmp_path, adapter)
    writer = RunWriter(RunFolder(tmp_path))
    writer.beat(5, 2, "train")
    assert [progress.refresh().agent_steps for _ in range(3)] == [5, 5, 5]
    assert adapter.asked == 1
    writer.beat(6, 3, "train")
    assert progress.refresh().agent_steps == 6
    assert adapter.asked == 2


def test_a_pack_counts_every_cell_by_its_name_and_all_steps_together(tmp_path: Path) -> None:
    cells = {}
    for seed in (0, 1):
        RunWriter(RunFolder(tmp_path / str(seed))).beat(10 + seed, 4, "train")
        cells[Cell("low", seed)] = cell_progress(tmp_path / str(seed))
    counters, phase = AttemptProgress(cells).refresh()
    assert phase == "train"
    assert counters["agent_steps"] == 21
    assert counters["agent_steps of low/1"] == 11


def test_before_the_first_heartbeat_an_attempt_is_starting(tmp_path: Path) -> None:
    _, phase = AttemptProgress({Cell("low", 0): cell_progress(tmp_path)}).refresh()
    assert phase == "start"
