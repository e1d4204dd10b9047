"""What every backend must do: submit, poll, cancel, admit a loss, be adopted. Add a maker to MAKERS to join."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from dreamproof.base.files import read_json, write_json
from dreamproof.runs.layout import AttemptFolder, StudyFolder
from dreamproof.settings.backend import Slurm
from dreamproof.study.backends.api import Backend, Order, Presence, Sighting
from dreamproof.study.backends.local import LocalBackend
from dreamproof.study.backends.slurm.backend import SlurmBackend
from dreamproof.study.backends.slurm.commands import SlurmCommands
from dreamproof.study.process.processes import ProcessIdentity, is_alive
from dreamproof.testing.one_node_slurm import OneNodeSlurm, start_or_reason
from dreamproof.testing.waiting import HANG_SECONDS

pytestmark = pytest.mark.long(120)

Make = Callable[[], Backend]


@pytest.fixture(scope="module")
def one_node() -> Iterator[OneNodeSlurm]:
    slurm = start_or_reason("plain")
    if isinstance(slurm, str):
        pytest.skip(slurm)
    yield slurm
    slurm.stop()


def make_local(request: pytest.FixtureRequest, place: Path) -> Make:
    return LocalBackend


def make_slurm(request: pytest.FixtureRequest, place: Path) -> Make:
    slurm: OneNodeSlurm = request.getfixturevalue("one_node")
    settings = Slurm(memory="300M", cpus_per_task=1, time_limit="00:10:00", poll_seconds=1, lease_seconds=2)
    return lambda: SlurmBackend(settings, StudyFolder(place), commands=SlurmCommands(slurm.environment))


MAKERS = {"local": make_local, "slurm": make_slurm}


@pytest.fixture(params=sorted(MAKERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Make:
    return MAKERS[kind](request, tmp_path)


@pytest.fixture
def backend(make: Make) -> Iterator[Backend]:
    made = make()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def lease(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster every order has a lease, as the supervisor writes it."""
    monkeypatch.setitem(LEASE, "lease_seconds", 2.0 if kind == "slurm" else None)


LEASE: dict[str, float | None] = {}


def order(folder: Path, *commands: list[str], **more: object) -> AttemptFolder:
    attempt = AttemptFolder(folder / "a000001")
    attempt.root.mkdir(parents=True)
    fields = {"memory_limit_bytes": None, "stop_grace_seconds": 120.0, **LEASE, **more}
    write_json(
        attempt.order, asdict(Order("a000001", list(commands), {"GREETING": "hello"}, str(folder), {}, **fields))
    )  # type: ignore[arg-type]
    return attempt


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def look_until(backend: Backend, attempt: AttemptFolder, wanted: Callable[[Sighting], bool]) -> Sighting:
    until = time.monotonic() + HANG_SECONDS
    while not wanted(sighting := backend.look(attempt)):
        assert time.monotonic() < until, sighting
        backend.wait(0.1)
    return sighting


def look_until_over(backend: Backend, attempt: AttemptFolder) -> Sighting:
    return look_until(backend, attempt, lambda seen: seen.presence in (Presence.ENDED, Presence.LOST))


def look_until_child_runs(backend: Backend, attempt: AttemptFolder) -> Sighting:
    return look_until(backend, attempt, lambda seen: seen.process_id is not None and "ready" in _output(attempt))


def _output(attempt: AttemptFolder) -> str:
    return attempt.output.read_text() if attempt.output.exists() else ""


READY = "import time; print('ready', flush=True); time.sleep(1200)"


def test_a_command_runs_in_its_folder_with_its_variables_and_its_end_is_exact(backend: Backend, tmp_path: Path) -> None:
    attempt = order(tmp_path, python("import os, sys; print(os.getcwd(), os.environ['GREETING']); sys.exit(3)"))
    backend.start(attempt)
    sighting = look_until_over(backend, attempt)
    assert sighting.presence is Presence.ENDED
    assert sighting.exit is not None
    assert (sighting.exit.exit_code, sighting.exit.signal) == (3, None)
    assert _output(attempt) == f"{tmp_path} hello\n"


def test_commands_run_one_after_the_other_and_the_first_failure_ends_them(backend: Backend, tmp_path: Path) -> None:
    attempt = order(tmp_path, python("print(1)"), python("print(2); raise SystemExit(5)"), python("print(3)"))
    backend.start(attempt)
    sighting = look_until_over(backend, attempt)
    assert sighting.exit is not None and sighting.exit.exit_code == 5
    assert _output(attempt) == "1\n2\n"


def test_a_command_that_cannot_be_started_says_why(backend: Backend, tmp_path: Path) -> None:
    attempt = order(tmp_path, ["no-such-command-anywhere"])
    backend.start(attempt)
    sighting = look_until_over(backend, attempt)
    assert sighting.exit is not None and sighting.exit.spawn_error is not None
    assert "No such file" in sighting.exit.spawn_error


def test_a_killed_command_is_reported_with_its_signal(backend: Backend, tmp_path: Path) -> None:
    attempt = order(tmp_path, python(READY))
    backend.start(attempt)
    running = look_until_child_runs(backend, attempt)
    assert running.process_id is not None
    os.kill(running.process_id, signal.SIGKILL)
    sighting = look_until_over(backend, attempt)
    assert sighting.exit is not None and sighting.exit.signal == signal.SIGKILL
    assert sighting.exit.asked_to_stop is None


def test_a_stop_lets_the_command_save_and_keeps_the_reason(backend: Backend, tmp_path: Path) -> None:
    script = (
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n" + READY
    )
    attempt = order(tmp_path, python(script))
    backend.start(attempt)
    look_until_child_runs(backend, attempt)
    backend.stop(attempt, "stop by a person", 120.0)
    sighting = look_until_over(backend, attempt)
    assert sighting.exit is not None
    assert (sighting.exit.exit_code, sighting.exit.asked_to_stop) == (0, "stop by a person")
    assert "saved" in _output(attempt)


def test_a_command_that_will_not_stop_is_killed_after_the_grace(backend: Backend, tmp_path: Path) -> None:
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY
    attempt = order(tmp_path, python(script))
    backend.start(attempt)
    look_until_child_runs(backend, attempt)
    backend.stop(attempt, "stop by a person", 0.3)
    sighting = look_until_over(backend, attempt)
    assert sighting.exit is not None and sighting.exit.signal == signal.SIGKILL


def test_a_stopped_process_is_seen_and_can_be_ended(backend: Backend, tmp_path: Path) -> None:
    attempt = order(tmp_path, python(READY))
    backend.start(attempt)
    running = look_until_child_runs(backend, attempt)
    assert running.process_id is not None
    os.kill(running.process_id, signal.SIGSTOP)
    look_until(backend, attempt, lambda seen: seen.process_state == "T")
    backend.stop(attempt, "stalled: stopped by a signal", 120.0)
    sighting = look_until_over(backend, attempt)
    assert sighting.exit is not None and sighting.exit.signal == signal.SIGTERM


def test_another_backend_object_adopts_a_running_attempt(backend: Backend, make: Make, tmp_path: Path) -> None:
    attempt = order(tmp_path, python(READY))
    backend.start(attempt)
    first = look_until_child_runs(backend, attempt)
    heir = make()
    second = look_until(heir, attempt, lambda seen: seen.process_id is not None)
    assert (second.presence, second.process_id) == (Presence.RUNNING, first.process_id)
    heir.stop(attempt, "stop by a person", 120.0)
    assert look_until_over(heir, attempt).presence is Presence.ENDED
    heir.close()


def test_an_attempt_whose_keeper_and_command_are_gone_is_lost(backend: Backend, tmp_path: Path) -> None:
    attempt = order(tmp_path, python(READY))
    backend.start(attempt)
    look_until_child_runs(backend, attempt)
    given = read_json(attempt.shim)
    for who in ("shim", "child"):
        os.kill(given[who]["process_id"], signal.SIGKILL)
    assert look_until_over(backend, attempt).presence is Presence.LOST


def test_a_command_whose_keeper_is_gone_is_not_forgotten(backend: Backend, kind: str, tmp_path: Path) -> None:
    attempt = order(tmp_path, python(READY))
    backend.start(attempt)
    running = look_until_child_runs(backend, attempt)
    os.kill(read_json(attempt.shim)["shim"]["process_id"], signal.SIGKILL)
    if kind == "local":  # a cluster ends it with its keeper; here it lives on and can be stopped
        time.sleep(0.2)
        assert backend.look(attempt).process_id == running.process_id
        backend.stop(attempt, "stop by a person", 120.0)
    assert look_until_over(backend, attempt).presence is Presence.LOST
    assert not is_alive(ProcessIdentity.read(read_json(attempt.shim)["child"]))


def test_an_order_that_nobody_started_is_closed_for_good(tmp_path: Path, backend: Backend) -> None:
    attempt = order(tmp_path, python("open('ran', 'w')"))
    sighting = look_until_over(backend, attempt)
    assert (sighting.presence, sighting.never_began) == (Presence.LOST, True)
    backend.start(attempt)
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        backend.wait(0.5)
    assert not (tmp_path / "ran").exists()


def test_an_attempt_that_is_started_by_two_supervisors_runs_once(make: Make, tmp_path: Path) -> None:
    attempt = order(tmp_path, python("import time; print('once', flush=True); time.sleep(1)"))
    first, second = make(), make()
    first.start(attempt)
    second.start(attempt)
    second.wait(0.1)
    assert look_until_over(first, attempt).presence is Presence.ENDED
    time.sleep(3.0)
    assert _output(attempt) == "once\n"
    first.close()
    second.close()


def test_what_a_command_leaves_behind_is_ended_with_it(backend: Backend, tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1200)'], start_new_session=True)\n"
        "print(left.pid, flush=True)"
    )
    attempt = order(tmp_path, python(script))
    backend.start(attempt)
    assert look_until_over(backend, attempt).presence is Presence.ENDED
    left = int(_output(attempt))
    with pytest.raises(ProcessLookupError):
        os.kill(left, 0)
