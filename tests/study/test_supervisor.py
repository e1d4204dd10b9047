"""The supervisor's loop over a scripted backend and clocks that jump on command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.files import read_json, write_json
from dreamproof.runs.layout import AttemptFolder, Cell
from dreamproof.runs.records import ExitRecord
from dreamproof.runs.writer import RunWriter
from dreamproof.study import session
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.events import AttemptEnded, AttemptStarted
from dreamproof.study.money.budget import REPORT_SECONDS
from dreamproof.study.plan.commands import write_settings
from dreamproof.study.plan.gap import Selection
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.supervisor import Ending, Supervisor, SupervisorOptions
from dreamproof.testing.small_study import declare

TASK = "counting"


class ScriptedBackend:
    """Attempts that end when the test says so; every wait moves the clock on."""

    def __init__(self) -> None:
        self.sightings: dict[str, Sighting] = {}
        self.started: list[str] = []
        self.stopped: dict[str, str] = {}
        self.graces: dict[str, float] = {}
        self.now = 1000.0
        self.on_start: Callable[[AttemptFolder], None] = lambda folder: None
        self.on_wait: Callable[[], None] = lambda: None
        self.on_stop: Callable[[AttemptFolder, str], None] = lambda folder, reason: None

    def start(self, folder: AttemptFolder) -> None:
        self.started.append(folder.root.name)
        self.sightings[folder.root.name] = Sighting(Presence.RUNNING, process_state="S")
        self.on_start(folder)

    def look(self, folder: AttemptFolder) -> Sighting:
        return self.sightings.get(folder.root.name, Sighting(Presence.LOST))

    def stop(self, folder: AttemptFolder, reason: str, grace_seconds: float) -> None:
        self.stopped[folder.root.name] = reason
        self.graces[folder.root.name] = grace_seconds
        write_json(folder.stop, {"reason": reason})
        self.on_stop(folder, reason)

    def activity(self, folder: AttemptFolder) -> None:
        return None

    def wait(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)
        self.on_wait()

    def close(self) -> None:
        pass

    def end(self, name: str, code: int = 0, **more: Any) -> None:
        self.sightings[name] = Sighting(Presence.ENDED, ExitRecord(exit_code=code, wall_seconds=2.0, **more))


class Stage:
    """A study, its ledger and a supervisor over a scripted backend."""

    def __init__(self, folder: Path, options: SupervisorOptions | None = None, **changes: Any) -> None:
        self.opened: OpenStudy = open_study(declare(folder, **{"conditions": [], **changes}))
        self.ledger = Ledger(self.opened.folder.ledger)
        session.declare(self.opened, self.ledger)
        self.backend = ScriptedBackend()
        self.supervisor = Supervisor(self.opened, self.ledger, self.backend, options or SupervisorOptions())
        self.supervisor.monotonic = lambda: self.backend.now
        self.supervisor.read_moment = lambda: Moment(self.backend.now)

    def train(self, cell: str, steps: int = 20) -> None:
        """Leaves a good checkpoint of a cell on disk."""
        run = self.opened.folder.run(Cell.parse(cell))
        write_settings(self.opened.study, Cell.parse(cell), run)
        writer = RunWriter(run)
        writer.beat(steps, steps, "train")
        facts = {"agent_steps": steps, "gradient_steps": steps, "parameter_hash": f"{steps:064d}", "finite": True}
        writer.save(lambda place: place.joinpath("w").write_text(f"{cell} {steps}") and None, {**facts, "task": TASK})

    def cells_of(self, name: str) -> list[str]:
        return self.opened.state.attempts[name].cells

    def causes(self) -> list[str | None]:
        return [attempt.cause for attempt in self.opened.state.attempts.values()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in Ledger(self.opened.folder.ledger).rows if row["event"] == kind]


def succeed_at_once(stage: Stage) -> None:
    """Every attempt finds its cell trained the moment it starts."""

    def start(folder: AttemptFolder) -> None:
        for cell in stage.cells_of(folder.root.name):
            stage.train(cell)
        stage.backend.end(folder.root.name)

    stage.backend.on_start = start


def test_it_works_until_everything_is_proven(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert stage.causes() == ["completed"] * 4
    assert len(stage.events("train_proven")) == 4


def test_the_ledger_holds_no_path_of_the_machine_it_was_written_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    succeed_at_once(stage)
    stage.supervisor.run()
    assert any(word.startswith("runs/") for row in stage.events("attempt_started") for word in row["command"])
    assert str(tmp_path) not in stage.opened.folder.ledger.read_text()


def test_no_more_attempts_than_slots_run_at_a_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path, backend={"slots": 3})
    stage.supervisor.recover()
    stage.supervisor.start()
    stage.supervisor.start()
    assert len(stage.backend.started) == 3


def slow_cells(stage: Stage, rates: dict[str, float]) -> set[str]:
    """Cells that are judged slow after five minutes of training at so many steps per second."""
    writers = {cell: RunWriter(stage.opened.folder.run(Cell.parse(cell))) for cell in rates}
    for second in range(0, 300, 10):
        stage.backend.now = 1000.0 + second
        for cell, rate in rates.items():
            writers[cell].beat(int(rate * second), 0, "train")
        stage.supervisor.scan()
        stage.supervisor.judge()
    return {stage.cells_of(row["attempt"])[0] for row in stage.events("liveness_changed") if row["state"] == "slow"}


@pytest.mark.parametrize(("last", "slow"), [(10.0, set()), (4.0, {"high/1"})])
def test_a_cell_is_slow_beside_others_of_its_own_arm_alone(tmp_path: Path, last: float, slow: set[str]) -> None:
    """Arms may differ in what a step costs."""
    stage = Stage(tmp_path, agent_steps=100_000)
    stage.supervisor.recover()
    stage.supervisor.start()
    assert slow_cells(stage, {"low/0": 100.0, "low/1": 100.0, "high/0": 10.0, "high/1": last}) == slow


def test_an_attempt_gets_the_gpu_that_the_fewest_others_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    stage = Stage(tmp_path, backend={"slots": 3})
    stage.supervisor.recover()
    stage.supervisor.start()
    stage.train(stage.cells_of("a000002")[0])
    stage.backend.end("a000002")
    stage.supervisor.scan()
    stage.supervisor.judge()
    stage.supervisor.remedy()
    stage.supervisor.start()
    orders = [read_json(stage.opened.folder.attempt(name).order) for name in stage.backend.started]
    assert [order["environment"]["CUDA_VISIBLE_DEVICES"] for order in orders] == ["2", "5", "2", "5"]


def test_a_narrowed_call_ends_when_its_part_is_proven(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SupervisorOptions(Selection(frozenset({"low"}))))
    succeed_at_once(stage)
    assert stage.supervisor.run() is Ending.SELECTION_DONE
    assert {cell.arm for cell, known in stage.opened.state.cells.items() if known.proof} == {"low"}


def test_a_cell_that_the_disk_already_proves_is_recorded_and_not_started(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for cell in ("low/0", "low/1", "high/0", "high/1"):
        stage.train(cell)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert stage.backend.started == []
    assert len(stage.events("train_proven")) == 4


def test_a_lone_checkpoint_file_is_no_proof(tmp_path: Path) -> None:
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1)
    stage.train("low/0")
    record = stage.opened.folder.run(Cell("low", 0)).checkpoint(20).record
    record.unlink()
    succeed_at_once(stage)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert stage.backend.started == ["a000001"]


def test_a_corrupt_newest_checkpoint_is_moved_aside_and_the_one_before_is_used(tmp_path: Path) -> None:
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1)
    stage.train("low/0", 5)
    stage.train("low/0", 10)
    run = stage.opened.folder.run(Cell("low", 0))
    (run.checkpoint(10).root / "w").write_text("damaged")
    succeed_at_once(stage)
    assert stage.supervisor.run() is Ending.COMPLETE
    [remedy] = stage.events("remedy")
    assert remedy["action"] == "fall_back"
    assert "hash differs" in remedy["reason"]
    assert (stage.opened.folder.root / remedy["moved"] / "w").read_text() == "damaged"
    assert stage.events("attempt_started")[0]["from_agent_steps"] == {"low/0": 5}


def test_the_same_bug_twice_stops_the_cell_and_the_rest_continues(tmp_path: Path) -> None:
    stage = Stage(tmp_path, seeds=1)

    def start(folder: AttemptFolder) -> None:
        [cell] = stage.cells_of(folder.root.name)
        if cell.startswith("low"):
            folder.output.write_text('Traceback (most recent call last):\n  File "x", line 1\nZeroDivisionError: no\n')
            stage.backend.end(folder.root.name, 1)
        else:
            stage.train(cell)
            stage.backend.end(folder.root.name)

    stage.backend.on_start = start
    assert stage.supervisor.run() is Ending.NOTHING_CAN_RUN
    assert sorted(str(cause) for cause in stage.causes()) == ["bug", "bug", "completed"]
    assert stage.opened.state.cells[Cell("low", 0)].stopped is not None


def test_the_breaker_stops_a_study_where_everything_fails_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path, seeds=9, retries={"breaker_failures": 4, "first_wait_seconds": 0.0})
    stage.backend.on_start = lambda folder: stage.backend.end(folder.root.name, 1)
    assert stage.supervisor.run() is Ending.BREAKER
    assert len(stage.events("breaker_tripped")) == 1
    assert len(stage.backend.started) <= 8


def test_a_second_supervisor_adopts_living_attempts_and_starts_nothing_twice(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.supervisor.recover()
    stage.supervisor.start()
    assert len(stage.backend.started) == 4
    heir = Supervisor(
        open_study(stage.opened.file), Ledger(stage.opened.folder.ledger), stage.backend, SupervisorOptions()
    )
    heir.recover()
    assert sorted(heir.watched) == stage.backend.started
    heir.start()
    assert len(stage.backend.started) == 4


def test_an_attempt_that_a_torn_ledger_lost_is_found_by_its_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1)
    stage.supervisor.recover()
    stage.supervisor.start()
    ledger = stage.opened.folder.ledger
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join(lines[:-1]) + lines[-1][:50])
    opened = open_study(stage.opened.file)
    heir = Supervisor(opened, Ledger(ledger), stage.backend, SupervisorOptions())
    heir.recover()
    assert list(heir.watched) == ["a000001"]
    heir.start()
    assert stage.backend.started == ["a000001"]


def test_a_stop_request_stops_what_runs_and_counts_as_no_death(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.backend.on_stop = lambda folder, reason: stage.backend.end(folder.root.name, 0, asked_to_stop=reason)
    stage.backend.on_wait = lambda: write_json(stage.opened.folder.stop_request, {"by": "ann"})
    assert stage.supervisor.run() is Ending.STOPPED
    assert stage.causes() == ["stopped_by_user"] * 4
    assert [row["by"] for row in stage.events("stop_requested")] == ["ann"]
    assert not any(known.deaths for known in stage.opened.state.cells.values())


def test_leaving_ends_at_once_and_stops_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.backend.on_wait = lambda: setattr(stage.supervisor, "leave", True)
    assert stage.supervisor.run() is Ending.LEFT
    assert stage.backend.stopped == {}
    assert len(stage.opened.state.open_attempts) == 4


def test_a_process_that_makes_no_progress_is_stopped_with_its_reason(tmp_path: Path) -> None:
    liveness = {"compile_stalled_after_seconds": 10.0, "kill_silent_after_seconds": 30.0}
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, liveness=liveness)

    def stopped(folder: AttemptFolder, reason: str) -> None:
        stage.backend.end(folder.root.name, 0, asked_to_stop=reason)
        succeed_at_once(stage)

    stage.backend.on_stop = stopped
    assert stage.supervisor.run() is Ending.COMPLETE
    assert stage.causes() == ["stalled", "completed"]
    assert stage.backend.stopped["a000001"].startswith("stalled: no counter grew for")
    assert [row["action"] for row in stage.events("remedy")] == ["stop_stalled", "resume"]


def test_a_kill_whose_successor_continues_is_a_false_alarm_and_lengthens_all_limits(tmp_path: Path) -> None:
    liveness = {"compile_stalled_after_seconds": 10.0, "stalled_after_seconds": 10.0, "kill_silent_after_seconds": 30.0}
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, liveness=liveness)
    began: list[float] = []
    waited: list[float] = []

    def start(folder: AttemptFolder) -> None:
        began.append(stage.backend.now)
        if len(began) == 3:
            stage.train("low/0", 10)

    def stopped(folder: AttemptFolder, reason: str) -> None:
        waited.append(stage.backend.now - began[-1])
        stage.backend.end(folder.root.name, 0, asked_to_stop=reason)

    def wait() -> None:
        if len(began) == 3 and stage.events("false_alarm"):
            stage.train("low/0", 20)
            stage.backend.end("a000003")

    stage.backend.on_start, stage.backend.on_stop, stage.backend.on_wait = start, stopped, wait
    assert stage.supervisor.run() is Ending.COMPLETE
    assert waited == [pytest.approx(30, abs=3), pytest.approx(60, abs=3)], "never the same limit twice"
    assert [row["evidence"] for row in stage.events("remedy") if row["action"] == "stop_stalled"] == ["silent"] * 2
    alarm = stage.events("false_alarm")
    assert [(row["attempt"], row["successor"]) for row in alarm] == [("a000002", "a000003")]
    assert stage.opened.state.false_alarm_factor == 2.0


def test_a_cell_that_stalls_again_and_again_is_stopped(tmp_path: Path) -> None:
    liveness = {"compile_stalled_after_seconds": 2.0, "kill_silent_after_seconds": 4.0}
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, liveness=liveness)
    stage.backend.on_stop = lambda folder, reason: stage.backend.end(folder.root.name, 0, asked_to_stop=reason)
    assert stage.supervisor.run() is Ending.NOTHING_CAN_RUN
    assert stage.causes() == ["stalled"] * 3
    assert stage.opened.state.known_cell("low/0").stopped == (
        "stalled 3 times without a newer checkpoint, each time with longer limits"
    )


def test_a_process_stopped_by_a_signal_gets_time_to_be_continued(tmp_path: Path) -> None:
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, liveness={"kill_stopped_after_seconds": 10.0})
    began = stage.backend.now
    stage.backend.on_start = lambda folder: stage.backend.sightings.update(
        {folder.root.name: Sighting(Presence.RUNNING, process_state="T")}
    )

    def stopped(folder: AttemptFolder, reason: str) -> None:
        assert stage.backend.now - began >= 10.0
        stage.supervisor.leave = True

    stage.backend.on_stop = stopped
    assert stage.supervisor.run() is Ending.LEFT
    assert "state T" in stage.backend.stopped["a000001"]


def test_where_the_study_says_report_a_stall_is_reported_and_nothing_stopped(tmp_path: Path) -> None:
    liveness = {"compile_stalled_after_seconds": 2.0, "kill_silent_after_seconds": 4.0, "stalled_action": "report"}
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, liveness=liveness)
    stage.backend.on_wait = lambda: setattr(stage.supervisor, "leave", stage.backend.now > 1030.0)
    stage.supervisor.run()
    assert [row["state"] for row in stage.events("liveness_changed")] == ["stalled"]
    assert stage.backend.stopped == {}


def test_the_budget_stops_everything_before_it_is_exceeded(tmp_path: Path) -> None:
    money = {"price_per_gpu_hour": 3600.0, "budget": 400.0}
    stage = Stage(tmp_path, backend={"slots": 2}, money=money, liveness={"compile_stalled_after_seconds": 1e6})
    ended_after: list[float] = []

    def stopped(folder: AttemptFolder, reason: str) -> None:
        stage.backend.end(folder.root.name, 0, asked_to_stop=reason)
        ended_after.append(stage.backend.now - 1000.0)

    stage.backend.on_stop = stopped
    assert stage.supervisor.run() is Ending.BUDGET
    # Two slots at 1 per second each: 200 seconds are paid for, and the grace and the reports must fit into them.
    closing = stage.backend.graces["a000001"] + REPORT_SECONDS
    assert all(150.0 < seconds + closing <= 200.0 for seconds in ended_after)
    assert [row["budget"] for row in stage.events("budget_reached")] == [400.0]
    assert len(stage.backend.started) == 2


def test_a_last_cell_that_is_trained_while_the_budget_stops_it_completes_the_study(tmp_path: Path) -> None:
    money = {"price_per_gpu_hour": 3600.0, "budget": 400.0}
    liveness = {"compile_stalled_after_seconds": 1e6}
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, backend={"slots": 1}, money=money, liveness=liveness)

    def stopped(folder: AttemptFolder, reason: str) -> None:
        stage.train("low/0")
        stage.backend.end(folder.root.name, 0, asked_to_stop=reason)

    stage.backend.on_stop = stopped
    assert stage.supervisor.run() is Ending.COMPLETE
    assert len(stage.events("budget_reached")) == 1


def test_money_that_is_spent_starts_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, money={"price_per_gpu_hour": 3600.0, "budget": 400.0})
    started = AttemptStarted("a000001", "train", ["low/0"], [], ["train"], {"low/0": 0})
    ended = AttemptEnded("a000001", "killed", [], 1000.0, {"low/0": 0}, {"low/0": 0}, True)
    stage.supervisor.record(started, ended)
    assert stage.supervisor.run() is Ending.BUDGET
    assert stage.backend.started == []


def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, money={"price_per_gpu_hour": 3600.0, "budget": 1e6}, liveness={"stalled_after_seconds": 60.0}
    )
    jumps = iter([1e9, -1e9, 5.0, 1e12] * 100)
    stage.supervisor.read_moment = lambda: Moment(next(jumps))
    beats = iter(range(1, 1000))

    def progress() -> None:
        count = next(beats)
        for cell in ("low/0", "low/1", "high/0", "high/1"):
            RunWriter(stage.opened.folder.run(Cell.parse(cell))).beat(count, count, "train")
        stage.supervisor.leave = count > 50

    stage.backend.on_wait = progress
    assert stage.supervisor.run() is Ending.LEFT
    assert stage.events("liveness_changed") == []
    assert stage.events("budget_reached") == []


def test_a_full_disk_makes_it_wait_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1)
    succeed_at_once(stage)
    free = iter([0, 0, 0])
    monkeypatch.setattr("dreamproof.study.supervisor.disk_free_bytes", lambda folder: next(free, 1 << 30))
    notices: list[str | None] = []
    stage.supervisor.options.on_tick = lambda supervisor: notices.append(supervisor.notice)
    assert stage.supervisor.run() is Ending.COMPLETE
    assert [notice is not None for notice in notices[:4]] == [True, True, True, False]


def test_evaluations_follow_training_and_the_checkpoint_must_match(tmp_path: Path) -> None:
    stage = Stage(tmp_path, arms={"low": {}}, seeds=1, conditions=["id", "far"], metric={"smallest_difference": 1.0})

    def start(folder: AttemptFolder) -> None:
        attempt = stage.opened.state.attempts[folder.root.name]
        if attempt.work == "train":
            stage.train("low/0")
        else:
            for condition in attempt.conditions:
                digest = f"{20:064d}" if len(stage.backend.started) > 2 or condition == "id" else "f" * 64
                evaluated = {"agent_steps": 20, "gradient_steps": 20, "parameter_hash": digest}
                final = {**evaluated, "episodes": {"return": [1.0, 2.0, 3.0]}}
                value = {"condition": condition, "kind": "proxy", "task": TASK, "checkpoints": {"final": final}}
                write_json(stage.opened.folder.run(Cell("low", 0)).evaluation(condition), value)
        stage.backend.end(folder.root.name)

    stage.backend.on_start = start
    assert stage.supervisor.run() is Ending.COMPLETE
    assert [row["conditions"] for row in stage.events("attempt_started")] == [[], ["id", "far"], ["far"]]
    assert stage.causes() == ["completed", "unknown", "completed"]
    assert "the proven one is" in stage.events("attempt_ended")[1]["evidence"][1]


def test_a_pack_continues_without_the_cell_that_is_no_longer_finite(tmp_path: Path) -> None:
    stage = Stage(tmp_path, trainer="dreamer", pack_cells=2, arms={"low": {}}, seeds=2)

    def start(folder: AttemptFolder) -> None:
        cells = stage.cells_of(folder.root.name)
        if "low/1" in cells:
            stage.train("low/1")
        record = {"agent_steps": 7, "gradient_steps": 7, "reason": "loss is nan"}
        write_json(stage.opened.folder.run(Cell("low", 0)).frozen, record)
        stage.backend.end(folder.root.name, 0)

    stage.backend.on_start = start
    assert stage.supervisor.run() is Ending.NOTHING_CAN_RUN
    assert stage.opened.state.cells[Cell("low", 1)].proof is not None
    assert stage.opened.state.cells[Cell("low", 0)].stopped_cause == "nan"
    assert [row["cell"] for row in stage.events("replica_frozen")] == ["low/0", "low/0"]
