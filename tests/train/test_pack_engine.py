"""Packs under the study engine: `dreamproof run` trains several cells in one process, through a kill and to proof."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import AGENT_STEPS, ARMS, EPISODES, TRAIN, declare_packed, tiny_settings

from dreamproof.base.files import read_json
from dreamproof.cli.main import main
from dreamproof.runs.layout import Cell, RunFolder, StudyFolder
from dreamproof.runs.reader import prove_evaluation, prove_training, read_checkpoint, read_heartbeat
from dreamproof.study.attempts import launch
from dreamproof.study.plan.commands import Target
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.testing.small_study import QUICK, TRAINER
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

pytestmark = [pytest.mark.xdist_group("trained"), pytest.mark.long(300)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> OpenStudy:
    """A study of one pack whose trainer is killed with signal 9 after its first checkpoint."""
    file = declare_packed(tmp_path_factory.mktemp("packed"))
    folder = StudyFolder(file.parent / "results" / "packed")
    command = [sys.executable, "-m", "dreamproof.cli.main", "run", str(file), *QUICK]
    with file.with_suffix(".log").open("wb") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

        def passed_a_checkpoint() -> bool:
            assert engine.poll() is None, file.with_suffix(".log").read_text()
            beat = read_heartbeat(folder.run(Cell("full", 0)))
            return beat is not None and beat.agent_steps > 2 * TRAIN["evaluate_every_agent_steps"]

        wait_for(passed_a_checkpoint)
        os.kill(read_json(folder.attempt("a000001").shim)["child"]["process_id"], signal.SIGKILL)
        assert engine.wait(HANG_SECONDS) == 0, file.with_suffix(".log").read_text()
    return open_study(file)


def test_all_cells_of_a_pack_are_trained_and_evaluated_by_one_process_each(killed: OpenStudy) -> None:
    ended = [(one.work, one.cause, len(one.cells)) for one in killed.state.attempts.values()]
    assert ended == [("train", "killed", 3), ("train", "completed", 3), ("evaluate", "completed", 3)]
    assert all(killed.state.trained(cell) for cell in killed.state.cells.values())
    assert all(killed.state.evaluated(one) for one in killed.state.eval_cells.values())


def test_a_killed_pack_resumes_from_the_newest_step_that_all_its_cells_have(killed: OpenStudy) -> None:
    first, second, _ = killed.state.attempts.values()
    assert "signal 9 (SIGKILL)" in " ".join(first.evidence)
    assert first.from_agent_steps == {f"{arm}/0": 0 for arm in ARMS}
    [step] = set(second.from_agent_steps.values())
    every = TRAIN["evaluate_every_agent_steps"]
    assert step % every == 0
    assert 2 * every <= step < AGENT_STEPS
    assert second.from_agent_steps == first.kept_agent_steps


@pytest.mark.parametrize("arm", ARMS)
def test_every_cell_of_a_pack_has_a_proof_of_its_own(killed: OpenStudy, arm: str) -> None:
    run = killed.run(Cell(arm, 0))
    proof = prove_training(run, AGENT_STEPS)
    assert not isinstance(proof, str), proof
    evaluated = prove_evaluation(run, "id", EPISODES, proof.parameter_hash)
    assert not isinstance(evaluated, str), evaluated
    record = read_checkpoint(run.checkpoint_folders()[-1])
    assert record is not None
    assert record.pack == [f"{name}/0" for name in ARMS]


def test_the_cells_of_a_pack_differ(killed: OpenStudy) -> None:
    proofs = [known.proof for known in killed.state.cells.values()]
    assert len({proof.parameter_hash for proof in proofs if proof is not None}) == len(ARMS)


def test_a_cell_killed_under_the_engine_has_the_bits_of_one_never_stopped(
    killed: OpenStudy, trained: dict[str, RunFolder]
) -> None:
    # The same cell in a pack with other cells, trained in one go by the loop alone.
    expected, got = (prove_training(run, AGENT_STEPS) for run in (trained["baseline"], killed.run(Cell("baseline", 0))))
    assert expected == got


# A device that holds only so many cells at a time.
NARROW_DEVICE = """
import subprocess, sys
most_cells, trainer, *runs = sys.argv[1:]
if len(runs) > int(most_cells):
    raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2147483648 bytes")
for run in runs:
    subprocess.run([sys.executable, trainer, run, "--step-seconds", "0"], check=True)
"""


@pytest.mark.parametrize(("most_cells", "packs"), [(1, [4, 2, 1, 1, 1, 1]), (2, [4, 2, 2])])
def test_a_pack_that_does_not_fit_into_device_memory_is_halved_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_cells: int, packs: list[int]
) -> None:
    def scripted(_: Any, targets: list[Target]) -> list[list[str]]:
        runs = [str(target.run.root) for target in targets]
        return [[sys.executable, "-c", NARROW_DEVICE, str(most_cells), str(TRAINER), *runs]]

    monkeypatch.setattr(launch, "train_commands", scripted)
    settings, only = tiny_settings(train={"prefill_agent_steps": 8}), {"arms": {"baseline": {}}, "conditions": []}
    file = declare_packed(tmp_path, seeds=4, agent_steps=20, pack_cells=4, settings=settings, **only)
    monkeypatch.setattr(sys, "argv", ["dreamproof", "run", str(file), *QUICK])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    state = open_study(file).state
    assert [len(one.cells) for one in state.attempts.values()] == packs
    too_large = sum(size > most_cells for size in packs)
    causes = [one.cause for one in state.attempts.values()]
    assert causes == ["device_oom"] * too_large + ["completed"] * (len(packs) - too_large)
    assert [(row["action"], row["pack_cells"]) for row in state.remedies] == [
        ("halve_pack", size // 2) for size in packs[:too_large]
    ]
    assert all(state.trained(cell) for cell in state.cells.values())
