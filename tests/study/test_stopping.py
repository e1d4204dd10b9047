"""A stop is acknowledged in every phase, a probe outlives its supervisor safely, a copy never touches its original."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dreamproof.base.files import read_json
from dreamproof.runs.layout import AttemptFolder
from dreamproof.study.attempts.launch import works_elsewhere
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.process.processes import ProcessIdentity, is_alive
from dreamproof.testing.small_study import TRAINER, declare
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.long(50)

SLOW_START = (
    "import pathlib, sys, time\nrun = pathlib.Path(sys.argv[1])\n"
    "(run / 'starts.log').open('a').write('x')\n(run.parent / f'starts-{run.name}.log').open('a').write('x')\n"
    "time.sleep(600)\n"
)


def cli(*arguments: str | Path) -> subprocess.Popen[str]:
    """Starts a verb as a script does in the background: with SIGINT ignored."""
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [*ignoring, sys.executable, "-m", "dreamproof.cli.main", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def study_whose_probe_never_ends(folder: Path) -> Path:
    script = folder / "trainer.py"
    script.write_text(SLOW_START)
    trainer = {"command": [sys.executable, str(script), "{run_dir}"]}
    return declare(folder, trainer=trainer, conditions=[], arms={"low": {"level": 1}}, seeds=1)


def probe_of(folder: Path) -> AttemptFolder:
    return AttemptFolder(folder / "results" / "small" / "probes" / "low" / "attempt")


def probe_process(folder: Path) -> ProcessIdentity | None:
    value = read_json(probe_of(folder).shim)
    return ProcessIdentity.read(value.get("child")) if isinstance(value, dict) else None


def test_a_stop_during_the_preflight_ends_the_probe_and_starts_nothing(tmp_path: Path) -> None:
    file = study_whose_probe_never_ends(tmp_path)
    run = cli("run", file, "--plain")
    wait_for(lambda: probe_process(tmp_path) is not None)
    probe = probe_process(tmp_path)
    stop = cli("stop", file)
    shown, errors = stop.communicate(timeout=HANG_SECONDS)
    assert stop.returncode == 0, errors
    assert "stopped" in shown
    _, errors = run.communicate(timeout=HANG_SECONDS)
    assert run.returncode == 130
    assert "during the preflight; nothing was started" in errors
    assert not is_alive(probe)
    ledger = (tmp_path / "results" / "small" / "ledger.jsonl").read_text()
    assert "stop_requested" in ledger and "attempt_started" not in ledger


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_signal_to_a_preflight_ends_its_probe(tmp_path: Path, verb: str) -> None:
    file = study_whose_probe_never_ends(tmp_path)
    process = cli(verb, file)
    wait_for(lambda: probe_process(tmp_path) is not None)
    probe = probe_process(tmp_path)
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 130 and not is_alive(probe)


def test_a_probe_whose_supervisor_was_killed_is_ended_before_the_next_one_starts(tmp_path: Path) -> None:
    file = study_whose_probe_never_ends(tmp_path)
    run = cli("run", file, "--plain")
    wait_for(lambda: probe_process(tmp_path) is not None)
    first = probe_process(tmp_path)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    assert is_alive(first), "the probe runs under a shim of its own"
    again = cli("run", file, "--plain")
    wait_for(lambda: probe_process(tmp_path) not in (None, first))
    assert not is_alive(first), "never two probes of one arm at a time"
    os.killpg(again.pid, signal.SIGINT)
    again.communicate(timeout=HANG_SECONDS)
    wait_for(lambda: not is_alive(probe_process(tmp_path)))


def held_study(folder: Path) -> Path:
    trainer = [sys.executable, str(TRAINER), "{run_dir}"]
    trainer += ["--step-seconds", "0.2", "--save-every", "5"]
    arms = {"low": {"level": 1}}
    return declare(folder, trainer={"command": trainer}, arms=arms, seeds=1, conditions=[], agent_steps=3000)


def steps(study: Path) -> int:
    log = study / "runs" / "low-seed0" / "steps.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_stop_of_a_copy_never_touches_the_original(tmp_path: Path) -> None:
    file = held_study(tmp_path)
    original, copy = tmp_path / "results" / "small", tmp_path / "copied"
    run = cli("run", file, "--plain", "--no-check")
    wait_for(lambda: steps(original) > 3)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    shutil.copytree(original, copy)
    stop = cli("stop", copy)
    _, errors = stop.communicate(timeout=HANG_SECONDS)
    assert stop.returncode == 0, errors
    shown, _ = cli("why", copy, "low/0").communicate(timeout=HANG_SECONDS)
    assert "the study folder was moved or copied while this attempt ran" in shown
    shutil.copytree(original, tmp_path / "second")
    shown, _ = cli("why", tmp_path / "second", "low/0").communicate(timeout=HANG_SECONDS)
    assert shown.startswith("low/0: dead,") and "next        dreamproof run " in shown
    shown, _ = cli("status", tmp_path / "second").communicate(timeout=HANG_SECONDS)
    assert "this is a copy: its open attempts belong to the original study" in shown
    before = steps(original)
    wait_for(lambda: steps(original) > before + 3)
    end = cli("stop", file)
    end.communicate(timeout=HANG_SECONDS)
    assert end.returncode == 0


def test_a_study_that_is_moved_while_it_runs_ends_its_attempts_and_continues_from_there(tmp_path: Path) -> None:
    file = held_study(tmp_path)
    before, after = tmp_path / "results" / "small", tmp_path / "moved"
    run = cli("run", file, "--plain", "--no-check")
    wait_for(lambda: steps(before) > 8)
    trainer = child_of(before)
    before.rename(after)
    _, errors = run.communicate(timeout=HANG_SECONDS)
    assert run.returncode == 2 and "was moved or replaced while attempts ran" in errors
    assert not (before / "ledger.jsonl").exists()
    wait_for(lambda: not is_alive(trainer))
    stop = cli("stop", after)
    shown, errors = stop.communicate(timeout=HANG_SECONDS)
    assert stop.returncode == 0, shown + errors


def test_an_attempt_that_was_ordered_elsewhere_is_recognised_after_a_move(tmp_path: Path) -> None:
    file = held_study(tmp_path)
    before, after = tmp_path / "results" / "small", tmp_path / "results" / "moved"
    run = cli("run", file, "--plain", "--no-check")
    wait_for(lambda: steps(before) > 3)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    opened = open_study(file)
    [attempt] = opened.state.open_attempts.values()
    assert not works_elsewhere(opened, attempt)
    before.rename(after)
    moved = open_study(after)
    assert works_elsewhere(moved, moved.state.attempts[attempt.name])
    stop = cli("stop", after)
    shown, errors = stop.communicate(timeout=HANG_SECONDS)
    assert stop.returncode == 0, shown + errors


def child_of(study: Path) -> ProcessIdentity | None:
    value = read_json(AttemptFolder(study / "attempts" / "a000001").shim)
    return ProcessIdentity.read(value.get("child")) if isinstance(value, dict) else None


def test_a_running_study_with_a_damaged_ledger_can_be_stopped(tmp_path: Path) -> None:
    file = held_study(tmp_path)
    study = tmp_path / "results" / "small"
    run = cli("run", file, "--plain", "--no-check")
    wait_for(lambda: steps(study) > 3)
    ledger = study / "ledger.jsonl"
    ledger.write_text(ledger.read_text().replace('"event"', '"evemt"', 1))
    stop = cli("stop", file)
    shown, errors = stop.communicate(timeout=HANG_SECONDS)
    assert stop.returncode == 0 and "stopped" in shown, errors
    run.communicate(timeout=HANG_SECONDS)
    assert run.returncode is not None
