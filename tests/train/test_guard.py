"""A stop request ends a process at once while it has nothing to save, also in the middle of a compile."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# One call that takes far longer than the test waits, during which no handler of Python runs, as in a compile.
PROGRAM = """
import hashlib, sys
from dreamproof.train.guard import StopFlag
stop = StopFlag()
stop.has_progress = sys.argv[1] == "trained"
print("ready", flush=True)
hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(sys.argv[2]))
print("saves" if stop.requested else "was not asked", flush=True)
"""
LONG, SHORT = 2**31 - 1, 10**6


def answer(tmp_path: Path, state: str, rounds: int, number: int) -> tuple[int, str]:
    """Exit code and last line of a process that is asked to stop in the middle of its one call."""
    command = [sys.executable, "-c", PROGRAM, state, str(rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=dict(os.environ)) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(number)
        try:
            return process.wait(120), process.stdout.read().strip()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_without_progress_ends_at_once(tmp_path: Path, number: int) -> None:
    assert answer(tmp_path, "fresh", LONG, number) == (0, "stopped early; run it again to resume")


def test_a_process_with_progress_lives_to_save_it(tmp_path: Path) -> None:
    assert answer(tmp_path, "trained", SHORT, signal.SIGTERM) == (0, "saves")


def test_a_terminal_gets_its_cursor_back(tmp_path: Path) -> None:
    """A progress bar hides it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, "fresh", str(LONG)]
    with subprocess.Popen(command, stdout=theirs, cwd=tmp_path, env=dict(os.environ)) as process:
        shown = b""
        while b"ready" not in shown:
            shown += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert b"\x1b[?25h" in os.read(ours, 1000)
