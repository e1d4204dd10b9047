"""Money by any history of clocks: set forward, set back, suspended, rebooted; the split adds up to the millisecond."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamproof.settings.study import Study
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import SUSPENDED, Moment
from dreamproof.study.ledger.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    PreflightPassed,
    StopRequested,
    StudyDeclared,
    SupervisorEnded,
    SupervisorLost,
    SupervisorStarted,
)
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.money.budget import Budget
from dreamproof.study.money.spending import count_money, money_lines, spent_and_forecast

HOUR = 3_600_000
CELLS = ("a/0", "a/1", "b/0", "b/1")
SLOTS = len(CELLS)


def study(**more: Any) -> Study:
    values: dict[str, Any] = {
        "name": "tiny",
        "question": "Is b better?",
        "metric": {"smallest_difference": 1.0},
        "task": "line",
        "trainer": {"command": ["train"]},
        "arms": {"a": {}, "b": {"rate": 1}},
        "seeds": 2,
        "agent_steps": 1000,
        "backend": {"slots": SLOTS},
        "money": {"price_per_gpu_hour": 3.6, "budget": 100},
    }
    return Study.model_validate({**values, **more})


@dataclass
class Machine:
    """A machine whose true time is known, its clocks, and a ledger that only sees the clocks. All in milliseconds."""

    folder: Path
    declared: Study = field(default_factory=study)
    unix: int = 1_700_000_000_000
    monotonic: int = 50_000
    suspended: int = 0
    boots: int = 1
    supervised: list[list[int]] = field(default_factory=list)
    """Boot, start and last event of every supervisor."""
    running: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """By cell: attempt, boot and start."""
    ran: list[tuple[int, int, int]] = field(default_factory=list)
    ran_until: dict[str, int] = field(default_factory=dict)
    has_supervisor: bool = False
    left_politely: bool = False

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.folder / "ledger.jsonl", self.moment)
        self.write(StudyDeclared(self.declared.hash(), self.declared.model_dump(mode="json")))

    def moment(self) -> Moment:
        return Moment(self.unix / 1000, f"boot{self.boots:04d}", self.monotonic / 1000, self.suspended / 1000)

    def write(self, event: Event) -> None:
        self.ledger.append(event, durable=False)
        if self.has_supervisor:
            self.supervised[-1][2] = self.monotonic

    def live(self, ms: int) -> None:
        self.unix, self.monotonic = self.unix + ms, self.monotonic + ms

    def set_clock(self, ms: int) -> None:
        self.unix += ms

    def suspend(self, ms: int) -> None:
        self.unix, self.suspended = self.unix + ms, self.suspended + ms

    def supervise(self) -> None:
        if self.has_supervisor:
            return
        if self.supervised and not self.left_politely:
            self.write(SupervisorLost())
        self.has_supervisor, self.left_politely = True, False
        self.supervised.append([self.boots, self.monotonic, self.monotonic])
        self.write(SupervisorStarted(f"boot{self.boots:04d}-whole", 1, 1, "host", "0"))
        for cell, (name, boot, start) in [*self.running.items()]:
            if boot != self.boots:  # died with its boot: what it lived is on record in its folder
                self.end(cell, self.ran_until[name] - start)

    def leave(self, politely: bool) -> None:
        if self.has_supervisor and politely:
            self.write(SupervisorEnded("done"))
            self.left_politely = True
        self.has_supervisor = False

    def tick(self) -> None:
        if self.has_supervisor:
            self.write(StopRequested("somebody"))

    def start(self, cell: str) -> None:
        if self.has_supervisor and cell not in self.running:
            name = f"a{len(self.ran) + len(self.running) + 1:06d}"
            self.running[cell] = (name, self.boots, self.monotonic)
            self.write(AttemptStarted(name, "train", [cell], [], ["x"], {cell: 0}))

    def end(self, cell: str, lived: int | None = None) -> None:
        if not self.has_supervisor or cell not in self.running:
            return
        name, boot, start = self.running.pop(cell)
        lived = self.monotonic - start if lived is None else lived
        self.ran.append((boot, start, start + lived))
        self.write(AttemptEnded(name, "killed", [], lived / 1000, {cell: 500}, {cell: 300}))

    def reboot(self, off_ms: int) -> None:
        self.has_supervisor = False
        here = [name for name, boot, _ in self.running.values() if boot == self.boots]
        self.ran_until |= dict.fromkeys(here, self.monotonic)
        self.unix, self.monotonic, self.suspended, self.boots = self.unix + off_ms, 1000, 0, self.boots + 1

    def expected(self) -> tuple[int, int]:
        """(machine, busy) milliseconds: what was there, counted second by second of true time."""
        spans = [tuple(one) for one in self.supervised] + self.ran
        spans += [(boot, start, self.monotonic) for _, boot, start in self.running.values()]
        covered = 0
        for boot in {span[0] for span in spans}:
            reach = -1
            for _, start, end in sorted(span for span in spans if span[0] == boot):
                covered += max(0, end - max(start, reach))
                reach = max(reach, end)
        busy = sum(end - start for _, start, end in self.ran)
        return covered, busy + sum(self.monotonic - start for _, _, start in self.running.values())


passing = st.tuples(st.just("live"), st.integers(1, 60_000))
cells = st.sampled_from(CELLS)
actions = st.one_of(
    passing,
    passing,
    passing,
    st.tuples(st.just("set_clock"), st.integers(-48, 48).map(lambda hours: hours * HOUR)),
    st.tuples(st.just("suspend"), st.integers(1, 24).map(lambda hours: hours * HOUR)),
    st.tuples(st.just("reboot"), st.integers(0, 5 * HOUR)),
    st.tuples(st.just("supervise")),
    st.tuples(st.just("leave"), st.booleans()),
    st.tuples(st.just("tick")),
    st.tuples(st.just("start"), cells),
    st.tuples(st.just("start"), cells),
    st.tuples(st.just("end"), cells),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(actions, max_size=40))
def test_the_split_is_what_truly_passed_for_any_history_of_clocks(history: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        machine.supervise()
        for name, *values in history:
            getattr(machine, name)(*values)
        machine.supervise()
        machine.tick()
        rows = Ledger(machine.ledger.path).rows
    state = StudyState.replay(rows)
    costs = count_money(state, machine.moment())
    covered, busy = machine.expected()
    assert costs.useful_ms + costs.wasted_ms == busy
    assert costs.idle_ms == SLOTS * covered - busy
    assert costs.useful_ms + costs.wasted_ms + costs.idle_ms == costs.total_ms == SLOTS * covered
    assert sum(cell.useful_ms + cell.wasted_ms for cell in costs.cells.values()) == busy
    assert sum(costs.wasted_by_cause.values()) == costs.wasted_ms
    assert spent_and_forecast(state, machine.moment())[0] == costs.total_money
    for boot in {row["boot"] for row in rows}:
        own = [row for row in rows if row["boot"] == boot]
        wall, passed = own[-1]["t"] - own[0]["t"], own[-1]["m"] - own[0]["m"]
        marked = [row["seconds"] for row in own if row["event"] == "clock_jumped" and row is not own[0]]
        assert abs(wall - passed - sum(marked)) < 0.01


def test_what_the_next_call_writes_is_no_time_of_a_supervisor_that_was_killed(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.supervise()
    machine.live(5_000)
    machine.tick()
    machine.leave(politely=False)
    machine.live(HOUR)
    machine.write(SupervisorLost())
    machine.live(1_000)
    machine.write(PreflightPassed("f"))
    state = StudyState.replay(Ledger(machine.ledger.path).rows)
    assert count_money(state, machine.moment()).total_ms == SLOTS * 5_000


def test_an_attempt_whose_start_was_recorded_late_is_billed_where_it_ran(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.supervise()
    machine.live(100_000)
    machine.start("a/0")  # recorded again after the ledger's last line was torn
    machine.live(1_000)
    machine.end("a/0", lived=60_000)
    machine.live(39_000)
    machine.leave(politely=True)
    costs = count_money(StudyState.replay(Ledger(machine.ledger.path).rows), machine.moment())
    assert (costs.useful_ms + costs.wasted_ms, costs.total_ms) == (60_000, SLOTS * 140_000)


def jumping(folder: Path, jump: str, ms: int) -> Machine:
    """A supervisor that is there for 100 s, with an attempt of 60 s in which the clocks do something."""
    machine = Machine(folder)
    machine.supervise()
    machine.live(20_000)
    machine.start("a/0")
    machine.live(30_000)
    getattr(machine, jump)(ms)
    machine.live(30_000)
    machine.end("a/0")
    machine.live(20_000)
    machine.leave(politely=True)
    return machine


def test_a_day_forward_is_marked_and_neither_idle_nor_work(tmp_path: Path) -> None:
    machine = jumping(tmp_path, "set_clock", 24 * HOUR)
    costs = count_money(StudyState.replay(Ledger(machine.ledger.path).rows), machine.moment())
    assert (costs.useful_ms + costs.wasted_ms, costs.total_ms) == (60_000, SLOTS * 100_000)
    assert "the clock was set forward 1 time, 1 d 0 h in all: not billed" in money_lines(costs)


def test_a_day_back_takes_nothing_away(tmp_path: Path) -> None:
    machine = jumping(tmp_path, "set_clock", -24 * HOUR)
    costs = count_money(StudyState.replay(Ledger(machine.ledger.path).rows), machine.moment())
    assert (costs.useful_ms + costs.wasted_ms, costs.total_ms) == (60_000, SLOTS * 100_000)
    assert "the clock was set back 1 time, 1 d 0 h in all: not billed" in money_lines(costs)


def test_a_suspended_laptop_is_not_billed_and_reported_as_suspended(tmp_path: Path) -> None:
    machine = jumping(tmp_path, "suspend", 9 * HOUR)
    costs = count_money(StudyState.replay(Ledger(machine.ledger.path).rows), machine.moment())
    assert costs.total_ms == SLOTS * 100_000
    assert [jump.kind for jump in costs.clock_jumps] == [SUSPENDED]
    assert "the machine was suspended 1 time, 9 h 0 min in all: not billed" in money_lines(costs)


def test_after_a_day_forward_the_budget_is_not_reached(tmp_path: Path) -> None:
    machine = jumping(tmp_path, "set_clock", 24 * HOUR)
    budget = Budget(machine.declared)
    budget.begin(StudyState.replay(Ledger(machine.ledger.path).rows), machine.moment(), 0.0, 60.0)
    assert budget.spent(0.0) == pytest.approx(SLOTS * 100 * 0.001)
    assert not budget.is_reached(0.0)


def test_a_job_of_a_cluster_is_paid_while_the_machine_that_watches_it_is_suspended(tmp_path: Path) -> None:
    machine = Machine(tmp_path, study(backend={"kind": "slurm"}))
    machine.supervise()
    machine.start("a/0")
    state = StudyState.replay(Ledger(machine.ledger.path).rows)
    attempt = state.attempts["a000001"]
    attempt.placed, attempt.placed_at = attempt.started, attempt.began
    machine.suspend(HOUR)
    machine.set_clock(5 * HOUR)
    assert count_money(state, machine.moment()).total_ms == HOUR


def test_a_ledger_of_an_older_program_is_counted_by_its_wall_clock_and_continues_by_this_ones(tmp_path: Path) -> None:
    machine = jumping(tmp_path, "live", 1)
    old = [{key: row[key] for key in row if key not in ("m", "boot", "s")} for row in Ledger(machine.ledger.path).rows]
    assert count_money(StudyState.replay(old), machine.moment()).total_ms == SLOTS * 100_001
    machine.live(5_000)
    machine.supervise()
    machine.set_clock(24 * HOUR)
    machine.live(7_000)
    machine.tick()
    mixed = [*old, *Ledger(machine.ledger.path).rows[len(old) :]]
    assert count_money(StudyState.replay(mixed), machine.moment()).total_ms == SLOTS * 107_001
