"""Progress counters say whether a run progresses; a kill needs far stronger evidence than silence on a busy machine."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dreamproof.settings.running import Liveness
from dreamproof.study.diagnosis.liveness import Activity, Judgement, KillReason, Sample, State, Watch, pressure_of

SETTINGS = Liveness(
    stalled_after_seconds=60,
    compile_stalled_after_seconds=900,
    gap_factor=5,
    kill_stopped_after_seconds=1800,
    kill_idle_after_seconds=1200,
    kill_silent_after_seconds=3600,
)
CORES = 2


def look(seconds: float, steps: float, phase: str = "train", **more: object) -> Sample:
    values: dict[str, object] = {"alive": True, "process_state": "S", **more}
    return Sample(seconds, counters={"agent_steps": steps}, phase=phase, **values)  # type: ignore[arg-type]


def using(seconds: float, cpu: float = 0.0, others: float = 0.0, **more: object) -> Activity:
    """Processes that used `cpu` cores since the start while others used `others`."""
    machine = seconds * (cpu + others)
    return Activity(seconds * cpu, machine_cpu_seconds=machine, cores=CORES, **more)  # type: ignore[arg-type]


def watched(samples: Iterable[Sample]) -> tuple[Watch, Judgement]:
    watch = Watch(SETTINGS)
    judged = Judgement(State.RUNNING, "")
    for sample in samples:
        judged = watch.observe(sample)
    return watch, judged


def steady(until: int, every: int = 10, rate: float = 20.0) -> list[Sample]:
    """A healthy run seen every `every` seconds."""
    return [look(second, rate * second) for second in range(0, until, every)]


def silence(watch: Watch, begin: int, seconds: int, phase: str = "train", **use: float) -> list[Judgement]:
    """A run that was at step 1000 and stays there, seen every ten seconds."""
    return [
        watch.observe(look(second, 1000, phase, activity=using(second, **use)))
        for second in range(begin, begin + seconds, 10)
    ]


def killed_after(judged: list[Judgement]) -> int | None:
    """Seconds after which the first kill was due."""
    return next((10 * index for index, one in enumerate(judged) if one.kill is not None), None)


def test_a_run_that_progresses_is_running_and_says_by_what() -> None:
    _, judged = watched(steady(200))
    assert judged.state is State.RUNNING and judged.kill is None
    assert judged.reason == "agent_steps grew to 3,800 0.0 s ago"


def test_a_run_that_logs_every_thousand_seconds_but_beats_is_running() -> None:
    watch = Watch(SETTINGS)
    for second in range(0, 4000, 10):
        counters = {"agent_steps": 20.0 * second, "metric_rows": second // 1000}
        judged = watch.observe(Sample(second, True, counters, process_state="R"))
        assert judged.state is State.RUNNING


def test_counters_that_move_rarely_are_learned_and_not_shown_as_a_stall() -> None:
    watch = Watch(SETTINGS)
    states = [watch.observe(look(second, second // 300)).state for second in range(0, 6000, 10)]
    assert State.STALLED not in states[60:]
    assert watch.stalled_after_seconds("train") == pytest.approx(1500, abs=60)


def test_a_stall_is_shown_long_before_anything_is_killed() -> None:
    watch, _ = watched(steady(200))
    judged = silence(watch, 200, 3000, cpu=1.0)
    assert judged[-1].state is State.STALLED
    assert all(one.kill is None for one in judged)
    assert "killed after 1 h 0 min; CPU busy (100% of one core)" in judged[-1].reason


def test_spinning_without_progress_is_killed_at_the_hard_limit() -> None:
    judged = silence(Watch(SETTINGS), 0, 4000, cpu=1.0)
    assert killed_after(judged) == pytest.approx(3600, abs=20)
    assert judged[-1].kill is KillReason.SILENT


def test_a_deadlock_is_killed_earlier_because_nothing_is_used() -> None:
    judged = silence(Watch(SETTINGS), 0, 2000)
    assert killed_after(judged) == pytest.approx(1200, abs=30)
    assert judged[-1].kill is KillReason.DEADLOCK and judged[-1].reason.endswith("a deadlock")


@pytest.mark.parametrize("sign", [{"is_runnable": True}, {"gpu_is_busy": True}])
def test_a_process_that_waits_for_a_core_a_disk_or_a_gpu_is_no_deadlock(sign: dict[str, bool]) -> None:
    watch = Watch(SETTINGS)
    judged = [watch.observe(look(second, 1, activity=using(second, **sign))) for second in range(0, 3000, 10)]
    assert all(one.kill is None for one in judged)


def test_the_heartbeat_of_a_thread_is_no_use_of_the_machine() -> None:
    watch = Watch(SETTINGS)
    for second in range(0, 2000, 10):
        activity = using(second, cpu=0.005, io_bytes=second * 600.0)
        judged = watch.observe(look(second, 1, activity=activity))
    assert judged.kill is KillReason.DEADLOCK


def test_a_download_without_progress_is_no_deadlock() -> None:
    watch = Watch(SETTINGS)
    judged = [watch.observe(look(s, 1, activity=using(s, io_bytes=s * 1e6))) for s in range(0, 3000, 10)]
    assert all(one.kill is None for one in judged)


def test_time_counts_less_while_other_work_holds_the_cores() -> None:
    judged = silence(Watch(SETTINGS), 0, 12_000, cpu=0.2, others=1.8)
    assert all(one.kill is None for one in judged)
    assert "the machine is 10.0 times slower: other work" in judged[-1].reason
    assert killed_after(silence(Watch(SETTINGS), 0, 40_000, cpu=0.2, others=1.8)) == pytest.approx(36_000, rel=0.01)


def test_pressure_is_what_others_leave_and_its_own_threads_are_no_pressure() -> None:
    quiet = Activity(0.0, cores=8)
    assert pressure_of(quiet, others_cpu=0.0) == 1.0
    assert pressure_of(quiet, others_cpu=4.0) == 2.0
    assert pressure_of(quiet, others_cpu=8.0) == 10.0
    assert pressure_of(Activity(0.0, cores=8, stalled_share=0.75), others_cpu=0.0) == 4.0
    watch = Watch(SETTINGS)
    judged = silence(watch, 0, 3700, cpu=2.0)
    assert killed_after(judged) == pytest.approx(3600, abs=20)


def test_three_quick_beats_and_then_a_compile_of_ten_minutes_kill_nothing() -> None:
    for phase in ("train", "evaluate", "save", "compile", "start"):
        watch = Watch(SETTINGS, {phase: 0.1})
        for second in range(3):
            watch.observe(look(second, second, phase))
        assert all(one.kill is None for one in silence(watch, 10, 600, phase, cpu=1.5)), phase


def test_limits_never_shrink_because_earlier_gaps_were_short() -> None:
    assert Watch(SETTINGS, {"train": 0.1}).kill_after_seconds("train") == 3600
    assert Watch(SETTINGS, {"train": 1000.0}).kill_after_seconds("train") == 5000


def test_time_in_which_nobody_watched_is_no_silence() -> None:
    """A suspended laptop, a stopped supervisor, a disk that blocks it for an hour."""
    watch, _ = watched(steady(200))
    for hour in range(1, 30):
        judged = watch.observe(look(3600 * hour, 3800, activity=using(3600 * hour)))
        assert judged.kill is None
    assert judged.silent_seconds <= 29 * 30.0 + 10
    assert watch.progress_age_seconds(3600 * 29) == 3600 * 29 - 190, "what is shown counts all time"


def test_one_look_after_a_pause_of_the_supervisor_kills_nothing_however_short_the_limit_is() -> None:
    watch = Watch(Liveness(stalled_after_seconds=2, compile_stalled_after_seconds=6, kill_silent_after_seconds=6))
    watch.observe(look(0, 1000))
    judged = [watch.observe(look(8 + second, 1000)) for second in range(10)]
    assert judged[0].state is State.STALLED and judged[0].kill is None
    assert judged[-1].kill is KillReason.SILENT


def test_a_stopped_process_is_stalled_at_once_and_killed_only_after_half_an_hour() -> None:
    watch, _ = watched(steady(200))
    judged = watch.observe(look(191, 3800, process_state="T"))
    assert judged.state is State.STALLED and judged.kill is None
    assert judged.reason == "its process is stopped by a signal (state T); to be killed after 30 min 0 s"
    later = [watch.observe(look(191 + second, 3800, process_state="T")) for second in range(10, 1900, 10)]
    assert killed_after(later) == pytest.approx(1790, abs=20)
    assert later[-1].kill is KillReason.STOPPED


def test_a_process_that_is_continued_after_a_minute_progresses_and_its_stop_is_no_gap() -> None:
    watch, _ = watched(steady(200))
    for second in range(191, 251):
        assert watch.observe(look(second, 3800, process_state="T")).kill is None
    assert watch.observe(look(252, 3820)).state is State.RUNNING
    assert watch.stalled_after_seconds("train") == 60


@pytest.mark.parametrize("behind_a_wrapper", [False, True])
def test_the_age_of_the_last_progress_counts_the_time_in_which_the_process_is_stopped(behind_a_wrapper: bool) -> None:
    watch, _ = watched(steady(200))
    assert Watch(SETTINGS).progress_age_seconds(200) is None
    shown = {"activity": using(0, is_stopped=True)} if behind_a_wrapper else {"process_state": "T"}
    for second in range(191, 251):
        watch.observe(look(second, 3800, **shown))
    assert watch.silent_seconds == 0, "a stopped process is not silent"
    assert watch.progress_age_seconds(255) == 65
    watch.observe(look(260, 3820))
    assert watch.progress_age_seconds(262) == 2


@pytest.mark.parametrize("fields", [{"alive": False}, {"process_state": "Z"}])
def test_a_process_that_is_gone_is_dead(fields: dict[str, object]) -> None:
    watch, _ = watched(steady(100))
    assert watch.observe(look(91, 1800, **fields)).state is State.DEAD


def test_done_and_gone_is_finished() -> None:
    watch, _ = watched(steady(100))
    assert watch.observe(look(92, 1800, phase="done", alive=False)).state is State.FINISHED
    assert watch.observe(look(92, 1800, finished=True)).state is State.FINISHED


def test_every_phase_has_its_own_hard_limit() -> None:
    limits = Liveness.model_validate({"kill_silent_after_seconds": {"evaluate": 100, "compile": 7200}})
    watch = Watch(limits)
    assert [watch.kill_after_seconds(phase) for phase in ("train", "evaluate", "compile")] == [3600, 120, 7200]
    one = Liveness.model_validate({"kill_silent_after_seconds": 500})
    assert {Watch(one).kill_after_seconds(phase) for phase in ("train", "evaluate", "save")} == {500}


def test_names_of_older_study_files_are_still_read() -> None:
    old = Liveness.model_validate({"floor_seconds": 60, "compile_floor_seconds": 120, "gap_factor": 4})
    assert (old.stalled_after_seconds, old.compile_stalled_after_seconds) == (60, 120)
    assert old.kill_silent_after_seconds.train == 3600


def test_every_kill_and_every_false_alarm_lengthens_the_limits() -> None:
    assert Watch(SETTINGS, factor=4.0).kill_after_seconds("train") == 14_400
    judged = silence(Watch(SETTINGS, factor=2.0), 0, 4000)
    assert killed_after(judged) == pytest.approx(2400, abs=30)


def test_a_new_phase_is_progress_and_each_phase_learns_its_own_gap() -> None:
    watch = Watch(SETTINGS)
    second = 0.0
    for turn in range(5):
        for _ in range(10):
            second += 1
            watch.observe(look(second, second * 10))
        steps = second * 10
        for _ in range(11):
            watch.observe(look(second, steps, phase="evaluate"))
            second += 20
        assert watch.observe(look(second, second * 10)).state is State.RUNNING, turn
    assert watch.gaps["evaluate"] == pytest.approx(220, abs=20)
    assert watch.stalled_after_seconds("evaluate") == pytest.approx(1100, abs=100)
    assert watch.stalled_after_seconds("train") == 60


def test_a_run_at_less_than_half_its_own_speed_is_slow() -> None:
    watch, _ = watched(steady(600))
    states = [watch.observe(look(590 + 10 * turn, 11800 + 50 * turn)) for turn in range(1, 20)]
    assert states[-1].state is State.SLOW
    assert states[-1].reason == "5.0 agent steps/s, 20.0 before"


def test_a_run_at_less_than_half_the_speed_of_others_is_slow_and_never_killed_for_it() -> None:
    watch, _ = watched(steady(200))
    judged = watch.observe(look(200, 4000), other_rates=[50.0, 45.0, 60.0])
    assert judged.state is State.SLOW and judged.kill is None
    assert judged.reason == "20.0 agent steps/s, other runs of its arm average 50.0 steps/s"
    assert watch.observe(look(201, 4020), other_rates=[30.0]).state is State.RUNNING


def test_a_run_that_becomes_ten_times_slower_late_is_never_killed() -> None:
    watch = Watch(SETTINGS)
    steps = 0.0
    for second in range(20_000):
        steps += 10.0 if second < 2000 else (100.0 if second % 1000 == 0 else 0.0)
        assert watch.observe(look(second, steps)).kill is None


def test_evaluation_between_training_does_not_make_a_run_slow() -> None:
    watch = Watch(SETTINGS)
    second, steps = 0.0, 0.0
    for _ in range(10):
        for _ in range(15):
            second, steps = second + 10, steps + 200
            assert watch.observe(look(second, steps)).state is State.RUNNING
        for beat in range(5):
            second += 10
            assert watch.observe(look(second, steps, phase="evaluate")).state is State.RUNNING, beat


def test_a_resumed_run_that_counts_from_its_checkpoint_is_progress() -> None:
    watch = Watch(SETTINGS, {"train": 1.0})
    watch.observe(look(0, 5000, phase="start"))
    for second in range(1, 200):
        judged = watch.observe(look(second, 4000 + second))
        assert judged.state is State.RUNNING
    assert judged.reason.startswith("agent_steps grew to 4,199")


def test_a_counter_that_goes_up_and_down_for_ever_is_no_progress() -> None:
    watch = Watch(SETTINGS)
    judged = [watch.observe(look(s, 100 + s // 10 % 2, activity=using(s, cpu=1.0))) for s in range(0, 4000, 10)]
    assert judged[-1].kill is KillReason.SILENT


def test_the_counters_of_the_next_command_may_begin_again() -> None:
    watch = Watch(SETTINGS)
    for process in range(1, 30):
        for second in range(0, 300, 10):
            judged = watch.observe(look(300 * process + second, second, process_id=process))
            assert judged.state is State.RUNNING


@given(st.lists(st.floats(0.1, 59.0), min_size=1, max_size=40), st.floats(-1e9, 1e9))
def test_gaps_below_the_floor_are_never_a_stall_wherever_the_clock_starts(gaps: list[float], start: float) -> None:
    watch = Watch(SETTINGS, {"train": 0.1})
    second = start
    for steps, gap in enumerate(gaps):
        second += gap
        assert watch.observe(look(second, steps)).state in (State.RUNNING, State.SLOW)


@given(st.lists(st.tuples(st.floats(0, 500), st.integers(0, 3), st.sampled_from("RSTD")), max_size=30))
def test_every_judgement_has_a_reason_and_a_clock_that_goes_back_breaks_nothing(
    steps: list[tuple[float, int, str]],
) -> None:
    watch = Watch(SETTINGS)
    for second, count, letter in steps:
        judged = watch.observe(look(second, count, process_state=letter, activity=using(second)))
        assert judged.reason
        assert judged.silent_seconds >= 0


@settings(max_examples=20)
@given(st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.booleans(), st.integers(1, 3))
def test_silence_is_always_killed_in_the_documented_time(cpu: float, others: float, gpu: bool, factor: int) -> None:
    watch = Watch(SETTINGS, factor=float(factor))
    limit = 10 * 3600 * factor + 60
    for second in range(0, limit + 30, 30):
        judged = watch.observe(look(second, 7, activity=using(second, cpu, others, gpu_is_busy=gpu)))
        if judged.kill is not None:
            return
    raise AssertionError(f"not killed within {limit} s")


def test_a_process_that_is_stopped_behind_a_shell_is_stalled_and_killed_as_stopped() -> None:
    watch, _ = watched(steady(60))
    stopped = silence(watch, 60, int(SETTINGS.kill_stopped_after_seconds) + 60, is_stopped=True)
    assert stopped[1].state is State.STALLED and "state T" in stopped[1].reason
    assert killed_after(stopped) is not None and stopped[-1].kill is KillReason.STOPPED
    assert watch.observe(look(10_000, 5000)).state is State.RUNNING
