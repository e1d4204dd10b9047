"""What is recorded about attempts without progress: their stacks, their kill, and whether it was a false alarm."""

from collections.abc import Iterable
from pathlib import Path

from dreamproof.base.text import quoted
from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.study.attempts.progress import CellProgress
from dreamproof.study.backends.api import Sighting
from dreamproof.study.diagnosis.liveness import Judgement, State
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.events import FalseAlarm, LivenessChanged, Remedy
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process.stacks import dump_stacks


def unseen(opened: OpenStudy, attempt: AttemptState, reason: str) -> list[LivenessChanged]:
    """Says once that an attempt runs where it cannot be seen; its lock keeps everybody else off its cells."""
    text = f"{reason}; if it is gone: dreamproof run {quoted(opened.named)} --from-lost-host"
    if attempt.liveness_reason == text:
        return []
    return [LivenessChanged(attempt.name, State.RUNNING.value, text)]


def changed(opened: OpenStudy, attempt: AttemptState, sighting: Sighting, judgement: Judgement) -> LivenessChanged:
    """The new state of an attempt; for a stalled one, with the stacks of its process."""
    stacks = None
    if judgement.state is State.STALLED and sighting.process_id is not None:
        folder = opened.folder.attempt(attempt.name)
        dump_stacks(sighting.process_id, folder.stacks, _answering_output(opened, attempt, folder))
        stacks = opened.folder.relative(folder.stacks)
    return LivenessChanged(attempt.name, judgement.state.value, judgement.reason, stacks)


def _answering_output(opened: OpenStudy, attempt: AttemptState, folder: AttemptFolder) -> Path | None:
    """Where a trainer that honours the native contract prints its stacks when it is asked."""
    dumps = opened.adapter(Cell.parse(attempt.cells[0])).dumps_stacks
    return folder.output if dumps else None


def kill(attempt: AttemptState, judgement: Judgement) -> Remedy:
    """The kill of an attempt that will not recover, with its evidence."""
    assert judgement.kill is not None
    reason = f"stalled: {judgement.reason}"
    return Remedy(attempt.cells, "stop_stalled", reason, attempt.name, evidence=judgement.kill.value)


def false_alarms_in_training(
    state: StudyState, attempt: AttemptState, cells: dict[Cell, CellProgress]
) -> list[FalseAlarm]:
    """Kills for silence that were wrong: this attempt got beyond the place at which the one before was killed."""
    if attempt.work != "train":
        return []
    reached = {str(cell): progress.reading.agent_steps for cell, progress in cells.items()}
    beyond = [
        text
        for text, steps in reached.items()
        if (killed := state.killed_before(attempt, text)) is not None
        and steps > killed.reached_agent_steps.get(text, 0)
    ]
    return false_alarms(state, attempt, beyond)


def false_alarms(state: StudyState, attempt: AttemptState, cells: Iterable[str]) -> list[FalseAlarm]:
    """A false alarm for every attempt that was killed for silence and whose cells progressed in this one."""
    killed = {one.name: one for text in cells if (one := state.killed_before(attempt, text)) is not None}
    return [
        FalseAlarm(
            name,
            attempt.name,
            f"{attempt.name} progressed past the point where {name} was killed for silence; "
            "all kill limits of this study are longer from now on",
        )
        for name in killed
    ]
