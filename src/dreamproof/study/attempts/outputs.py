"""What the training attempts of a cell printed: the only record of steps where a trainer writes no log of its own."""

from pathlib import Path

from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.runs.reader import TrainProof, read_exit
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


def prove_by_earlier_lines(opened: OpenStudy, cell: Cell) -> TrainProof | str | None:
    """The proof of a cell whose last attempt exited with 0 and printed no step; None if no earlier one printed any.

    Their lines count for the checkpoint that the same attempt wrote; any other must show its own step.
    """
    adapter, run, outputs = opened.adapter(cell), opened.run(cell), training_outputs(opened, cell)
    showing = outputs_with_lines(opened, cell)
    if not showing or adapter.matches(run) or outputs[-1] in showing or not _exited_well(outputs[-1]):
        return None
    found = _prove_by_saving_attempt(opened, cell)
    if isinstance(found, TrainProof):
        return found
    return adapter.prove_resumed(run, opened.study.needed_agent_steps, showing[-1]) or found


def _prove_by_saving_attempt(opened: OpenStudy, cell: Cell) -> TrainProof | str | None:
    adapter, run, needed = opened.adapter(cell), opened.run(cell), opened.study.needed_agent_steps
    saved_by = _begun_before_last_save(opened, cell, training_outputs(opened, cell))
    if not saved_by or not adapter.matches(run, saved_by[-1]):
        return None
    return adapter.prove_training(run, needed, saved_by[-1], opened.study.task_of(cell.arm))


def _exited_well(output: Path) -> bool:
    ended = read_exit(AttemptFolder(output.parent).exit)
    return ended is not None and ended.exit_code == 0


def _begun_before_last_save(opened: OpenStudy, cell: Cell, outputs: list[Path]) -> list[Path]:
    saved = opened.adapter(cell).kept_unix_seconds(opened.run(cell))
    if saved is None:
        return []
    return [output for output in outputs if (began := attempt_began(output)) is not None and began <= saved]
