"""`run` and `stop` with real processes: killed, doubled, detached, hung up; nothing lost, nothing repeated."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.errors import ExitCode
from dreamproof.runs.layout import StudyFolder
from dreamproof.study.ledger import lease
from dreamproof.study.ledger.lease import living_holder
from dreamproof.testing.small_study import COMMAND, QUICK, TRAINER, declare
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.long(60)


def folder_of(file: Path) -> StudyFolder:
    return StudyFolder(file.parent / "results" / file.stem)


def rows_of(file: Path, event: str) -> list[dict[str, Any]]:
    lines = folder_of(file).ledger.read_text().splitlines() if folder_of(file).ledger.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return [row for row in rows if row["event"] == event]


def held_study(folder: Path, **changes: Any) -> Path:
    """Two cells that wait after six steps until `release`."""
    command = [sys.executable, str(TRAINER), "{run_dir}", "--save-every", "2", "--hold-at", "6"]
    fixed: dict[str, Any] = {"arms": {"low": {}}, "conditions": [], "trainer": {"command": command}}
    return declare(folder, **{**fixed, **changes})


def release(file: Path) -> None:
    (folder_of(file).root / "continue").touch()


@pytest.fixture
def spawn() -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts a run in a process of its own; what is left of it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(file: Path, *arguments: str, **more: Any) -> "subprocess.Popen[bytes]":
        log = file.with_suffix(".log").open("ab")
        with log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "start_new_session": True, **more}
            process = subprocess.Popen([*COMMAND, "run", str(file), *QUICK, *arguments], **options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def steps_by_process(file: Path, cell: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in (folder_of(file).runs / cell / "steps.log").read_text().splitlines():
        process, step = line.split()
        found.setdefault(process, []).append(int(step))
    return found


def test_17_of_20_cells_then_seed_2_is_named_missing_and_a_plain_run_trains_exactly_three(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    arms = {"baseline": {"level": 0}, "u_only": {"level": 1}, "cert_only": {"level": 2}, "full": {"level": 3}}
    file = declare(tmp_path, arms=arms, seeds=5, agent_steps=5, conditions=[], backend={"slots": 6})
    assert dreamproof("run", file, *QUICK, "--seeds", "0,1").code == 0
    assert dreamproof("run", file, *QUICK, "--seeds", "2", "--arms", "baseline").code == 0
    shown = dreamproof("run", file, *QUICK, "--seeds", "3,4")
    assert shown.code == 0
    status = dreamproof("status", file).output
    assert "17/20 proven" in status
    for arm in ("u_only", "cert_only", "full"):
        assert f"not proven  train {arm}: seeds 2\n" in status
    assert "train baseline" not in status
    before = len(rows_of(file, "attempt_started"))
    assert dreamproof("run", file, *QUICK).code == 0
    trained = [row["cells"] for row in rows_of(file, "attempt_started")[before:]]
    assert sorted(trained) == [["cert_only/2"], ["full/2"], ["u_only/2"]]
    assert "20/20 proven" in dreamproof("status", file).output


def test_a_killed_supervisor_is_followed_by_one_that_adopts_its_attempts(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = held_study(tmp_path)
    supervisor = spawn(file)
    wait_for(lambda: len(list(folder_of(file).runs.glob("*/heartbeat.json"))) == 2)
    supervisor.kill()
    supervisor.wait()
    assert "attempts run without a supervisor" in dreamproof("status", file).output
    release(file)
    assert dreamproof("run", file, *QUICK).code == 0
    assert [row["cause"] for row in rows_of(file, "attempt_ended")] == ["completed", "completed"]
    for cell in ("low-seed0", "low-seed1"):
        assert list(steps_by_process(file, cell).values()) == [list(range(1, 21))]


def test_a_killed_trainer_resumes_from_its_last_checkpoint(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = held_study(tmp_path, seeds=1)
    supervisor = spawn(file)
    run = folder_of(file).runs / "low-seed0"
    wait_for(lambda: len(list(run.glob("checkpoints/step-*"))) >= 2)
    child = json.loads((folder_of(file).attempts / "a000001" / "shim.json").read_text())["child"]["process_id"]
    os.kill(child, signal.SIGKILL)
    release(file)
    assert supervisor.wait(HANG_SECONDS) == 0
    first, second = steps_by_process(file, "low-seed0").values()
    assert second[0] - 1 == rows_of(file, "attempt_started")[1]["from_agent_steps"]["low/0"]
    assert first[-1] - 2 <= second[0] - 1 <= first[-1]
    shown = dreamproof("why", file, "low/0").output
    assert "train: killed" in shown
    assert "    | signal 9 (SIGKILL)" in shown


def test_of_two_runs_at_once_one_is_refused(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = held_study(tmp_path, seeds=1)
    first = spawn(file)
    wait_for(lambda: living_holder(folder_of(file).lease))
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.BUSY
    assert f"supervised by process {first.pid}" in shown.errors
    release(file)
    assert first.wait(HANG_SECONDS) == 0
    assert len(rows_of(file, "attempt_started")) == 1


def test_stop_saves_and_a_later_run_continues_without_repeating(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = held_study(tmp_path)
    supervisor = spawn(file)
    wait_for(lambda: len(list(folder_of(file).runs.glob("*/checkpoints/step-*"))) >= 2)
    shown = dreamproof("stop", file)
    assert shown.code == 0, shown.errors
    assert supervisor.wait(HANG_SECONDS) == ExitCode.INTERRUPTED
    assert [row["cause"] for row in rows_of(file, "attempt_ended")] == ["stopped_by_user"] * 2
    release(file)
    assert dreamproof("run", file, *QUICK).code == 0
    for cell in ("low-seed0", "low-seed1"):
        steps = [step for part in steps_by_process(file, cell).values() for step in part]
        assert steps == list(range(1, 21))


def test_stop_also_ends_attempts_whose_supervisor_is_gone(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = held_study(tmp_path)
    supervisor = spawn(file)
    wait_for(lambda: len(list(folder_of(file).runs.glob("*/heartbeat.json"))) == 2)
    supervisor.kill()
    supervisor.wait()
    shown = dreamproof("stop", file)
    assert "stopped; no attempt of this study is running" in shown.output
    assert [row["cause"] for row in rows_of(file, "attempt_ended")] == ["stopped_by_user"] * 2
    assert dreamproof("stop", file).output == "nothing is running\n"


def test_a_stop_asks_the_supervisor_that_took_the_study_in_between(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = held_study(tmp_path, seeds=1)
    supervisor = spawn(file)
    wait_for(lambda: list(folder_of(file).runs.glob("*/heartbeat.json")))
    answers = iter([None])
    monkeypatch.setattr(lease, "living_holder", lambda path: next(answers, living_holder(path)))
    assert dreamproof("stop", file).code == 0
    assert supervisor.wait(HANG_SECONDS) == ExitCode.INTERRUPTED


def test_ctrl_c_saves_and_stops(spawn: Callable[..., Any], tmp_path: Path) -> None:
    file = held_study(tmp_path, seeds=1)
    supervisor = spawn(file)
    wait_for(lambda: list(folder_of(file).runs.glob("*/heartbeat.json")))
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(HANG_SECONDS) == ExitCode.INTERRUPTED
    assert [row["cause"] for row in rows_of(file, "attempt_ended")] == ["stopped_by_user"]
    assert [row["by"] for row in rows_of(file, "stop_requested")] == ["Ctrl-C"]


def test_sigterm_ends_the_supervisor_alone(
    spawn: Callable[..., Any], dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = held_study(tmp_path, seeds=1)
    supervisor = spawn(file)
    wait_for(lambda: list(folder_of(file).runs.glob("*/heartbeat.json")))
    supervisor.terminate()
    assert supervisor.wait(HANG_SECONDS) == ExitCode.INTERRUPTED
    assert rows_of(file, "attempt_ended") == []
    release(file)
    assert dreamproof("run", file, *QUICK).code == 0
    assert len(steps_by_process(file, "low-seed0")) == 1


def test_a_polite_kill_during_the_preflight_leaves_no_probe_behind(tmp_path: Path) -> None:
    script = "import os, sys, time; open(sys.argv[1] + '/pid', 'w').write(str(os.getpid())); time.sleep(1200)"
    trainer = {"command": [sys.executable, "-c", script, "{run_dir}"]}
    file = declare(tmp_path, trainer=trainer, conditions=[])
    supervisor = subprocess.Popen([*COMMAND, "run", str(file), "--plain"], start_new_session=True)
    [pid] = wait_for(lambda: [path for path in folder_of(file).root.glob("probes/*/pid") if path.read_text()])
    supervisor.terminate()
    assert supervisor.wait(HANG_SECONDS) == ExitCode.INTERRUPTED
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_closed_terminal_ends_nothing(spawn: Callable[..., Any], tmp_path: Path) -> None:
    file = held_study(tmp_path, seeds=1)
    master, terminal = pty.openpty()
    arguments = [*COMMAND, "run", str(file), "--no-check", "--no-report"]
    supervisor = subprocess.Popen(arguments, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    try:
        wait_for(lambda: list(folder_of(file).runs.glob("*/heartbeat.json")))
        os.close(master)
        supervisor.send_signal(signal.SIGHUP)
        release(file)
        wait_for(lambda: rows_of(file, "supervisor_ended"))
        assert [row["cause"] for row in rows_of(file, "attempt_ended")] == ["completed"]
    finally:
        supervisor.kill()
        supervisor.wait()


def test_a_detached_run_works_on_after_its_command_has_ended(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = held_study(tmp_path, seeds=1, agent_steps=5)
    shown = dreamproof("run", file, "--detach", "--no-check", "--no-report")
    assert shown.code == 0
    assert "runs the study" in shown.output
    wait_for(lambda: rows_of(file, "supervisor_ended"))
    assert len(rows_of(file, "train_proven")) == 1
    wait_for(lambda: "everything is proven" in folder_of(file).supervisor_log.read_text())


def test_stopped_cells_are_tried_again_when_a_person_says_so(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = declare(tmp_path, arms={"low": {}}, seeds=1, conditions=[])
    run = folder_of(file).runs / "low-seed0"
    run.mkdir(parents=True)
    (run / "fault.json").write_text(json.dumps({"at": 7, "kind": "exception", "times": 2}))
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.GAP_REMAINS
    assert "stopped     low/0: failed 2 times with the same cause: bug" in shown.output
    assert dreamproof("run", file, *QUICK).code == ExitCode.GAP_REMAINS
    assert dreamproof("run", file, *QUICK, "--retry-stopped").code == 0
    causes = Counter(row["cause"] for row in rows_of(file, "attempt_ended"))
    assert causes == {"bug": 2, "completed": 1}


def test_a_run_folder_that_may_not_be_written_is_named(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = declare(tmp_path)
    folder_of(file).root.mkdir(parents=True)
    folder_of(file).runs.write_text("a file where a folder should be")
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.BAD_INPUT
    assert "cannot be written" in shown.errors
    assert "\n  hint: " in shown.errors


def test_a_huge_log_without_lines_and_with_arbitrary_bytes_breaks_nothing(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    noisy = "import os, sys; [os.write(1, bytes(range(128, 256)) * 8192) for _ in range(64)]; sys.exit(9)"
    file = declare(
        tmp_path, arms={"low": {}}, seeds=1, conditions=[], trainer={"command": [sys.executable, "-c", noisy]}
    )
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.GAP_REMAINS
    assert (folder_of(file).attempts / "a000001" / "output.log").stat().st_size == 64 << 20
    assert [row["cause"] for row in rows_of(file, "attempt_ended")] == ["unknown", "unknown"]
    assert "exit code 9" in dreamproof("why", file, "low/0").output
