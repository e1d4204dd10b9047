"""A stalled process shows where it stands, and asking it never kills it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dreamproof.study.process.stacks import catches, dump_stacks
from dreamproof.testing.waiting import wait_for

HANGS = """
import faulthandler, signal, sys, time
if {answers}:
    faulthandler.register(signal.SIGUSR1)
def waits_for_ever():
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
waits_for_ever()
"""


@contextmanager
def hanging(folder: Path, answers: bool) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    output = folder / "output.log"
    with output.open("wb") as file:
        arguments = [sys.executable, "-c", HANGS.format(answers=answers)]
        process = subprocess.Popen(arguments, stdout=file, stderr=file)
    try:
        wait_for(lambda: b"ready" in output.read_bytes())
        yield process, output
    finally:
        process.kill()
        process.wait()


def test_a_trainer_that_answers_names_the_function_it_hangs_in(tmp_path: Path) -> None:
    with hanging(tmp_path, answers=True) as (process, output):
        dump_stacks(process.pid, tmp_path / "stacks.txt", output)
        text = (tmp_path / "stacks.txt").read_text()
        assert "in waits_for_ever" in text.split("Kernel's view")[0]
        assert f"Kernel's view of process {process.pid}" in text
        assert process.poll() is None


def test_a_trainer_that_does_not_answer_is_not_killed_by_the_question(tmp_path: Path) -> None:
    with hanging(tmp_path, answers=False) as (process, output):
        assert not catches(process.pid, signal.SIGUSR1)
        dump_stacks(process.pid, tmp_path / "stacks.txt", output)
        time.sleep(0.1)
        assert process.poll() is None
        assert "does not catch SIGUSR1" in (tmp_path / "stacks.txt").read_text()


def test_a_stopped_process_is_described_by_the_kernel(tmp_path: Path) -> None:
    with hanging(tmp_path, answers=True) as (process, output):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        dump_stacks(process.pid, tmp_path / "stacks.txt", output)
        text = (tmp_path / "stacks.txt").read_text()
        assert "is stopped and cannot answer" in text
        assert "State: T (stopped)" in text


def test_a_process_that_is_gone_is_reported_as_gone(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dump_stacks(process.pid, tmp_path / "stacks.txt")
    assert f"Process {process.pid} is gone." in (tmp_path / "stacks.txt").read_text()
