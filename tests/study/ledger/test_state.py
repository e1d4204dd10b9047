"""The state is a replay of the ledger, and nothing else."""

from pathlib import Path

from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.settings.study import Study
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.events import (
    AttemptEnded,
    AttemptStarted,
    CellReopened,
    CellStopped,
    DeclarationChanged,
    EvalProven,
    Event,
    ProofLost,
    StudyDeclared,
    SupervisorStarted,
    TrainProven,
)
from dreamproof.study.ledger.index import read_index, write_index
from dreamproof.study.ledger.outside_events import Imported, Unproven
from dreamproof.study.ledger.state import StudyState
from dreamproof.testing.small_study import small_study

HASH = "a" * 64


def declared(**changes: object) -> StudyDeclared:
    study = Study.model_validate(small_study(**changes))
    return StudyDeclared(study.hash(), study.model_dump(mode="json"), "../small.yaml")


def replay(*events: Event) -> StudyState:
    return StudyState.replay({"n": n, "t": float(n), **event.row()} for n, event in enumerate(events, start=1))


def started(name: str, cell: str = "low/0", first: int = 0) -> AttemptStarted:
    return AttemptStarted(name, "train", [cell], [], ["train"], {cell: first})


def ended(name: str, cause: str, kept: int = 0, transient: bool = True, cell: str = "low/0") -> AttemptEnded:
    return AttemptEnded(name, cause, ["said"], 3.0, {cell: kept + 2}, {cell: kept}, transient)


def proven(cell: str = "low/0", steps: int = 20, digest: str = HASH) -> TrainProven:
    return TrainProven(cell, steps, 10, digest, "step-000000000020")


def test_the_declared_matrix_is_there_before_anything_runs() -> None:
    state = replay(declared())
    assert [str(cell) for cell in state.cells] == ["low/0", "low/1", "high/0", "high/1"]
    assert len(state.eval_cells) == 4


def test_a_proof_makes_a_cell_trained_and_an_attempt_open_until_it_ends() -> None:
    state = replay(declared(), started("a000001"))
    assert list(state.open_attempts) == ["a000001"]
    assert state.cells[Cell("low", 0)].running == "a000001"
    state = replay(declared(), started("a000001"), ended("a000001", "completed", 20), proven())
    assert not state.open_attempts
    assert state.trained(state.cells[Cell("low", 0)])
    assert not state.trained(state.cells[Cell("low", 1)])


def test_deaths_without_a_newer_checkpoint_are_counted_and_progress_forgives_them() -> None:
    events: list[Event] = [declared()]
    for number in (1, 2):
        events += [started(f"a{number}"), ended(f"a{number}", "killed")]
    assert replay(*events).cells[Cell("low", 0)].fruitless == 2
    events += [started("a3"), ended("a3", "killed", kept=5)]
    assert replay(*events).cells[Cell("low", 0)].fruitless == 1


def test_stopping_and_reopening_a_cell() -> None:
    stopped = CellStopped("low/0", "failed 2 times with the same cause: bug", "bug")
    state = replay(declared(), started("a1"), ended("a1", "bug", transient=False), stopped)
    assert state.cells[Cell("low", 0)].stopped
    assert state.cells[Cell("low", 0)].deaths == {"bug": 1}
    state.apply({"n": 9, "t": 9.0, **CellReopened("low/0", "a person").row()})
    assert state.cells[Cell("low", 0)].stopped is None
    assert state.cells[Cell("low", 0)].deaths == {}


def test_an_evaluation_counts_only_for_the_checkpoint_that_is_proven() -> None:
    evaluated = EvalProven("low/0", "id", 3, HASH)
    state = replay(declared(), proven(), evaluated)
    assert state.evaluated(state.eval_cells[Cell("low", 0), "id"])
    state = replay(declared(), proven(), evaluated, ProofLost("low/0", "gone"), proven(digest="b" * 64))
    assert not state.evaluated(state.eval_cells[Cell("low", 0), "id"])


def test_more_steps_or_episodes_in_a_new_declaration_reopen_the_gap() -> None:
    longer = Study.model_validate(small_study(agent_steps=40))
    change = DeclarationChanged("x", longer.hash(), ["agent_steps: 20 → 40"], longer.model_dump(mode="json"))
    state = replay(declared(), proven(), change)
    assert not state.trained(state.cells[Cell("low", 0)])


def test_cells_that_leave_the_declaration_are_remembered() -> None:
    state = replay(declared(), proven("high/1"))
    state.redeclare(Study.model_validate(small_study(arms={"low": {"level": 1}})))
    assert [text for text, one in state.known_cells().items() if one.cell not in state.cells] == ["high/0", "high/1"]
    state.redeclare(Study.model_validate(small_study()))
    assert state.trained(state.cells[Cell("high", 1)])


def test_a_cell_that_is_trained_here_leaves_its_unproven_run_outside_behind() -> None:
    events = [Imported("low/0", "../old", "jsonl"), Unproven("low/0", "../old", "no checkpoint file")]
    state = replay(declared(), *events)
    assert state.cells[Cell("low", 0)].unproven == "no checkpoint file"
    state = replay(declared(), *events, started("a1"), ended("a1", "completed", 20), proven())
    assert state.cells[Cell("low", 0)].source is None
    assert state.cells[Cell("low", 0)].unproven is None


def test_a_supervisor_without_an_end_is_closed_by_the_next_one() -> None:
    first = SupervisorStarted("boot", 7, 70, "here", "0.1")
    state = replay(declared(), first, started("a1"), SupervisorStarted("boot", 8, 80, "here", "0.1"))
    assert [span.ended for span in state.supervisors] == [3.0, None]


def test_events_of_a_newer_version_change_nothing() -> None:
    state = replay(declared())
    state.apply({"n": 2, "t": 2.0, "event": "something_new", "cell": "low/0"})
    assert state.event_count == 2


def test_the_index_gives_the_same_state_as_a_replay(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    ledger = Ledger(folder.ledger, clock=lambda: Moment(5.0))
    events = [declared(), started("a1"), ended("a1", "killed", 5), started("a2", first=5), ended("a2", "completed", 20)]
    events.append(started("a3", "low/1"))
    events += [proven(), EvalProven("low/0", "id", 3, HASH), CellStopped("high/1", "bug twice", "bug")]
    ledger.append_all(events)
    write_index(folder, StudyState.replay(Ledger(folder.ledger).rows), ledger.position)
    cached = read_index(folder)
    assert cached is not None
    state, position = cached
    assert position == ledger.position
    replayed = StudyState.replay(Ledger(folder.ledger).rows)
    for known in replayed.cells.values():
        known.last_evidence = []
    assert state.cells == replayed.cells
    assert state.eval_cells == replayed.eval_cells
    assert state.event_count == replayed.event_count
    assert state.totals == replayed.totals
    assert list(state.open_attempts) == list(replayed.open_attempts) == ["a3"]


def test_an_index_of_another_ledger_is_not_used(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    ledger = Ledger(folder.ledger)
    ledger.append_all([declared(), proven()])
    write_index(folder, StudyState.replay(Ledger(folder.ledger).rows), ledger.position)
    folder.ledger.unlink()
    Ledger(folder.ledger).append_all([declared(), proven("low/1"), proven("high/1")])
    assert read_index(folder) is None
