"""The CPU-sized study of the PWM agent, from its file to its proofs through the study engine."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.runs.reader import prove_training, read_evaluation
from dreamproof.settings.cell import PwmCell
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.packs import pack_groups
from dreamproof.study.plan.provenance import resolved_arm
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
        ("pwm_ant_10m", 1),
        ("flow_ant", 5),
        ("flow_ant_control", 3),
        ("flow_pwm", 5),
        ("flow_pwm_h16", 5),
        ("flow_pwm_repair", 4),
        ("flow_pwm_48m", 4),
        ("flow_small", 4),
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


class Work(NamedTuple):
    """What an arm spends on an agent step, and in which pieces."""

    epoch_agent_steps: int
    model_updates: float
    recorded_steps: int
    rounds: float
    imagined_states: int
    minibatches: int
    minibatch_states: float
    warm_up_agent_steps: int
    prefill_agent_steps: int


def work_of(study: str, arm: str) -> Work:
    """Per agent step: updates of the model, and rounds; in each: recorded steps, and imagined states."""
    cell = PwmCell.model_validate(resolved(study, arm))
    train, behavior = cell.train, cell.agent.behavior
    steps = train.envs * train.epoch_env_steps
    # A round imagines from every env and from replayed observations.
    states = (train.envs + behavior.replayed_starts) * behavior.horizon
    minibatches = behavior.critic_passes * behavior.critic_batches
    return Work(
        epoch_agent_steps=steps,
        model_updates=train.batches / steps,
        recorded_steps=train.batch * (train.window - 1),
        rounds=behavior.rounds / steps,
        imagined_states=states,
        minibatches=minibatches,
        minibatch_states=states / behavior.critic_batches,
        warm_up_agent_steps=behavior.warm_up_epochs * steps,
        prefill_agent_steps=train.prefill_agent_steps,
    )


def resolved(study: str, arm: str) -> dict[str, Any]:
    """Settings of an arm after defaults."""
    settings: dict[str, Any] = resolved_arm(read_study(STUDIES / f"{study}.yaml"), arm)["settings"]
    return settings


@pytest.mark.parametrize("arm", ["mlp", "euler1", "flow_v1", "flow_v2", "flow_v3"])
def test_both_horizons_of_the_flow_study_do_the_same_work(arm: str) -> None:
    short, long = (resolved(name, arm) for name in ("flow_pwm", "flow_pwm_h16"))
    assert (short["agent"]["behavior"]["horizon"], long["agent"]["behavior"]["horizon"]) == (4, 16)
    assert work_of("flow_pwm", arm) == work_of("flow_pwm_h16", arm)
    assert work_of("flow_pwm", arm).imagined_states == 2048
    assert short["agent"]["dynamics"] == long["agent"]["dynamics"]
    assert short["agent"]["world_model"] == long["agent"]["world_model"]


def test_one_euler_step_on_the_ant_is_what_was_run_before() -> None:
    before = resolved("pwm_ant", "decoder")
    assert before["agent"]["dynamics"]["predicts"] == "velocity" and before["agent"]["world_model"]["decoder"]
    for study in ("flow_ant", "pwm_ant_10m"):
        now = resolved(study, "euler1")
        now["train"]["keep_checkpoints"] = before["train"]["keep_checkpoints"]
        assert now == before


def test_the_control_on_the_ant_has_the_arms_of_the_study_and_differs_from_the_plain_network_in_dynamics_alone() -> (
    None
):
    for arm in ("mlp", "euler1", "flow_v1"):
        assert resolved("flow_ant_control", arm) == resolved("flow_ant", arm)
    plain, residual, flow = (resolved("flow_ant_control", arm) for arm in ("mlp", "residual", "euler1"))
    losses = {
        name: residual["agent"]["world_model"].pop(name) for name in ("dynamics_scale", "endpoint_scale", "source_pull")
    }
    # The loss of the plain network is that of its end point; its weight there is dynamics_scale.
    assert losses == {
        "dynamics_scale": 0.0,
        "endpoint_scale": plain["agent"]["world_model"]["dynamics_scale"],
        "source_pull": 1.0,
    }
    assert residual["agent"].pop("dynamics") == flow["agent"]["dynamics"]
    for name in losses:
        plain["agent"]["world_model"].pop(name)
    plain["agent"].pop("dynamics")
    assert residual == plain
