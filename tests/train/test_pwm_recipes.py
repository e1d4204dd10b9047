"""Tiny cells of every recipe through the loop: they train, resume with the same bits, and refuse what cannot work."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny import StopAfter, merged

from dreamproof.base.errors import BadInput
from dreamproof.base.files import write_json
from dreamproof.base.lines import read_rows
from dreamproof.data.arrays import read_arrays
from dreamproof.envs import registry
from dreamproof.envs.probes import TargetProbe
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_checkpoint
from dreamproof.runs.records import RunSettings
from dreamproof.train import loop
from dreamproof.train.bootstrapped_pack import BootstrappedPack
from dreamproof.train.pack import Pack
from dreamproof.train.pretrained_pack import PretrainedPack

pytestmark = pytest.mark.long(90)

AGENT_STEPS, PREFILL = 256, 128
# Small in every size; what makes a recipe stays.
SMALL: dict[str, Any] = {
    "agent": {
        "world_model": {"units": [16], "encoder_units": [16], "latent": 16, "termination_units": 8},
        "behavior": {"actor_units": [16], "critic_units": [16], "horizon": 4, "critic_passes": 2, "rounds": 1},
        "dynamics": {"substeps": 1},
    },
    "train": {
        "envs": 4,
        "epoch_env_steps": 4,
        "batches": 2,
        "batch": 8,
        "window": 5,
        "prefill_agent_steps": PREFILL,
        "bootstrap_updates": 10,
        "chunk_agent_steps": 32,
        "log_every_agent_steps": 64,
        "evaluate_every_agent_steps": 128,
        "validation_episodes": 2,
    },
}


def write_run(place: Path, settings: dict[str, Any], task: str = "ProbeTarget") -> RunFolder:
    """A run folder with these settings, as the supervisor would write it."""
    given = RunSettings(
        study="tiny", arm="a", seed=0, task=task, trainer="pwm", agent_steps=AGENT_STEPS, settings=settings
    )
    place.mkdir(parents=True)
    write_json(RunFolder(place).settings, given.model_dump(mode="json"))
    return RunFolder(place)


def train(run: RunFolder, looks: int = 10**6) -> bool:
    """Trains for so many chunks at most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "StopFlag", lambda: StopAfter(looks))
        return loop.train([run])


def arrays(run: RunFolder) -> dict[str, np.ndarray]:
    """All arrays of the newest checkpoint."""
    root = run.checkpoint_folders()[-1].root
    return read_arrays(root / "agent.npz") | {f"resume/{k}": v for k, v in read_arrays(root / "resume.npz").items()}


def trained(place: Path, recipe: str) -> RunFolder:
    """A run of a recipe; its checkpoint holds finite numbers after as many updates as its settings say."""
    run = write_run(place, merged(SMALL, {"recipe": recipe}))
    assert train(run)
    record = read_checkpoint(run.checkpoint_folders()[-1])
    # Epochs of one actor step, two passes of four minibatches and two model updates, after the bootstrap.
    epochs = (AGENT_STEPS - PREFILL) // 16
    assert record is not None and record.finite and record.gradient_steps == 10 + epochs * (1 + 8 + 2)
    return run


def test_a_cell_of_the_fork_trains_and_its_model_never_predicts_a_reward(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "fork")
    rows = [row for row in read_rows(run.metrics) if "imagined/reward" in row]
    assert rows and all(abs(row["imagined/reward"]) < 1e-5 < row["model/reward"] for row in rows)


def test_a_published_cell_trains_and_resumes_in_open_loop_with_the_same_bits(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", "published")
    stopped = write_run(tmp_path / "stopped", merged(SMALL, {"recipe": "published"}))
    assert not train(stopped, 2) and stopped.checkpoint_folders()[-1].agent_steps < AGENT_STEPS
    assert train(stopped)
    expected, got = arrays(whole), arrays(stopped)
    assert expected.keys() == got.keys() and "resume/memory/z" in got
    for name in expected:
        np.testing.assert_array_equal(expected[name], got[name], err_msg=name)


def test_a_bootstrap_trains_the_model_alone(tmp_path: Path) -> None:
    pack = loop.read_job([write_run(tmp_path / "run", merged(SMALL, {"recipe": "published"}))]).pack
    assert isinstance(pack, BootstrappedPack)
    plain = Pack(pack.agent, pack.env, pack.settings, [0], pack.inputs.scalars, AGENT_STEPS)
    before, after = plain.prepare(plain.init()).agent, pack.prepare(pack.init()).agent
    assert int(before.gradient_steps[0]) == 0 and int(after.gradient_steps[0]) == 10
    changed = (
        np.asarray(before.model.encoder.last.linear.weight) != np.asarray(after.model.encoder.last.linear.weight)
    ).any()
    assert changed and float(after.rewards.weight[0]) > 0
    np.testing.assert_array_equal(before.actor.log_std, after.actor.log_std)
    np.testing.assert_array_equal(before.critics.members.last.weight, after.critics.members.last.weight)


def test_a_pretrained_model_needs_no_bootstrap(tmp_path: Path) -> None:
    settings = merged(SMALL, {"recipe": "published", "data": {"world_model": "results/before"}})
    pack = loop.read_job([write_run(tmp_path / "run", settings)]).pack
    assert isinstance(pack, PretrainedPack) and not isinstance(pack, BootstrappedPack)


class LongProbe(TargetProbe):
    """Episodes of forty steps, all of the same length."""


registry.register("TestLong", lambda task, settings: LongProbe(episode_agent_steps=40))


def test_replay_by_trajectories_needs_a_finished_episode_before_the_first_epoch(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="prefill_agent_steps 128: no episode of 'ProbeTarget' ends") as error:
        loop.read_job([write_run(tmp_path / "short", merged(SMALL, {"recipe": "published"}), "TestLong")])
    assert error.value.hint == "set train.prefill_agent_steps to 164 or more"
    long = merged(SMALL, {"recipe": "published", "train": {"window": 50, "prefill_agent_steps": 400}})
    with pytest.raises(BadInput, match=r"train\.window 50: an episode of 'ProbeTarget' has 41 rows at most"):
        loop.read_job([write_run(tmp_path / "wide", long, "TestLong")])
