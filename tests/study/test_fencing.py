"""One cell is never worked on by two processes: wrappers, killed shims, containers, hosts, copies."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.files import read_json, write_json
from dreamproof.base.locks import is_locked
from dreamproof.runs.layout import AttemptFolder
from dreamproof.study.backends.api import Order, Presence, Sighting, write_order
from dreamproof.study.backends.local import LocalBackend
from dreamproof.study.ledger.lease import Lease, living_holder
from dreamproof.study.process import cgroup
from dreamproof.study.process.processes import (
    ATTEMPT_VARIABLE,
    ProcessIdentity,
    is_alive,
    processes_with_variable,
)
from dreamproof.testing.small_study import TRAINER, declare
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = pytest.mark.long(60)

PATIENT = "import signal, sys, time\nprint('ready', flush=True)\n"
SAVES = (
    PATIENT + "def save(*_):\n    time.sleep(1.0)\n    open('saved', 'w').write('x')\n    sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\ntime.sleep(300)\n"
)

# Writes down every signal at once; of two that wait, Python handles the lower number first.
HEARS = (
    "import signal, time\ndef hear(number, _):\n    open('heard', 'a').write(f'{number} ')\n"
    "signal.signal(signal.SIGTERM, hear)\nsignal.signal(signal.SIGURG, hear)\nprint('ready', flush=True)\n"
    "while True:\n    time.sleep(300)\n"
)


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    made = LocalBackend()
    yield made
    made.close()


def order(folder: Path, *commands: list[str], name: str = "a000001", **more: Any) -> AttemptFolder:
    attempt = AttemptFolder(folder / name)
    token = {ATTEMPT_VARIABLE: f"{name}-{folder}"}
    made = Order(
        name, list(commands), token, str(folder), {}, stop_grace_seconds=60.0, **more, locks=[str(folder / "cell.lock")]
    )
    write_order(attempt, made)
    return attempt


def script(folder: Path, text: str) -> str:
    path = folder / "trainer.py"
    path.write_text(text)
    return f"{sys.executable} {path}"


def is_ready(attempt: AttemptFolder, times: int = 1) -> bool:
    return attempt.output.exists() and attempt.output.read_text().count("ready") >= times


def end_of(backend: LocalBackend, attempt: AttemptFolder) -> Sighting:
    wait_for(lambda: backend.look(attempt).presence in (Presence.ENDED, Presence.LOST))
    return LocalBackend().look(attempt)


def shim_of(attempt: AttemptFolder) -> ProcessIdentity:
    found = ProcessIdentity.read((read_json(attempt.shim) or {}).get("shim"))
    assert found is not None
    return found


def child_of(attempt: AttemptFolder) -> ProcessIdentity:
    found = ProcessIdentity.read((read_json(attempt.shim) or {}).get("child"))
    assert found is not None
    return found


def kill(process: ProcessIdentity) -> None:
    os.kill(process.process_id, signal.SIGKILL)
    wait_for(lambda: not is_alive(process))


WRAPPERS = {
    "bash": lambda command: ["bash", "-c", f"{command}; exit $?"],
    "two shells": lambda command: ["bash", "-c", f"bash -c '{command}; true'; exit $?"],
    "own session": lambda command: ["bash", "-c", f"setsid {command} & wait; exit $?"],
    "python": lambda command: [
        sys.executable,
        "-c",
        f"import subprocess, sys; sys.exit(subprocess.run({command.split()!r}).returncode)",
    ],
}


@pytest.mark.parametrize("wrapper", sorted(WRAPPERS))
def test_a_stop_gives_the_trainer_behind_a_wrapper_time_to_save(
    wrapper: str, backend: LocalBackend, tmp_path: Path
) -> None:
    attempt = order(tmp_path, WRAPPERS[wrapper](script(tmp_path, SAVES)))
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).presence is Presence.RUNNING and is_ready(attempt))
    backend.stop(attempt, "stop by a test", 60.0)
    assert end_of(backend, attempt).presence is Presence.ENDED
    assert (tmp_path / "saved").exists()
    assert not is_locked(tmp_path / "cell.lock")


def test_what_ignores_a_stop_behind_a_wrapper_is_killed_after_the_grace(backend: LocalBackend, tmp_path: Path) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
    attempt = order(tmp_path, WRAPPERS["bash"](script(tmp_path, stubborn + "time.sleep(600)\n")))
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).presence is Presence.RUNNING and is_ready(attempt))
    backend.stop(attempt, "stop by a test", 0.5)
    assert end_of(backend, attempt).presence is Presence.ENDED
    assert processes_with_variable(ATTEMPT_VARIABLE, f"a000001-{tmp_path}") == []


@pytest.mark.parametrize("wrapper", ["bash", "python", "own session"])
def test_a_trainer_that_outlives_shim_and_wrapper_keeps_its_cell_and_can_be_stopped(
    wrapper: str, backend: LocalBackend, tmp_path: Path
) -> None:
    attempt = order(tmp_path, WRAPPERS[wrapper](script(tmp_path, SAVES)))
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).presence is Presence.RUNNING and is_ready(attempt))
    kill(shim_of(attempt))
    kill(child_of(attempt))
    fresh = LocalBackend()
    sighting = fresh.look(attempt)
    assert sighting.presence is Presence.RUNNING and sighting.process_id is not None
    activity = fresh.activity(attempt)
    assert activity is not None and activity.cpu_seconds >= 0.0
    fresh.stop(attempt, "stop by a test", 60.0)
    wait_for(lambda: fresh.look(attempt).presence is Presence.LOST)
    assert (tmp_path / "saved").exists()
    fresh.close()


@pytest.mark.parametrize("wrapper", ["bash", "own session"])
def test_a_trainer_whose_wrapper_alone_was_killed_is_asked_to_save_and_frees_its_cell(
    wrapper: str, backend: LocalBackend, tmp_path: Path
) -> None:
    attempt = order(tmp_path, WRAPPERS[wrapper](script(tmp_path, SAVES)))
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).presence is Presence.RUNNING and is_ready(attempt))
    kill(child_of(attempt))
    sighting = end_of(backend, attempt)
    assert sighting.exit is not None and sighting.exit.signal == signal.SIGKILL
    assert (tmp_path / "saved").exists() and not is_locked(tmp_path / "cell.lock")


def test_a_second_attempt_at_a_cell_that_is_worked_on_does_not_start(backend: LocalBackend, tmp_path: Path) -> None:
    first = order(tmp_path, WRAPPERS["bash"](script(tmp_path, SAVES)))
    backend.start(first)
    wait_for(lambda: backend.look(first).presence is Presence.RUNNING and is_ready(first))
    kill(shim_of(first))
    kill(child_of(first))
    second = order(tmp_path, [sys.executable, "-c", "open('twice', 'w')"], name="a000002")
    backend.start(second)
    sighting = end_of(backend, second)
    assert sighting.exit is not None and "locked: " in str(sighting.exit.asked_to_stop)
    assert "another process works on this cell" in str(sighting.exit.asked_to_stop)
    assert not (tmp_path / "twice").exists()
    backend.stop(first, "stop", 120.0)
    wait_for(lambda: backend.look(first).presence is Presence.LOST)


def test_an_attempt_whose_claim_cannot_be_read_runs_on_while_its_lock_is_held(
    backend: LocalBackend, tmp_path: Path
) -> None:
    attempt = order(tmp_path, [sys.executable, "-c", PATIENT + "time.sleep(600)"])
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    claimed = attempt.shim.read_bytes()
    attempt.shim.write_bytes(b"")  # what a failing disk may show
    clock = [0.0]
    fresh = LocalBackend(lambda: clock[0])
    assert fresh.look(attempt).presence is Presence.WAITING
    clock[0] = 10_000.0
    sighting = fresh.look(attempt)
    assert sighting.presence is Presence.RUNNING and "holds its lock" in str(sighting.unseen)
    attempt.shim.write_bytes(claimed)
    backend.stop(attempt, "stop", 10.0)
    end_of(backend, attempt)
    fresh.close()


def test_the_second_command_of_an_order_is_known_where_the_shim_dies_as_it_starts(tmp_path: Path) -> None:
    """An evaluation with two conditions: a supervisor that saw only the first command must look again."""
    backend = LocalBackend()
    first = [sys.executable, "-c", PATIENT + "import os\nwhile not os.path.exists('go'): time.sleep(0.02)\n"]
    attempt = order(tmp_path, first, [sys.executable, "-c", PATIENT + "time.sleep(300)"])
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    before = child_of(attempt)
    (tmp_path / "go").touch()
    wait_for(lambda: is_ready(attempt, 2) and child_of(attempt) != before)
    kill(shim_of(attempt))
    sighting = backend.look(attempt)
    assert sighting.presence is Presence.RUNNING
    assert sighting.process_id == child_of(attempt).process_id
    backend.stop(attempt, "stop", 10.0)
    wait_for(lambda: backend.look(attempt).presence is Presence.LOST)
    backend.close()


def test_a_stopped_shim_holds_nothing(backend: LocalBackend, tmp_path: Path) -> None:
    attempt = order(
        tmp_path, [sys.executable, "-c", PATIENT + "import os\nwhile not os.path.exists('go'): time.sleep(0.02)\n"]
    )
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    os.kill(shim_of(attempt).process_id, signal.SIGSTOP)
    (tmp_path / "go").touch()
    assert end_of(backend, attempt).presence is Presence.ENDED


def test_a_killed_shim_leaves_no_memory_group_behind(backend: LocalBackend, tmp_path: Path) -> None:
    own = cgroup.find_own_group()
    if cgroup.make_limited_group(own, "dreamproof-try", 1 << 24) is None:
        pytest.skip("kernel: this user may not make a limited memory group")
    cgroup.remove(Path(str(own)) / "dreamproof-try")
    attempt = order(tmp_path, [sys.executable, "-c", PATIENT + "time.sleep(600)"], memory_limit_bytes=256 << 20)
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    shim, child = shim_of(attempt), child_of(attempt)
    group = Path(str(own)) / cgroup.group_name("a000001", shim.process_id)
    assert group.exists()
    kill(shim)
    kill(child)
    wait_for(lambda: LocalBackend().look(attempt).presence is Presence.LOST)
    wait_for(lambda: LocalBackend().look(attempt).presence is Presence.LOST and not group.exists())


def test_a_stop_reaches_a_stopped_shim(backend: LocalBackend, tmp_path: Path) -> None:
    attempt = order(tmp_path, [sys.executable, "-c", SAVES])
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    os.kill(shim_of(attempt).process_id, signal.SIGSTOP)
    backend.stop(attempt, "stop", 120.0)
    assert end_of(backend, attempt).presence is Presence.ENDED
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("is_copied_early", [False, True])
def test_a_copy_of_an_attempt_never_touches_the_processes_of_the_original(
    backend: LocalBackend, tmp_path: Path, is_copied_early: bool
) -> None:
    """Not even a copy that was made before the attempt began, and so names no process."""
    original = tmp_path / "original"
    attempt = order(original, [sys.executable, "-c", HEARS])
    if is_copied_early:
        shutil.copytree(original, tmp_path / "copy")
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    if not is_copied_early:
        shutil.copytree(original, tmp_path / "copy")
    copy, other = AttemptFolder(tmp_path / "copy" / "a000001"), LocalBackend()
    other.stop(copy, "stop of the copy", 1.0)
    child = backend.look(attempt).process_id
    assert child is not None
    os.kill(child, signal.SIGURG)
    wait_for(lambda: (original / "heard").exists() and (original / "heard").read_text() != "")
    assert (original / "heard").read_text().split() == [str(int(signal.SIGURG))]
    assert is_copied_early or other.look(copy).presence is Presence.LOST
    backend.stop(attempt, "stop", 0.1)
    end_of(backend, attempt)


def test_a_moved_attempt_is_still_the_same(tmp_path: Path) -> None:
    backend = LocalBackend()
    attempt = order(tmp_path / "before", [sys.executable, "-c", PATIENT + "time.sleep(3)"])
    backend.start(attempt)
    wait_for(lambda: backend.look(attempt).process_id is not None and is_ready(attempt))
    (tmp_path / "before").rename(tmp_path / "after")
    moved = AttemptFolder(tmp_path / "after" / "a000001")
    assert LocalBackend().look(moved).presence is Presence.RUNNING
    sighting = end_of(LocalBackend(), moved)
    assert sighting.exit is not None and sighting.exit.exit_code == 0
    assert not (tmp_path / "before").exists()
    backend.close()


def test_a_copied_lease_is_free_and_a_moved_one_is_not(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease.json")
    lease.take()
    assert living_holder(tmp_path / "lease.json") is not None
    shutil.copy(tmp_path / "lease.json", tmp_path / "copy.json")
    assert living_holder(tmp_path / "copy.json") is None
    (tmp_path / "lease.json").rename(tmp_path / "moved.json")
    assert living_holder(tmp_path / "moved.json") is not None
    lease.release()


def test_a_supervisor_that_leaves_attempts_running_keeps_its_machine_on_the_lease(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "lease.json")
    lease.take()
    lease.release(attempts_run_on=True)
    value = read_json(tmp_path / "lease.json")
    assert value["process_id"] == os.getpid()
    value |= {"host": "another", "boot_id": "another"}
    write_json(tmp_path / "lease.json", value | {"place": None})
    assert living_holder(tmp_path / "lease.json") is not None, "it may still run there"


def can_make_namespaces() -> bool:
    arguments = ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(arguments, capture_output=True, check=False).returncode == 0
    )


namespaces = pytest.mark.skipif(not can_make_namespaces(), reason="kernel: this user may not make namespaces")
CLI = [sys.executable, "-m", "dreamproof.cli.main"]


def in_container(name: str, *arguments: str) -> list[str]:
    """A command in a pid namespace and under a host name of its own, as in a container on the same volume."""
    command = f"hostname {name} && " + " ".join(map(str, arguments))
    return ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child", "bash", "-c", command]


def on_host(name: str, boot: Path, *arguments: str) -> list[str]:
    """A command that sees another boot id and another host name, as on a second machine with the same disk."""
    boot.write_text(f"{name}-boot\n")
    script = f"hostname {name} && mount --bind {boot} /proc/sys/kernel/random/boot_id && " + " ".join(
        map(str, arguments)
    )
    return ["unshare", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child", "bash", "-c", script]


def held_study(folder: Path) -> Path:
    trainer = [sys.executable, str(TRAINER), "{run_dir}"]
    trainer += ["--step-seconds", "0.5", "--save-every", "5"]
    return declare(
        folder, trainer={"command": trainer}, arms={"low": {"level": 1}}, seeds=1, conditions=[], agent_steps=2000
    )


def trainers(folder: Path) -> set[str]:
    """Processes that have worked on the only cell."""
    log = folder / "results" / "small" / "runs" / "low-seed0" / "steps.log"
    return {line.split()[0] for line in log.read_text().splitlines()} if log.exists() else set()


def steps(folder: Path) -> list[int]:
    log = folder / "results" / "small" / "runs" / "low-seed0" / "steps.log"
    return [int(line.split()[1]) for line in log.read_text().splitlines()] if log.exists() else []


@namespaces
def test_two_containers_on_one_volume_never_train_one_cell_twice(tmp_path: Path) -> None:
    """Container A's supervisor dies, its trainer lives: container B cannot see it, but the lock shows it."""
    file = held_study(tmp_path)
    first = subprocess.Popen(
        in_container("box-a", *CLI, "run", str(file), "--no-check", "--plain", "; sleep 600"), stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: len(steps(tmp_path)) > 3)
        lease = read_json(tmp_path / "results" / "small" / "lease.json")
        refused = subprocess.run(
            in_container("box-b", *CLI, "run", str(file), "--no-check", "--plain"),
            capture_output=True,
            timeout=HANG_SECONDS,
            check=False,
        )
        assert refused.returncode == 5, refused.stderr
        assert lease["host"] == "box-a"
        inside = subprocess.run(["pgrep", "-f", f"cli.main run {file}"], capture_output=True, text=True, check=False)
        for process_id in inside.stdout.split():
            if Path(f"/proc/{process_id}/comm").read_text().strip().startswith("python"):
                os.kill(int(process_id), signal.SIGKILL)
        second = subprocess.Popen(
            in_container("box-b", *CLI, "run", str(file), "--no-check", "--plain"), stdout=subprocess.PIPE, text=True
        )
        before = len(steps(tmp_path))
        wait_for(lambda: len(steps(tmp_path)) > before + 10)
        assert len(trainers(tmp_path)) == 1, "the first trainer alone works on"
        assert steps(tmp_path) == sorted(set(steps(tmp_path)))
        second.kill()
        second.wait()
    finally:
        first.kill()
        first.wait()


@namespaces
def test_a_second_host_never_takes_a_study_whose_attempts_live_on_the_first(tmp_path: Path) -> None:
    """A polite kill of the supervisor leaves its trainer running; the lease still names the first host."""
    file = held_study(tmp_path)
    first = subprocess.Popen(
        on_host("host-a", tmp_path / "boot-a", *CLI, "run", str(file), "--no-check", "--plain", "; sleep 600"),
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(steps(tmp_path)) > 3)
        inside = subprocess.run(["pgrep", "-f", f"cli.main run {file}"], capture_output=True, text=True, check=False)
        for process_id in inside.stdout.split():
            if Path(f"/proc/{process_id}/comm").read_text().strip().startswith("python"):
                os.kill(int(process_id), signal.SIGTERM)
        ledger = tmp_path / "results" / "small" / "ledger.jsonl"
        wait_for(lambda: "supervisor_ended" in ledger.read_text())
        refused = subprocess.run(
            on_host("host-b", tmp_path / "boot-b", *CLI, "run", str(file), "--no-check", "--plain"),
            capture_output=True,
            timeout=HANG_SECONDS,
            check=False,
            text=True,
        )
        assert refused.returncode == 5, refused.stderr
        assert "on host-a" in refused.stderr and "--from-lost-host" in refused.stderr
        before = len(steps(tmp_path))
        wait_for(lambda: len(steps(tmp_path)) > before + 5)
        assert len(trainers(tmp_path)) == 1
    finally:
        first.kill()
        first.wait()
