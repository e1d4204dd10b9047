"""Resuming equals not stopping, bit for bit: in one process, and for processes that are killed at random."""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.tiny import AGENT_STEPS, train_here, write_cells

from dreamproof.data.arrays import read_arrays
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import prove_training, read_checkpoint, read_frozen, read_heartbeat
from dreamproof.runs.writer import RunWriter
from dreamproof.testing.waiting import HANG_SECONDS, wait_for
from dreamproof.train.pack import Pack
from dreamproof.train.saving import restore, save_cell, shared_checkpoints

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]

Trained = dict[str, RunFolder]


class Training:
    """`python -m dreamproof.train` on some run folders."""

    def __init__(self, folders: Trained) -> None:
        self.folders = folders
        paths = [str(folder.root) for folder in folders.values()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dreamproof.train", *paths],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def stop_after(self, agent_steps: int, number: int) -> int:
        """Sends a signal once the heartbeat has passed so many steps; returns the exit code."""

        def passed_or_ended() -> bool:
            beat = read_heartbeat(self.folders["baseline"])
            passed = beat is not None and beat.process_id == self.process.pid and beat.agent_steps >= agent_steps
            return passed or self.process.poll() is not None

        wait_for(passed_or_ended, pause_seconds=0.002)
        self.process.send_signal(number)
        return self.finish()[0]

    def finish(self) -> tuple[int, str]:
        """Waits to the end: exit code and output."""
        output, _ = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, output


def final(run: RunFolder) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint, what resuming needs among them."""
    root = run.checkpoint_folders()[-1].root
    return read_arrays(root / "agent.npz") | {f"resume/{k}": v for k, v in read_arrays(root / "resume.npz").items()}


@pytest.fixture(scope="module")
def interrupted(
    pack_of_three: Pack, trained: Trained, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """The same cells in one process killed at a random step, one asked to stop at another, and one left to end."""
    folders = write_cells(tmp_path_factory.mktemp("interrupted"))
    seed = int(time.time())
    draw = random.Random(seed)
    killed = Training(folders).stop_after(draw.randrange(170, 330), signal.SIGKILL)
    asked = Training(folders)
    code = asked.stop_after(draw.randrange(340, 520), signal.SIGTERM)
    between = {
        "steps": [folder.agent_steps for folder in folders["baseline"].checkpoint_folders()],
        "proof": prove_training(folders["baseline"], AGENT_STEPS),
        "beat": read_heartbeat(folders["baseline"]),
    }
    ended = train_here(folders, pack_of_three)
    yield {"folders": folders, "seed": seed, "killed": killed, "asked": code, "between": between, "ended": ended}


def test_the_processes_ended_as_asked(interrupted: dict[str, Any]) -> None:
    assert interrupted["killed"] == -signal.SIGKILL
    assert interrupted["ended"]


def test_one_asked_to_stop_saves_and_leaves_without_a_proof(interrupted: dict[str, Any]) -> None:
    between = interrupted["between"]
    assert interrupted["asked"] == 0
    assert 340 <= between["steps"][-1] < AGENT_STEPS
    assert between["beat"].phase == "save"
    assert f"of {AGENT_STEPS} agent steps" in str(between["proof"])


@pytest.mark.parametrize("name", ["baseline", "full", "wild"])
def test_a_run_killed_at_random_ends_with_the_same_bits(
    trained: Trained, interrupted: dict[str, Any], name: str
) -> None:
    expected, got = final(trained[name]), final(interrupted["folders"][name])
    assert expected.keys() == got.keys()
    for key in expected:
        np.testing.assert_array_equal(expected[key], got[key], err_msg=f"{key}, drawn with seed {interrupted['seed']}")


@pytest.mark.parametrize("name", ["baseline", "full"])
def test_a_run_killed_at_random_selects_the_same_checkpoint(
    trained: Trained, interrupted: dict[str, Any], name: str
) -> None:
    assert trained[name].selected.read_text() == interrupted["folders"][name].selected.read_text()
    one, other = (
        read_checkpoint(run.checkpoint_folders()[-1]) for run in (trained[name], interrupted["folders"][name])
    )
    assert one is not None and other is not None
    assert one.parameter_hash == other.parameter_hash


def test_the_record_of_a_death_survives_restarts(trained: Trained, interrupted: dict[str, Any]) -> None:
    assert read_frozen(interrupted["folders"]["wild"]) == read_frozen(trained["wild"])


def saved(writer: RunWriter, agent_steps: int, content: bytes = b"x") -> None:
    """A checkpoint that is whole."""
    facts = {"agent_steps": agent_steps, "gradient_steps": 1, "parameter_hash": "p", "finite": True, "task": "t"}
    writer.save(lambda folder: (folder / "agent.npz").write_bytes(content) and None, facts)


@pytest.fixture
def writers(tmp_path: Path) -> list[RunWriter]:
    """Two cells with checkpoints at 10, 20 and 30; the second has one at 40 too."""
    made = [RunWriter(RunFolder(tmp_path / name)) for name in ("one", "two")]
    for writer in made:
        for step in (10, 20, 30):
            saved(writer, step)
    saved(made[1], 40)
    return made


def test_a_pack_resumes_from_the_newest_step_that_all_have(writers: list[RunWriter]) -> None:
    folders = shared_checkpoints(writers)
    assert folders is not None
    assert [folder.agent_steps for folder in folders] == [30, 30]


def test_a_broken_checkpoint_sends_the_whole_pack_one_back(writers: list[RunWriter]) -> None:
    (writers[1].run.checkpoint(30).root / "agent.npz").write_bytes(b"changed")
    folders = shared_checkpoints(writers)
    assert folders is not None
    assert [folder.agent_steps for folder in folders] == [20, 20]


def test_an_older_common_checkpoint_is_found_where_the_newest_do_not_meet(writers: list[RunWriter]) -> None:
    shutil.rmtree(writers[1].run.checkpoint(30).root)
    folders = shared_checkpoints(writers)
    assert folders is not None
    assert [folder.agent_steps for folder in folders] == [20, 20]


def test_without_a_common_checkpoint_training_starts_from_nothing(writers: list[RunWriter]) -> None:
    shutil.rmtree(writers[0].run.checkpoints)
    assert shared_checkpoints(writers) is None


def test_the_newest_and_the_selected_checkpoint_are_kept(writers: list[RunWriter]) -> None:
    writers[1].keep_newest(2, {10})
    assert [folder.agent_steps for folder in writers[1].run.checkpoint_folders()] == [10, 30, 40]


def test_a_pack_put_together_from_its_cells_is_what_it_was(
    trained: Trained, tmp_path: Path, pack_of_three: Pack
) -> None:
    newest = [run.checkpoint_folders()[-1] for run in trained.values()]
    state = restore(pack_of_three, newest)
    for index, name in enumerate(trained):
        facts = {"agent_steps": 1, "gradient_steps": 1, "task": "t", "frozen": False}
        again = save_cell(RunWriter(RunFolder(tmp_path / name)), state, index, facts)
        for file in ("agent.npz", "resume.npz"):
            before, after = (read_arrays(folder.root / file) for folder in (newest[index], again))
            assert before.keys() == after.keys()
            for key in before:
                np.testing.assert_array_equal(before[key], after[key], err_msg=f"{name} {key}")
    assert jax.tree.leaves(state.env_steps)[0] == AGENT_STEPS // 4
