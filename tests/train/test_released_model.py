"""World models that TD-MPC2 saved are taken over and compute what TD-MPC2 computed."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.train.offline_cells import offline_settings, record_both, write_cell

from dreamproof.agents.pwm.world_model import joined
from dreamproof.base.errors import BadInput
from dreamproof.base.files import file_hash
from dreamproof.data import released_model
from dreamproof.data.released_model import read_released_model, settings_of
from dreamproof.train import loop
from dreamproof.train.offline_pack import OfflinePack
from dreamproof.train.saving import template

FILES = Path(__file__).parents[1] / "data" / "files"
RELEASED = FILES / "tdmpc2-model.pt"
"""Saved by the agent of TD-MPC2 (commit e9f5932) with random weights, two tasks, PyTorch 2.15 and tensordict 0.15.3.
The .npz beside it holds observations, actions and what that model computes from them."""
MODEL = {"encoder_units": [12, 12], "units": [24, 24], "latent": 16, "group": 8, "reward": "two_hot", "bins": 21}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_both(tmp_path_factory.mktemp("recorded") / "both.npz", 8)


def pack_with(place: Path, file: Path, changes: dict[str, Any], model: Path = RELEASED) -> OfflinePack:
    settings = offline_settings(file, {"agent": {"world_model": MODEL | changes}, "data": {"world_model": str(model)}})
    pack = loop.read_job([write_cell(place, settings)]).pack
    assert isinstance(pack, OfflinePack)
    return pack


def test_latents_and_rewards_are_those_that_td_mpc2_computes(file: Path, tmp_path: Path) -> None:
    pack = pack_with(tmp_path, file, {})
    agent = jax.tree.map(lambda part: part[0] if eqx.is_array(part) else part, pack.prepare(pack.init()).agent)
    model, expected = agent.model, np.load(RELEASED.with_suffix(".npz"))
    task = model.task_vector(jnp.asarray(expected["task"]))
    latent = model.encode(jnp.asarray(expected["observation"]), task)
    given = joined(jnp.asarray(expected["action"]), task)
    np.testing.assert_allclose(latent, expected["latent"], atol=1e-5)
    np.testing.assert_allclose(model.dynamics.next(latent, given), expected["following"], atol=1e-5)
    # A reward is the exponential of an expectation over bins: rounding grows with it.
    np.testing.assert_allclose(model.reward(latent, given), expected["reward"], rtol=1e-4, atol=1e-4)
    assert float(jax.nn.sigmoid(model.termination_logit(latent)).max()) < 1e-9
    assert pack.sources[str(RELEASED)] == file_hash(RELEASED)


def test_the_settings_that_fit_are_named_where_others_are_used(file: Path, tmp_path: Path) -> None:
    fitting = (
        "agent: {world_model: {encoder_units: [12, 12], units: [24, 24], latent: 16, reward: two_hot, bins: 21, "
        "tasks: 2, task_size: 4}, dynamics: {kind: mlp}}, data: {observation_size: 2, action_size: 2}"
    )
    assert settings_of(read_released_model(RELEASED)) == fitting
    for number, wrong in enumerate(
        [{"units": [32, 32]}, {"latent": 24}, {"bins": 11}, {"decoder": True}, {"units": [24]}]
    ):
        pack = pack_with(tmp_path / str(number), file, wrong)
        with pytest.raises(BadInput) as caught:
            pack.prepare(template(pack))
        assert fitting in str(caught.value), wrong


@pytest.mark.parametrize(
    "wrong", [{"group": 4}, {"bin_reach": 5.0}, {"reward": "broken"}, {"reward_normalisation": "standardise"}]
)
def test_settings_that_give_its_parameters_another_meaning_are_refused(
    wrong: dict[str, Any], file: Path, tmp_path: Path
) -> None:
    pack = pack_with(tmp_path, file, wrong)
    with pytest.raises(BadInput, match="released world models have agent") as caught:
        pack.prepare(template(pack))
    assert next(iter(wrong)) in caught.value.hint


def test_a_state_dict_with_odd_shapes_or_gaps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = released_model._state_dict(RELEASED)
    weight = np.asarray(whole["_reward.1.weight"])
    odd: list[tuple[dict[str, Any], list[str], str]] = [
        ({"_reward.1.weight": weight[0]}, [], "has the shape"),
        ({"_reward.1.bias": weight}, [], "has the shape"),
        ({"_task_emb.weight": weight[0]}, [], "has the shape"),
        ({}, ["_reward.1.weight"], "no '_reward.1.weight'"),
        ({"_reward." + "9" * 5000 + ".weight": weight}, ["_reward.1.weight"], "no '_reward.1.weight'"),
    ]
    for more, fewer, expected in odd:
        found = {name: value for name, value in whole.items() if name not in fewer} | more
        monkeypatch.setattr(released_model, "_state_dict", lambda path, found=found: found)
        with pytest.raises(BadInput, match=expected):
            read_released_model(RELEASED)


def rewritten(path: Path, change: Any) -> Path:
    """The released file with another description."""
    with zipfile.ZipFile(RELEASED) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            new.writestr(info.filename, change(content) if info.filename.endswith("data.pkl") else content)
    return path


REFUSED = {
    "no world model": (lambda content: content.replace(b"_dynamics.0", b"_otherwise1"), "no world model of TD-MPC2"),
    "no reward head": (lambda content: content.replace(b"_reward.", b"_rewird."), "no '_reward.0.weight'"),
    "code": (lambda content: pickle.dumps(print), "would import builtins.print"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_file_without_a_world_model_is_refused(tmp_path: Path, case: str) -> None:
    change, expected = REFUSED[case]
    with pytest.raises(BadInput, match=expected):
        read_released_model(rewritten(tmp_path / "model.pt", change))
