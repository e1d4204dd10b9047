"""The shim: exact ends, limits, and never a child that nobody knows of."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dreamproof.base.files import read_json
from dreamproof.runs.layout import AttemptFolder
from dreamproof.runs.reader import read_exit
from dreamproof.runs.records import ExitRecord
from dreamproof.study.process import cgroup
from dreamproof.study.process.shim import OUTPUT_RESERVE_BYTES, claim, rewrite_claim
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

HOG = "hoard = []\nwhile True: hoard.append(bytearray(4_000_000))"


def prepared(folder: Path, script: str, **more: object) -> AttemptFolder:
    attempt = AttemptFolder(folder / "a1")
    attempt.root.mkdir()
    order = {
        "attempt": "a1",
        "commands": [[sys.executable, "-c", script]],
        "environment": {},
        "working_folder": str(folder),
    }
    attempt.order.write_text(json.dumps({**order, **more}))
    return attempt


def start(attempt: AttemptFolder) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dreamproof.study.process.shim", str(attempt.root)], start_new_session=True
    )


def run(attempt: AttemptFolder) -> ExitRecord:
    start(attempt).wait(HANG_SECONDS)
    record = read_exit(attempt.exit)
    assert record is not None
    return record


def test_wall_seconds_cpu_and_peak_memory_are_measured(tmp_path: Path) -> None:
    record = run(prepared(tmp_path, "import time; room = bytearray(60_000_000); time.sleep(0.3)"))
    assert record.exit_code == 0
    assert record.wall_seconds >= 0.3
    assert record.peak_bytes is not None and record.peak_bytes > 60_000_000
    assert record.cpu_seconds > 0


def test_a_memory_hog_under_a_limit_dies_by_the_memory_controller_and_says_so(tmp_path: Path) -> None:
    if cgroup.make_limited_group(cgroup.find_own_group(), "dreamproof-try", 1 << 24) is None:
        pytest.skip("kernel: this user may not make a limited memory group")
    cgroup.remove(Path(str(cgroup.find_own_group())) / "dreamproof-try")
    record = run(prepared(tmp_path, HOG, memory_limit_bytes=48 << 20))
    assert record.signal == signal.SIGKILL
    assert record.oom_kills == 1


def test_without_a_memory_controller_a_hog_is_stopped_by_what_it_holds(tmp_path: Path) -> None:
    script = "import time\nroom = b'x' * 80_000_000\ntime.sleep(1200)"
    attempt = prepared(tmp_path, script, memory_limit_bytes=40 << 20)
    no_controller = (
        "from dreamproof.study.process import cgroup, shim; cgroup.find_own_group = lambda: None; shim.main()"
    )
    subprocess.run([sys.executable, "-c", no_controller, str(attempt.root)], check=True, timeout=HANG_SECONDS)
    record = read_exit(attempt.exit)
    assert record is not None and record.asked_to_stop is not None
    assert record.asked_to_stop.startswith("memory: ")
    assert record.oom_kills is None


def test_only_one_of_two_shims_starts_the_command(tmp_path: Path) -> None:
    attempt = prepared(tmp_path, "open('ran', 'a').write('x'); import time; time.sleep(0.5)")
    both = [start(attempt), start(attempt)]
    for shim in both:
        shim.wait(HANG_SECONDS)
    assert (tmp_path / "ran").read_text() == "x"


def test_a_void_claim_keeps_a_late_shim_from_starting(tmp_path: Path) -> None:
    attempt = prepared(tmp_path, "open('ran', 'w')")
    assert claim(attempt, {"void": "nobody came"})
    assert not claim(attempt, {"shim": None})
    start(attempt).wait(HANG_SECONDS)
    assert not (tmp_path / "ran").exists()
    assert not attempt.exit.exists()


def test_a_claim_is_rewritten_in_place_without_growing(tmp_path: Path) -> None:
    attempt = prepared(tmp_path, "")
    claim(attempt, {"shim": {"process_id": 1}})
    before = attempt.shim.stat()
    rewrite_claim(attempt, {"shim": {"process_id": 1}, "child": {"process_id": 2}})
    after = attempt.shim.stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size)
    assert read_json(attempt.shim)["child"] == {"process_id": 2}


def test_a_child_whose_shim_dies_before_it_is_on_record_never_runs(tmp_path: Path) -> None:
    """The forked child waits for the go-ahead, so that no kill can leave an unknown process behind."""
    attempt = prepared(tmp_path, "open('ran', 'w')")
    dies_before_record = (
        "import os, signal\n"
        "from dreamproof.study.process import shim\n"
        "shim.rewrite_claim = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "shim.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", dies_before_record, str(attempt.root)], check=False, timeout=HANG_SECONDS
    )
    assert done.returncode == -signal.SIGKILL
    time.sleep(0.5)
    assert not (tmp_path / "ran").exists()


def test_a_hangup_of_the_terminal_does_not_reach_the_command(tmp_path: Path) -> None:
    attempt = prepared(tmp_path, "import time; time.sleep(1.0); print('unharmed')")
    shim = start(attempt)
    while not (read_json(attempt.shim) or {}).get("child"):
        time.sleep(0.02)
    os.kill(shim.pid, signal.SIGHUP)
    os.kill(shim.pid, signal.SIGINT)
    shim.wait(HANG_SECONDS)
    assert attempt.output.read_text() == "unharmed\n"


@pytest.mark.parametrize("ignores", [True, False])
def test_a_command_that_ignores_the_stop_is_killed_and_that_is_recorded(tmp_path: Path, ignores: bool) -> None:
    handler = "signal.SIG_IGN" if ignores else "signal.SIG_DFL"
    script = f"import signal, time; signal.signal(15, {handler}); open('ready', 'w'); time.sleep(1200)"
    attempt = prepared(tmp_path, script, stop_grace_seconds=0.5 if ignores else HANG_SECONDS)
    shim = start(attempt)
    wait_for((tmp_path / "ready").exists)
    os.kill(shim.pid, signal.SIGTERM)
    shim.wait(HANG_SECONDS)
    record = read_exit(attempt.exit)
    assert record is not None
    assert record.signal == (signal.SIGKILL if ignores else signal.SIGTERM)
    assert (record.killed_after_seconds is not None) == ignores
    assert not ignores or (record.killed_after_seconds or 0.0) >= 0.5


def test_output_that_is_not_text_is_kept_as_it_is(tmp_path: Path) -> None:
    attempt = prepared(tmp_path, "import os; os.write(1, bytes(range(256)))")
    assert run(attempt).exit_code == 0
    assert attempt.output.read_bytes() == bytes(range(256))


def test_room_that_was_reserved_for_output_is_given_back(tmp_path: Path) -> None:
    attempt = prepared(tmp_path, "print('a line')")
    assert run(attempt).exit_code == 0
    assert attempt.output.read_text() == "a line\n"
    assert attempt.output.stat().st_blocks * 512 < OUTPUT_RESERVE_BYTES


def test_the_output_keeps_the_time_of_the_last_line(tmp_path: Path) -> None:
    later = tmp_path / "later"
    attempt = prepared(tmp_path, f"print('a line', flush=True); open({str(later)!r}, 'w').write('x')")
    assert run(attempt).exit_code == 0
    assert attempt.output.stat().st_mtime_ns <= later.stat().st_mtime_ns


def test_counters_of_both_kinds_of_controller_are_read(tmp_path: Path) -> None:
    first = tmp_path / "memory" / "box"
    first.mkdir(parents=True)
    (first / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    found = cgroup.own_group("4:memory:/box\n0::/\n", tmp_path)
    assert (found, cgroup.kill_count(found)) == (first, 3)
    second = tmp_path / "slice"
    second.mkdir()
    (second / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\n")
    found = cgroup.own_group("0::/slice\n", tmp_path)
    assert (found, cgroup.kill_count(found)) == (second, 1)
    assert cgroup.kill_count(None) is None


def test_disks_without_hard_links_have_one_claimant_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", no_links)
    attempt = prepared(tmp_path, "")
    assert claim(attempt, {"shim": {"process_id": 1}})
    assert not claim(attempt, {"void": "too late"})
    assert read_json(attempt.shim) == {"shim": {"process_id": 1}}


def test_planted_links_are_not_followed_when_an_attempt_is_claimed_or_ends(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = AttemptFolder(tmp_path / "attempt")
    folder.root.mkdir()
    folder.shim.symlink_to(precious)
    assert claim(folder, {"void": "x"}) is False  # whoever planted it holds the attempt; nothing is overwritten
    with pytest.raises(OSError, match="symbolic link"):
        rewrite_claim(folder, {"void": "x"})
    assert precious.read_text() == "mine"
    assert sorted(path.name for path in folder.root.iterdir()) == [folder.shim.name]
