"""Money is counted to the millisecond: useful, wasted and idle add up to the time on the machine."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamproof.base.text import estimate_text, money_text
from dreamproof.settings.study import Study
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.money.spending import StudyMoney, count_money, money_lines, share, spent_and_forecast


def study(**more: Any) -> Study:
    values: dict[str, Any] = {
        "name": "tiny",
        "question": "Is b better?",
        "metric": {"smallest_difference": 1.0},
        "task": "line",
        "trainer": {"command": ["train"], "evaluate": ["evaluate"]},
        "arms": {"a": {}, "b": {"rate": 1}},
        "seeds": 2,
        "agent_steps": 1000,
        "conditions": ["id"],
        "money": {"price_per_gpu_hour": 3.6, "currency": "CNY", "budget": 200},
    }
    return Study.model_validate({**values, **more})


class Story:
    """Writes rows as a supervisor would."""

    def __init__(self, declared: Study | None = None) -> None:
        self.study = declared or study()
        self.rows: list[Row] = []
        self.add(0.0, "study_declared", declaration_hash="h", declaration=self.study.model_dump(mode="json"))

    def add(self, t: float, event: str, **fields: Any) -> None:
        self.rows.append({"n": len(self.rows), "t": t, "event": event, **fields})

    def start(self, name: str, t: float, first: int = 0, cells: tuple[str, ...] = ("a/0",), **more: Any) -> None:
        fields = {"work": "train", "conditions": [], "command": ["x"], "pack_cells": len(cells), **more}
        steps = dict.fromkeys(cells, first)
        self.add(t, "attempt_started", attempt=name, cells=list(cells), from_agent_steps=steps, **fields)

    def end(self, name: str, t: float, wall: float, reached: int, kept: int, **more: Any) -> None:
        cells = next(row["cells"] for row in self.rows if row.get("attempt") == name)
        fields = {"cause": "killed", "evidence": [], **more}
        reached_of, kept_of = dict.fromkeys(cells, reached), dict.fromkeys(cells, kept)
        self.add(
            t,
            "attempt_ended",
            attempt=name,
            wall_seconds=wall,
            reached_agent_steps=reached_of,
            kept_agent_steps=kept_of,
            **fields,
        )

    def prove(self, t: float, cell: str = "a/0") -> None:
        proof = {"agent_steps": 1000, "gradient_steps": 9, "parameter_hash": "h", "checkpoint": "c"}
        self.add(t, "train_proven", cell=cell, **proof)

    def supervise(self, start: float, end: float | None = None) -> None:
        who = {"boot_id": "b", "process_id": 1, "start_ticks": 1, "host": "h", "version": "0"}
        self.add(start, "supervisor_started", **who)
        if end is not None:
            self.add(end, "supervisor_ended", reason="done")

    def count(self, now: float = 1e6, **more: Any) -> StudyMoney:
        state = StudyState.replay(self.rows)
        boot = state.supervisors[-1].boot if state.supervisors else ""
        return count_money(state, Moment(now, boot), **more)


def test_a_run_that_is_proven_was_useful_to_the_end() -> None:
    story = Story()
    story.start("a1", 10)
    story.end("a1", 110, 100.0, 1000, 1000, cause="completed")
    story.prove(110)
    costs = story.count()
    assert (costs.useful_ms, costs.wasted_ms, costs.idle_ms) == (100_000, 0, 0)
    assert costs.total_money == pytest.approx(0.1)


def test_what_lies_beyond_the_last_checkpoint_of_a_dead_attempt_is_wasted() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 500, 400)
    costs = story.count()
    assert (costs.useful_ms, costs.wasted_by_cause) == (80_000, {"killed": 20_000})


def test_the_time_of_the_last_checkpoint_counts_where_it_is_on_record() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 500, 400, cause="stalled", kept_wall_seconds={"a/0": 12.5})
    assert story.count().wasted_by_cause == {"stalled": 87_500}


def test_a_death_before_the_first_step_wastes_everything() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 7, 7.5, 0, 0, cause="import_error")
    assert story.count().wasted_by_cause == {"import_error": 7_500}


def test_a_lost_checkpoint_turns_useful_time_into_waste() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 400, 400)
    story.start("a2", 100, first=100)
    story.end("a2", 200, 90.0, 1000, 1000, cause="completed")
    story.prove(200)
    costs = story.count()
    assert costs.wasted_by_cause == {"checkpoint_lost": 75_000}
    assert costs.useful_ms == 25_000 + 90_000


def test_a_restart_from_zero_turns_all_useful_time_before_it_into_waste() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 500, 400)
    story.start("a2", 100, first=400)
    story.add(101, "cell_restarted", cell="a/0", attempt="a2", agent_steps=0, kept_agent_steps=400)
    story.end("a2", 300, 190.0, 1000, 1000, cause="completed")
    story.prove(300)
    costs = story.count()
    assert costs.wasted_by_cause == {"killed": 20_000, "restarted": 80_000}
    assert costs.useful_ms == 190_000


def test_an_attempt_that_restarted_and_died_bought_nothing() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 400, 400)
    story.start("a2", 100, first=400)
    story.add(101, "cell_restarted", cell="a/0", attempt="a2", agent_steps=0, kept_agent_steps=400)
    story.end("a2", 200, 90.0, 300, 400)
    costs = story.count()
    assert (costs.useful_ms, costs.wasted_by_cause) == (0, {"restarted": 100_000, "killed": 90_000})


def test_the_time_of_a_pack_is_shared_by_its_cells() -> None:
    story = Story()
    story.start("a1", 0, cells=("a/0", "a/1", "b/0"))
    story.end("a1", 100, 100.0, 1000, 1000, cause="completed")
    costs = story.count()
    assert [costs.cells[cell].useful_ms for cell in ("a/0", "a/1", "b/0")] == [33_334, 33_333, 33_333]
    assert costs.useful_ms == 100_000


def test_a_frozen_cell_of_a_pack_wastes_its_share_by_its_own_cause() -> None:
    story = Story()
    story.start("a1", 0, cells=("a/0", "a/1"))
    story.end("a1", 100, 100.0, 1000, 1000, cause="completed", cell_causes={"a/1": "nan"})
    story.rows[-1]["kept_agent_steps"] = {"a/0": 1000, "a/1": 0}
    assert story.count().wasted_by_cause == {"nan": 50_000}


def test_evaluation_is_useful_where_it_proved_something() -> None:
    story = Story(study(conditions=["id", "ood"]))
    story.start("a1", 0, cells=("a/0",), work="evaluate", conditions=["id", "ood"])
    story.add(40, "eval_proven", cell="a/0", condition="id", episodes=50, parameter_hash="h")
    story.end("a1", 40, 40.0, 0, 0, cause="bug")
    costs = story.count()
    assert (costs.useful_ms, costs.wasted_by_cause) == (20_000, {"bug": 20_000})


def test_a_cell_that_was_stopped_for_good_bought_nothing() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 500, 400, cause="bug")
    story.add(101, "cell_stopped", cell="a/0", reason="the same bug twice", cause="bug")
    assert story.count().wasted_by_cause == {"bug": 100_000}
    story.add(102, "cell_reopened", cell="a/0", reason="fixed")
    assert story.count().useful_ms == 80_000


def test_time_in_which_nothing_runs_is_idle_for_every_slot() -> None:
    story = Story(study(backend={"slots": 2}))
    story.supervise(0)
    story.start("a1", 10)
    story.end("a1", 110, 100.0, 1000, 1000, cause="completed")
    story.add(150, "supervisor_ended", reason="done")
    costs = story.count()
    assert costs.total_ms == 2 * 150_000
    assert costs.idle_ms == 200_000


def test_time_between_two_supervisors_is_not_counted_and_an_open_one_counts_while_it_lives() -> None:
    story = Story()
    story.supervise(0, 10)
    story.supervise(1000)
    story.add(1005, "stop_requested", by="me")
    assert story.count(now=1020).idle_ms == 15_000
    assert story.count(now=1020, supervisor_alive=True).idle_ms == 30_000


def test_a_cluster_has_no_idle_time_of_ours() -> None:
    story = Story(study(backend={"kind": "slurm"}))
    story.supervise(0, 1000)
    assert story.count().idle_ms == 0


def test_a_running_attempt_is_counted_up_to_now() -> None:
    story = Story()
    story.start("a1", 100)
    costs = story.count(now=160)
    assert (costs.useful_ms, costs.running_ms, costs.total_ms) == (60_000, 60_000, 60_000)


def test_a_clock_that_goes_back_gives_no_negative_time() -> None:
    story = Story()
    story.supervise(1000)
    story.start("a1", 900)
    costs = story.count(now=800)
    assert (costs.useful_ms, costs.wasted_ms, costs.idle_ms) == (0, 0, 0)


def test_runs_made_outside_are_shown_and_not_counted() -> None:
    story = Story()
    story.add(1, "imported", cell="a/0", source="runs/x", adapter="embodied", wall_seconds=6048.0)
    story.prove(1)
    costs = story.count()
    assert (costs.imported_ms, costs.total_ms) == (6_048_000, 0)
    assert costs.forecast.busy_seconds == pytest.approx(3 * 6048)
    assert "runs made outside the study: 1 h 40 min, ¥6.05 at this price, not part of the total" in money_lines(costs)


def test_the_rest_is_forecast_from_what_was_seen() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 1000, 1000, cause="completed")
    story.prove(100)
    story.start("e1", 100, cells=("a/0",), work="evaluate", conditions=["id"])
    story.end("e1", 105, 5.0, 0, 0, cause="completed")
    story.add(105, "eval_proven", cell="a/0", condition="id", episodes=50, parameter_hash="h")
    forecast = story.count().forecast
    assert (forecast.cells, forecast.eval_cells) == (3, 3)
    assert forecast.busy_seconds == pytest.approx(3 * 100 + 3 * 5)
    assert forecast.money == pytest.approx(0.315) and not forecast.without_evaluations


def test_a_forecast_without_evaluations_says_so() -> None:
    story = Story()
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 1000, 1000, cause="completed")
    story.prove(100)
    costs = story.count()
    assert costs.forecast.busy_seconds == pytest.approx(3 * 100) and costs.forecast.without_evaluations
    assert any(line.endswith("without evaluations, none of which was measured yet") for line in money_lines(costs))
    unevaluated = Story(study(conditions=[])).count(probed_rates={"a": 10.0, "b": 10.0})
    assert not unevaluated.forecast.without_evaluations


def test_before_anything_ran_only_the_preflight_knows_the_speed() -> None:
    assert Story().count().forecast.busy_seconds is None
    probed = Story().count(probed_rates={"a": 10.0, "b": 20.0}).forecast
    assert probed.busy_seconds == pytest.approx(2 * 100 + 2 * 50)


def test_amounts_have_a_sign_only_where_a_currency_is_declared() -> None:
    assert [money_text(2.5, currency) for currency in ("CNY", "CHF", None)] == ["¥2.50", "2.50 CHF", "2.50"]
    assert estimate_text(9500.0, None) == "9,500" and money_text(None, None) == "–"
    free = "\n".join(money_lines(Story(study(money={})).count()))
    assert "¥" not in free and "\nbought: 0 of 4 cells trained" in free


def test_the_money_is_shown_as_text() -> None:
    story = Story(study(money={"price_per_gpu_hour": 3.6, "currency": "CNY", "budget": 200}))
    story.supervise(0)
    story.start("a1", 0)
    story.end("a1", 3600, 3600.0, 500, 250)
    story.start("a2", 3600, first=250)
    story.end("a2", 9000, 5400.0, 1000, 1000, cause="completed")
    story.prove(9000)
    story.add(10_000, "supervisor_ended", reason="done")
    assert money_lines(story.count()) == [
        "total                       2 h 46 min      ¥10.00  100.0%",
        "  useful                     2 h 0 min       ¥7.20   72.0%",
        "  wasted                    30 min 0 s       ¥1.80   18.0%",
        "    killed                  30 min 0 s       ¥1.80   18.0%",
        "  idle                     16 min 40 s       ¥1.00   10.0%",
        "¥10.00 bought: 1 of 4 cells trained, 0 of 4 evaluations done",
        "money per trained cell: ¥10.00, including waste and idle time",
        "3 cells and 4 evaluations left: about 6 h 0 min, ¥21.60, without evaluations, none of which was measured yet",
        "budget ¥200.00, ¥190.00 left",
    ]


attempts = st.lists(
    st.tuples(
        st.sampled_from([("a/0",), ("a/1",), ("b/0",), ("a/0", "a/1"), ("a/0", "a/1", "b/0")]),
        st.integers(0, 1000),
        st.integers(0, 600),
        st.integers(0, 600),
        st.floats(0, 5000).map(lambda seconds: round(seconds, 3)),
        st.sampled_from(["killed", "completed", "host_oom", "stalled"]),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=120, deadline=None)
@given(attempts, st.integers(1, 4), st.booleans())
def test_sums_are_exact_for_any_history(
    history: list[tuple[tuple[str, ...], int, int, int, float, str, bool]], slots: int, stop: bool
) -> None:
    story = Story(study(backend={"slots": slots}))
    now, busy = 0.0, 0
    story.supervise(0)
    for number, (cells, first, kept_more, reached_more, wall, cause, is_open) in enumerate(history):
        story.start(f"a{number}", now, first, cells)
        busy += round(wall * 1000)
        if is_open and number == len(history) - 1:
            now = round(now + wall, 3)
            busy += round((now - story.rows[-1]["t"]) * 1000) - round(wall * 1000)
            continue
        now = round(now + wall, 3)
        story.end(f"a{number}", now, wall, first + kept_more + reached_more, first + kept_more, cause=cause)
    if stop:
        story.add(now, "cell_stopped", cell="a/0", reason="r", cause="bug")
    costs = story.count(now)
    assert costs.useful_ms + costs.wasted_ms + costs.idle_ms == costs.total_ms
    assert costs.useful_ms + costs.wasted_ms == busy
    assert sum(cell.useful_ms for cell in costs.cells.values()) == costs.useful_ms
    assert sum(cell.wasted_ms for cell in costs.cells.values()) == costs.wasted_ms
    assert sum(costs.wasted_by_cause.values()) == costs.wasted_ms
    assert min([0, costs.idle_ms, *(cell.useful_ms for cell in costs.cells.values())]) == 0
    assert min([0, *(cell.wasted_ms for cell in costs.cells.values())]) == 0
    assert abs(costs.total_ms - slots * round(now * 1000)) <= slots


@given(st.integers(0, 10**9), st.integers(1, 50))
def test_shares_add_up_exactly(milliseconds: int, count_of: int) -> None:
    parts = share(milliseconds, count_of)
    assert sum(parts) == milliseconds and max(parts) - min(parts) <= 1


def test_slots_that_stand_idle_are_forecast_too() -> None:
    story = Story(with_slots(4, seeds=1, conditions=[]))
    forecast = story.count(probed_rates={"a": 10.0, "b": 10.0}).forecast
    assert (forecast.busy_seconds, forecast.wall_seconds, forecast.billed_seconds) == (200, 100, 400)
    assert forecast.money == pytest.approx(0.4)


def test_cells_that_run_are_forecast_once() -> None:
    story = Story(with_slots(4, seeds=1, conditions=[]))
    story.start("a1", 0, cells=("a/0",))
    story.start("a2", 0, cells=("b/0",))
    forecast = story.count(now=0.0, probed_rates={"a": 10.0, "b": 10.0}).forecast
    assert (forecast.busy_seconds, forecast.wall_seconds, forecast.billed_seconds) == (200, 100, 400)


def test_missing_conditions_of_one_cell_are_forecast_as_one_evaluation_after_the_other() -> None:
    story = Story(with_slots(4, seeds=1, arms={"a": {}}, conditions=["id", "near", "far"]))
    story.start("a1", 0)
    story.end("a1", 100, 100.0, 1000, 1000, cause="completed")
    story.prove(100)
    story.start("a2", 100, work="evaluate", conditions=["id"])
    story.add(110, "eval_proven", cell="a/0", condition="id", episodes=3, parameter_hash="h", attempt="a2")
    story.end("a2", 110, 10.0, 0, 0, cause="completed")
    forecast = story.count(now=200.0).forecast
    assert (forecast.eval_cells, forecast.wall_seconds, forecast.billed_seconds) == (3, 30, 120)


@pytest.mark.parametrize(("pack_cells", "wall"), [(1, 100), (2, 100), (4, 200)])
def test_packs_are_forecast_to_run_side_by_side_and_not_their_cells(pack_cells: int, wall: float) -> None:
    """Two seeds of two arms that share a compile: four cells of 50 seconds in 4, 2 or 1 pack, on two slots."""
    arms = {"a": {}, "b": {"agent": {"behavior": {"entropy_coef": 0.1}}}}
    packed = {"trainer": "pwm", "task": "cheetah-run", "arms": arms, "pack_cells": pack_cells}
    story = Story(with_slots(2, seeds=2, conditions=[], **packed))
    forecast = story.count(probed_rates={"a": 20.0, "b": 20.0}).forecast
    assert (forecast.busy_seconds, forecast.wall_seconds, forecast.billed_seconds) == (200, wall, 2 * wall)


def with_slots(slots: int, **more: Any) -> Study:
    return study(backend={"slots": slots}, **more)


def test_other_slots_do_not_change_what_was_spent_before() -> None:
    story = Story(with_slots(2))
    story.supervise(0, 100)
    before = story.count(now=1000.0)
    assert before.total_ms == 2 * 100_000
    edited = StudyState.replay(story.rows)
    edited.redeclare(with_slots(8))
    assert count_money(edited, Moment(1000.0, "")).total_ms == before.total_ms
    assert spent_and_forecast(edited, Moment(1000.0, ""))[0] == pytest.approx(before.total_money)
    declaration = with_slots(8).model_dump(mode="json")
    story.add(1000, "declaration_changed", old_hash="h", new_hash="i", changes=[], declaration=declaration)
    story.supervise(1000, 1010)
    assert story.count(now=2000.0).total_ms == 2 * 100_000 + 8 * 10_000


def test_an_attempt_that_outlives_its_supervisor_keeps_its_slots() -> None:
    story = Story(with_slots(2))
    story.supervise(0)
    story.start("a1", 5)
    story.add(10, "supervisor_ended", reason="done")
    declaration = with_slots(4).model_dump(mode="json")
    story.add(20, "declaration_changed", old_hash="h", new_hash="i", changes=[], declaration=declaration)
    story.supervise(30, 40)
    story.end("a1", 50, 45.0, 1000, 1000, cause="completed")
    assert story.count(now=100.0).total_ms == 1000 * (2 * 30 + 4 * 10 + 2 * 10)


def test_an_evaluation_that_was_stopped_still_shows_what_one_takes() -> None:
    story = Story(study(conditions=["id", "far", "farther"]))
    story.start("a1", 0, cells=("a/0", "b/0"), work="evaluate", conditions=["id", "far", "farther"])
    story.end("a1", 60, 60.0, 0, 0, cause="stopped_by_user")
    for cell in ("a/0", "b/0"):
        story.add(60, "eval_proven", cell=cell, condition="id", episodes=3, parameter_hash="0" * 64, attempt="a1")
    state = StudyState.replay(story.rows)
    assert state.totals.seconds_per_evaluation() == 30.0
