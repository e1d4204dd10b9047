"""What the training attempts of a cell printed: the only record of steps where a trainer writes no log of its own."""

from pathlib import Path

from dreamproof.runs.layout import Cell
from dreamproof.study.adapters.folders import attempt_began
from dreamproof.study.plan.open_study import OpenStudy


def kept_agent_steps(opened: OpenStudy, cell: Cell) -> int:
    """Steps of a cell's newest checkpoint, by the output of the attempt that wrote it where only lines show steps."""
    adapter, run, outputs = opened.adapter(cell), opened.run(cell), training_outputs(opened, cell)
    last = outputs[-1] if outputs else None
    if adapter.matches(run):
        return adapter.kept_agent_steps(run, last)
    showing = outputs_with_lines(opened, cell)
    saved_by = _begun_before_last_save(opened, cell, showing)
    return adapter.kept_agent_steps(run, next(reversed(saved_by or showing), last))


def training_outputs(opened: OpenStudy, cell: Cell) -> list[Path]:
    """Of the attempts that trained a cell in its own run folder, oldest first."""
    if opened.run(cell) != opened.folder.run(cell):
        return []
    return [opened.folder.attempt(name).output for name in opened.state.known_cell(str(cell)).attempts]


def outputs_with_lines(opened: OpenStudy, cell: Cell) -> list[Path]:
    """Those in which the adapter finds progress, oldest first."""
    adapter, run = opened.adapter(cell), opened.run(cell)
    return [output for output in training_outputs(opened, cell) if adapter.matches(run, output)]


def _begun_before_last_save(opened: OpenStudy, cell: Cell, outputs: list[Path]) -> list[Path]:
    saved = opened.adapter(cell).kept_unix_seconds(opened.run(cell))
    if saved is None:
        return []
    return [output for output in outputs if (began := attempt_began(output)) is not None and began <= saved]
