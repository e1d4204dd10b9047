"""Progress counters alone say whether a run lives; logs, CPU use and the wall clock do not."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dreamproof.settings.study import Liveness
from dreamproof.study.liveness import Judgement, Sample, State, Watch

SETTINGS = Liveness(floor_seconds=60, compile_floor_seconds=900, gap_factor=5)


def look(seconds: float, steps: float, phase: str = "train", **more: object) -> Sample:
    values: dict[str, object] = {"alive": True, "process_state": "S", **more}
    return Sample(seconds, counters={"agent_steps": steps}, phase=phase, **values)  # type: ignore[arg-type]


def watched(samples: Iterable[Sample], settings: Liveness = SETTINGS) -> tuple[Watch, Judgement]:
    watch = Watch(settings)
    judged = Judgement(State.RUNNING, "")
    for sample in samples:
        judged = watch.observe(sample)
    return watch, judged


def steady(until: int, every: int = 10, rate: float = 20.0) -> list[Sample]:
    """A healthy run seen every `every` seconds."""
    return [look(second, rate * second) for second in range(0, until, every)]


def test_a_run_that_progresses_is_running_and_says_by_what() -> None:
    _, judged = watched(steady(200))
    assert judged.state is State.RUNNING
    assert judged.reason == "agent_steps grew to 3,800 0.0 s ago (limit 1 min 0 s)"


def test_a_run_that_logs_every_thousand_seconds_but_beats_is_running() -> None:
    watch = Watch(SETTINGS)
    for second in range(0, 4000, 10):
        counters = {"agent_steps": 20.0 * second, "metric_rows": second // 1000}
        judged = watch.observe(Sample(second, True, counters, process_state="R"))
        assert judged.state is State.RUNNING


def test_counters_that_move_rarely_are_learned_and_not_taken_for_a_stall() -> None:
    watch = Watch(SETTINGS)
    states = {watch.observe(look(second, second // 300)).state for second in range(0, 6000, 10)}
    assert states == {State.RUNNING}
    assert watch.limit_seconds("train") == pytest.approx(1500, abs=60)


def test_a_full_core_without_progress_is_a_stall() -> None:
    watch, _ = watched(steady(200))
    judged = [watch.observe(look(190 + second, 3800, cpu_seconds=float(second))) for second in range(1, 80)]
    assert [entry.state for entry in judged].index(State.STALLED) == 59
    assert (
        judged[-1].reason == "no counter grew for 1 min 19 s in phase train (limit 1 min 0 s); CPU busy (99% of a core)"
    )


def test_an_idle_core_with_progress_is_no_stall_and_without_it_is_one() -> None:
    watch = Watch(SETTINGS)
    for second in range(0, 600, 10):
        assert watch.observe(look(second, second, cpu_seconds=0.0)).state is State.RUNNING
    judged = [watch.observe(look(590 + second, 590, cpu_seconds=0.0)) for second in (30, 61)]
    assert [entry.state for entry in judged] == [State.RUNNING, State.STALLED]
    assert "CPU idle" in judged[-1].reason


def test_a_stopped_process_is_stalled_at_once_and_its_stop_teaches_nothing() -> None:
    watch, _ = watched(steady(200))
    judged = watch.observe(look(191, 3800, process_state="T"))
    assert (judged.state, judged.reason) == (State.STALLED, "its process is stopped by a signal (state T)")
    watch.observe(look(5000, 3800, process_state="T"))
    assert watch.observe(look(5001, 3820)).state is State.RUNNING
    assert watch.limit_seconds("train") == 60


@pytest.mark.parametrize("fields", [{"alive": False}, {"process_state": "Z"}])
def test_a_process_that_is_gone_is_dead(fields: dict[str, object]) -> None:
    watch, _ = watched(steady(100))
    assert watch.observe(look(91, 1800, **fields)).state is State.DEAD


def test_done_and_gone_is_finished() -> None:
    watch, _ = watched(steady(100))
    assert watch.observe(look(92, 1800, phase="done", alive=False)).state is State.FINISHED
    assert watch.observe(look(92, 1800, finished=True)).state is State.FINISHED


def test_compiling_has_its_own_patience() -> None:
    watch = Watch(SETTINGS)
    assert watch.observe(look(0, 0, phase="compile")).state is State.RUNNING
    assert watch.observe(look(899, 0, phase="compile")).state is State.RUNNING
    assert watch.observe(look(901, 0, phase="compile")).state is State.STALLED


def test_a_new_phase_is_progress_and_each_phase_learns_its_own_gap() -> None:
    watch = Watch(SETTINGS)
    second = 0.0
    for turn in range(5):
        for _ in range(10):
            second += 1
            watch.observe(look(second, second * 10))
        watch.observe(look(second + 1, second * 10, phase="evaluate"))
        second += 200
        assert watch.observe(look(second, second * 10)).state is State.RUNNING, turn
    assert watch.gaps["evaluate"] == pytest.approx(200, abs=2)
    assert watch.limit_seconds("evaluate") == pytest.approx(1000, abs=10)
    assert watch.limit_seconds("train") == 60


def test_what_sisters_showed_is_known_from_the_start() -> None:
    assert Watch(SETTINGS).limit_seconds("train") == 900
    assert Watch(SETTINGS, {"train": 2.0}).limit_seconds("train") == 60
    assert Watch(SETTINGS, {"train": 100.0}).limit_seconds("train") == 500


def test_a_run_at_less_than_half_its_own_speed_is_slow() -> None:
    watch, _ = watched(steady(600))
    states = [watch.observe(look(590 + 10 * turn, 11800 + 50 * turn)) for turn in range(1, 20)]
    assert states[-1].state is State.SLOW
    assert states[-1].reason == "5.0 agent steps/s, it made 20.0 before"


def test_a_run_at_less_than_half_the_speed_of_its_sisters_is_slow() -> None:
    watch, _ = watched(steady(200))
    assert watch.observe(look(200, 4000), sister_rates=[50.0, 45.0, 60.0]).state is State.SLOW
    assert watch.observe(look(201, 4020), sister_rates=[30.0]).state is State.RUNNING


def test_evaluation_between_training_does_not_make_a_run_slow() -> None:
    watch = Watch(SETTINGS)
    second, steps = 0.0, 0.0
    for _ in range(10):
        for _ in range(15):
            second, steps = second + 10, steps + 200
            assert watch.observe(look(second, steps)).state is State.RUNNING
        for _ in range(30):
            second += 10
            assert watch.observe(look(second, steps, phase="evaluate")).state is State.RUNNING


def test_a_resumed_run_that_counts_from_its_checkpoint_is_progress() -> None:
    watch = Watch(SETTINGS, {"train": 1.0})
    watch.observe(look(0, 5000, phase="start"))
    for second in range(1, 200):
        judged = watch.observe(look(second, 4000 + second))
        assert judged.state is State.RUNNING
    assert judged.reason.startswith("agent_steps grew to 4,199")


@given(st.lists(st.floats(0.1, 59.0), min_size=1, max_size=40), st.floats(-1e9, 1e9))
def test_gaps_below_the_floor_are_never_a_stall_wherever_the_clock_starts(gaps: list[float], start: float) -> None:
    watch = Watch(SETTINGS, {"train": 0.1})
    second = start
    for steps, gap in enumerate(gaps):
        second += gap
        assert watch.observe(look(second, steps)).state in (State.RUNNING, State.SLOW)


@given(st.floats(0.1, 100.0), st.floats(1.0, 1000.0), st.booleans())
def test_silence_beyond_the_limit_is_always_a_stall(gap: float, beyond: float, busy: bool) -> None:
    watch = Watch(SETTINGS)
    for turn in range(6):
        watch.observe(look(turn * gap, turn, cpu_seconds=0.0))
    limit = watch.limit_seconds("train")
    judged = watch.observe(look(5 * gap + limit + beyond, 5, cpu_seconds=beyond if busy else 0.0))
    assert judged.state is State.STALLED
    assert judged.silent_seconds >= limit
    assert limit == pytest.approx(max(60.0, 5 * gap))


@given(st.lists(st.tuples(st.floats(0, 500), st.integers(0, 3), st.sampled_from("RSTD")), max_size=30))
def test_every_judgement_has_a_reason_and_a_clock_that_goes_back_does_no_harm(
    steps: list[tuple[float, int, str]],
) -> None:
    watch = Watch(SETTINGS)
    for second, count, letter in steps:
        judged = watch.observe(look(second, count, process_state=letter))
        assert judged.reason
        assert judged.silent_seconds >= 0
