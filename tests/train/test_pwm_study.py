"""The CPU-sized study of the PWM agent, from its file to its proofs through the study engine."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.runs.reader import prove_training, read_evaluation
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.packs import pack_groups
from dreamproof.testing.waiting import HANG_SECONDS

pytestmark = pytest.mark.long(40)

STUDIES = Path(__file__).parents[2] / "studies"


def test_the_smoke_study_is_trained_evaluated_and_proven_by_the_engine(tmp_path: Path) -> None:
    declared = yaml.safe_load((STUDIES / "pwm_smoke.yaml").read_text()) | {"agent_steps": 640}
    declared["arms"] = {"flow": declared["arms"]["flow"]}
    declared["reference_arm"] = "flow"
    study = tmp_path / "pwm_smoke.yaml"
    study.write_text(yaml.safe_dump(declared))
    command = [sys.executable, "-m", "dreamproof.cli", "run", str(study), "--no-check", "--no-report", "--plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything is proven" in done.stdout
    folder = StudyFolder(tmp_path / "results" / "pwm_smoke")
    for seed in (0, 1):
        run = folder.run(Cell("flow", seed))
        proof = prove_training(run, 640)
        assert not isinstance(proof, str), proof
        record = read_evaluation(run, "id")
        assert record is not None
        assert record.checkpoints["final"].parameter_hash == proof.parameter_hash
        assert record.checkpoints["final"].episodes["length"] == [20.0] * 8


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("pwm_smoke", 2),
        ("pwm_cheetah_run", 1),
        ("pwm_walker_walk", 1),
        ("pwm_ant", 1),
        ("flow_ant", 5),
        ("flow_pwm", 5),
        ("flow_pwm_h16", 5),
        ("flow_pwm_48m", 4),
        ("flow_factorial", 4),
        ("pwm_recipes", 3),
        ("pwm_samples_100k", 2),
        ("pwm_samples_500k", 2),
        ("pwm_samples_1m", 1),
    ],
)
def test_the_declared_studies_are_valid_and_only_arms_of_one_shape_share_a_pack(name: str, shapes: int) -> None:
    study = read_study(STUDIES / f"{name}.yaml")
    groups = pack_groups(study)
    assert len(set(groups.values())) == shapes
