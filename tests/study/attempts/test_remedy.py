"""What follows from a death."""

from typing import Any

from dreamproof.report.language import read_texts
from dreamproof.report.quotes import translated
from dreamproof.settings.running import Retries
from dreamproof.settings.study import Study
from dreamproof.study.attempts.remedy import decide, overdue_stops, wait_seconds
from dreamproof.study.ledger.events import AttemptEnded, AttemptStarted, BreakerTripped, CellStopped, Event, Remedy
from dreamproof.study.ledger.state import StudyState
from dreamproof.testing.small_study import small_study


class Story:
    """A state that lives through attempts."""

    def __init__(self, **changes: Any) -> None:
        self.state = StudyState()
        self.state.redeclare(Study.model_validate(small_study(**changes)))
        self.count = 0

    def apply(self, *events: Event) -> None:
        for event in events:
            self.state.apply({"n": 1, "t": 1.0, **event.row()})

    def death(self, cause: str, transient: bool = True, record: bool = True, **more: Any) -> list[Event]:
        """One attempt that begins and dies; returns what is decided, and writes it down."""
        self.count += 1
        name = f"a{self.count}"
        cells = more.get("cells", ["low/0"])
        first = more.get("first", 0)
        steps = {cell: more.get("kept", first) for cell in cells}
        work = more.get("work", "train")
        started = AttemptStarted(
            name, work, cells, ["id"] if work == "evaluate" else [], ["train"], dict.fromkeys(cells, first),
            len(cells), more.get("micro_batches", 1),
        )  # fmt: skip
        causes = more.get("cell_causes")
        self.apply(
            started,
            AttemptEnded(
                name, cause, more.get("evidence", []), more.get("wall", 100.0), steps, steps, transient, None, causes
            ),
        )
        events = decide(self.state, self.state.attempts[name])
        if record:
            self.apply(*events)
        return events


def test_a_transient_death_resumes_with_growing_patience() -> None:
    story = Story(retries={"first_wait_seconds": 2.0, "transient_at_most": 5})
    waits = [event.wait_seconds for _ in range(4) for event in story.death("killed") if isinstance(event, Remedy)]
    assert waits == [2.0, 4.0, 8.0, 16.0]


def test_patience_has_an_end() -> None:
    assert wait_seconds(Retries(first_wait_seconds=2.0, longest_wait_seconds=10.0), 30) == 10.0


def test_too_many_deaths_without_progress_stop_the_cell() -> None:
    story = Story(retries={"transient_at_most": 2})
    story.death("killed")
    story.death("killed")
    [stopped] = story.death("killed")
    assert isinstance(stopped, CellStopped)
    assert "3 failures in a row without a newer checkpoint" in stopped.reason


def test_deaths_with_progress_are_forgiven() -> None:
    story = Story(retries={"transient_at_most": 1})
    for round_number in range(6):
        [remedy] = story.death("killed", first=5 * round_number, kept=5 * round_number + 5)
        assert isinstance(remedy, Remedy)


def test_the_same_deterministic_cause_twice_stops_the_cell_and_says_so() -> None:
    story = Story()
    [first] = story.death("bug", transient=False)
    assert isinstance(first, Remedy) and first.action == "resume"
    [second] = story.death("bug", transient=False)
    assert isinstance(second, CellStopped)
    assert second.reason == "failed 2 times with the same cause: bug"


def test_a_cell_that_ends_well_without_its_proof_is_stopped_with_what_is_missing() -> None:
    story, quotes = Story(), ["exit code 0 after 1.8 s", "but the proof is missing: low/0: log.csv ends at 1 of 9"]
    story.death("unknown", transient=False, evidence=quotes)
    [stopped] = story.death("unknown", transient=False, evidence=quotes)
    assert isinstance(stopped, CellStopped)
    reason = "failed 2 times with the same cause: unknown; its proof is missing: low/0: log.csv ends at 1 of 9"
    assert stopped.reason == reason
    assert "same cause" not in translated(reason, read_texts("zh-Hans"))


def test_two_different_deterministic_causes_do_not_stop_the_cell() -> None:
    story = Story()
    story.death("bug", transient=False)
    [remedy] = story.death("import_error", transient=False)
    assert isinstance(remedy, Remedy)


def test_evaluations_are_counted_apart_from_training() -> None:
    story = Story()
    story.death("bug", transient=False)
    [remedy] = story.death("bug", transient=False, work="evaluate")
    assert isinstance(remedy, Remedy)
    [stopped] = story.death("bug", transient=False, work="evaluate")
    assert isinstance(stopped, CellStopped) and stopped.work == "evaluate"


def test_device_memory_halves_the_pack_then_cuts_batches_at_the_same_effective_batch() -> None:
    story = Story(trainer="pwm", pack_cells=4, seeds=4)
    [halved] = story.death("device_oom", transient=False, cells=["low/0", "low/1", "low/2", "low/3"])
    assert isinstance(halved, Remedy)
    assert (halved.action, halved.pack_cells) == ("halve_pack", 2)
    assert halved.cells == ["low/0", "low/1", "low/2", "low/3"]
    [again] = story.death("device_oom", transient=False, cells=["low/0", "low/1"])
    assert isinstance(again, Remedy) and again.pack_cells == 1
    [cut] = story.death("device_oom", transient=False, cells=["low/0"])
    assert isinstance(cut, Remedy)
    assert (cut.action, cut.micro_batches) == ("halve_micro_batch", 2)
    assert "the effective batch size is unchanged" in cut.reason
    assert {cell.micro_batches for cell in story.state.cells.values() if cell.cell.arm == "low"} == {2}


def test_a_command_that_takes_no_micro_batches_is_stopped_after_two() -> None:
    story = Story()
    story.death("device_oom", transient=False)
    [stopped] = story.death("device_oom", transient=False)
    assert isinstance(stopped, CellStopped)


def test_one_cell_that_is_no_longer_finite_does_not_stop_its_pack() -> None:
    story = Story(trainer="dreamer", pack_cells=2)
    cells = ["low/0", "low/1"]
    story.death("killed", cells=cells, cell_causes={"low/0": "nan"})
    events = story.death("killed", cells=cells, cell_causes={"low/0": "nan"})
    stopped = [event for event in events if isinstance(event, CellStopped)]
    assert [event.cell for event in stopped] == ["low/0"]
    resumed = [event for event in events if isinstance(event, Remedy)]
    assert [event.cells for event in resumed] == [["low/1"]]


def test_many_quick_failures_trip_the_breaker_once() -> None:
    story = Story(seeds=9, retries={"breaker_failures": 3, "breaker_quick_seconds": 60.0})
    for seed in range(2):
        assert not [e for e in story.death("killed", cells=[f"low/{seed}"], wall=1.0) if isinstance(e, BreakerTripped)]
    events = story.death("killed", cells=["low/2"], wall=1.0)
    assert isinstance(events[-1], BreakerTripped)
    assert "3 attempts in a row failed within 60 s" in events[-1].reason
    assert not [e for e in story.death("killed", cells=["low/3"], wall=1.0) if isinstance(e, BreakerTripped)]


def test_slow_failures_and_those_with_progress_do_not_trip_the_breaker() -> None:
    story = Story(seeds=9, retries={"breaker_failures": 2, "breaker_quick_seconds": 60.0})
    story.death("killed", cells=["low/0"], wall=1.0)
    story.death("killed", cells=["low/1"], wall=100.0)
    assert story.state.quick_failures == 0
    story.death("killed", cells=["low/2"], wall=1.0, kept=5)
    assert story.state.quick_failures == 0


def test_a_stop_by_a_person_needs_no_remedy() -> None:
    assert Story().death("stopped_by_user") == []


def test_a_stop_that_an_earlier_supervisor_could_not_write_is_caught_up() -> None:
    story = Story()
    story.death("bug", transient=False)
    story.death("bug", transient=False, record=False)
    [stopped] = overdue_stops(story.state)
    assert isinstance(stopped, CellStopped) and stopped.cell == "low/0"
    story.apply(stopped)
    assert overdue_stops(story.state) == []
