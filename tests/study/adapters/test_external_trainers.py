"""The example trainer and the forty lines of the contract page do what the contract says."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.runs.reader import EvalProof, TrainProof, prove_evaluation, prove_training, read_heartbeat
from dreamproof.runs.records import ExitRecord
from dreamproof.settings.study_file import read_study
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, Cause, diagnose
from dreamproof.study.plan.commands import check_commands, run_settings
from dreamproof.testing.waiting import HANG_SECONDS, wait_for

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "line_trainer.py"
STEPS = 230_400


def forty_lines() -> str:
    page = (ROOT / "docs" / "contract.md").read_text().split("## Forty lines of plain Python")[1]
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


def write_run(root: Path, agent_steps: int, seed: int = 0, **settings: Any) -> RunFolder:
    """Writes settings.json as a supervisor does."""
    study = read_study(ROOT / "studies" / "example.yaml")
    given = run_settings(study, Cell("reward_only", seed)).model_dump(mode="json")
    root.mkdir(parents=True)
    (root / "settings.json").write_text(json.dumps({**given, "agent_steps": agent_steps, "settings": settings}))
    return RunFolder(root)


def start(script: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(
        command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


def start_and_stop(script: Path, run: RunFolder, after_steps: int) -> subprocess.CompletedProcess[str]:
    """Starts a trainer and sends SIGTERM once its heartbeat shows `after_steps`."""
    process = subprocess.Popen([sys.executable, str(script), str(run.root)], stdout=subprocess.PIPE, text=True)

    def passed_or_ended() -> bool:
        beat = read_heartbeat(run)
        return process.poll() is not None or (beat is not None and beat.agent_steps >= after_steps)

    wait_for(passed_or_ended, pause_seconds=0.005)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=HANG_SECONDS)
    return subprocess.CompletedProcess([], process.returncode, output, "")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A cell of the example, trained without a stop."""
    run = write_run(tmp_path_factory.mktemp("whole") / "run", STEPS)
    done = start(EXAMPLE, str(run.root))
    assert done.returncode == 0, done.stderr
    return run


def test_the_example_trains_and_proves_itself(trained: RunFolder) -> None:
    proof = prove_training(trained, STEPS)
    assert isinstance(proof, TrainProof)
    assert proof.gradient_steps == STEPS // (24 * 4 * 60)
    beat = read_heartbeat(trained)
    assert beat is not None and beat.phase == "done"


def test_the_example_learns(trained: RunFolder) -> None:
    rows = [json.loads(line) for line in trained.metrics.read_text().splitlines()]
    assert rows[-1]["return"] > rows[0]["return"] + 5


def test_the_example_evaluates_two_conditions_from_its_final_checkpoint(trained: RunFolder) -> None:
    proof = prove_training(trained, STEPS)
    assert isinstance(proof, TrainProof)
    for condition in ("id", "heavy"):
        assert start(EXAMPLE, str(trained.root), "--evaluate", condition).returncode == 0
        assert prove_evaluation(trained, condition, 50, proof.parameter_hash) == EvalProof(50, proof.parameter_hash)
    read = [json.loads(trained.evaluation(name).read_text())["checkpoints"]["final"] for name in ("id", "heavy")]
    assert read[0]["episodes"]["return"] != read[1]["episodes"]["return"]


def test_a_stop_and_a_resume_equal_not_stopping(trained: RunFolder, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STEPS)
    stopped = start_and_stop(EXAMPLE, run, 50_000)
    assert stopped.returncode == 0 and "stopped by SIGTERM at" in stopped.stdout
    assert "of 230,400 agent steps" in str(prove_training(run, STEPS))
    assert start(EXAMPLE, str(run.root)).returncode == 0
    whole, resumed = prove_training(trained, STEPS), prove_training(run, STEPS)
    assert isinstance(whole, TrainProof) and resumed == whole


def test_a_checkpoint_that_was_changed_is_not_resumed_from(trained: RunFolder, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STEPS, save_every_agent_steps=57_600)
    assert start(EXAMPLE, str(run.root)).returncode == 0
    (run.checkpoint_folders()[-1].root / "state.npz").write_bytes(b"torn")
    assert start(EXAMPLE, str(run.root)).returncode == 0
    assert isinstance(prove_training(run, STEPS), TrainProof)


def test_the_arms_of_the_example_differ_in_what_they_learn(trained: RunFolder, tmp_path: Path) -> None:
    hashes = set()
    for name, settings in {"fixed": {"price": 5.0}, "learned": {"price": 5.0, "cost_limit": 1.0}}.items():
        run = write_run(tmp_path / name, STEPS, **settings)
        assert start(EXAMPLE, str(run.root)).returncode == 0
        proof = prove_training(run, STEPS)
        assert isinstance(proof, TrainProof)
        hashes.add(proof.parameter_hash)
    whole = prove_training(trained, STEPS)
    assert isinstance(whole, TrainProof)
    assert len(hashes | {whole.parameter_hash}) == 3


def test_an_evaluation_without_training_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STEPS)
    done = start(EXAMPLE, str(run.root), "--evaluate", "id")
    assert done.returncode == 1 and "no trained checkpoint" in done.stderr


def test_a_misspelt_setting_is_a_bad_config(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STEPS, prize=1.0)
    done = start(EXAMPLE, str(run.root))
    record = ExitRecord(exit_code=done.returncode, wall_seconds=1.0)
    assert diagnose(AttemptEvidence(exit=record, output_tail=done.stderr)).cause is Cause.BAD_CONFIG


def test_a_probe_leaves_the_run_folder_as_it_was_but_for_its_record(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", STEPS)
    done = start(EXAMPLE, str(run.root), DREAMPROOF_PROBE="1")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in run.root.iterdir()) == ["probe.json", "settings.json"]
    given = json.loads(run.probe.read_text())
    assert list(given["phases"]) == ["build", "train", "save", "restore", "evaluate"]
    assert given["agent_steps_per_second"] > 0 and given["host_bytes"] > 1 << 20


def test_the_study_of_the_example_is_valid_and_its_commands_are_there() -> None:
    study = read_study(ROOT / "studies" / "example.yaml")
    assert (len(study.arms), len(study.seeds), len(study.conditions)) == (3, 3, 2)
    check_commands(study, ROOT / "studies")


def test_the_forty_lines_are_forty_and_import_nothing_of_ours() -> None:
    assert len(forty_lines().splitlines()) == 40
    assert "dreamproof" not in forty_lines()
    assert "import dreamproof" not in EXAMPLE.read_text() and "from dreamproof" not in EXAMPLE.read_text()


def test_the_forty_lines_train_stop_resume_and_prove(tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(forty_lines())
    run = write_run(tmp_path / "run", 40_000, seed=4, rate=0.02)
    stopped = start_and_stop(script, run, 1_000)
    assert stopped.returncode == 0 and "stopped by SIGTERM" in stopped.stdout
    assert "of 40,000 agent steps" in str(prove_training(run, 40_000))
    done = start(script, str(run.root))
    assert done.returncode == 0, done.stderr
    resumed = prove_training(run, 40_000)
    whole = write_run(tmp_path / "whole", 40_000, seed=4, rate=0.02)
    start(script, str(whole.root))
    assert isinstance(resumed, TrainProof) and resumed == prove_training(whole, 40_000)
