"""Parameter counts equal the published ones, without allocating a single parameter."""

import math
from typing import Any

import equinox as eqx
import jax
import pytest

from dreamproof.agents.pwm.agent import PwmAgent, PwmState
from dreamproof.jaxcore.types import Spec
from dreamproof.settings.pwm import PwmSettings

ANT = Spec("Ant", observation_size=37, action_size=8, episode_agent_steps=1000)
MT30 = Spec("MT30", observation_size=24, action_size=6, episode_agent_steps=500, task=0)
MT80 = Spec("MT80", observation_size=39, action_size=6, episode_agent_steps=500, task=0)
V1 = {"kind": "flow", "integrator": "heun", "substeps": 2}
V2 = {"kind": "flow", "integrator": "heun", "substeps": 4}
V3 = {"kind": "flow", "integrator": "euler", "substeps": 8}


def shapes(spec: Spec, **settings: Any) -> PwmState:
    """The state as shapes alone."""
    return eqx.filter_eval_shape(PwmAgent(spec, PwmSettings.model_validate(settings)).init_state, jax.random.key(0))


def count(tree: Any) -> int:
    """Numbers in all arrays of a tree of shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(eqx.filter(tree, lambda x: hasattr(x, "shape"))))


def model_counts(state: PwmState) -> tuple[int, int, int]:
    """Encoder, dynamics and reward."""
    return count(state.model.encoder), count(state.model.dynamics), count(state.model.reward_head)


def model_total(state: PwmState) -> int:
    """Encoder, dynamics, reward and task embedding: what the published table counts."""
    return sum(model_counts(state)) + count(state.model.tasks)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("5M", (142_848, 795_136, 583_269)), ("48M", (7_883_520, 5_991_168, 4_793_701))],
)
def test_the_parts_of_a_model_for_the_ant_count_as_published(size: str, expected: tuple[int, int, int]) -> None:
    assert model_counts(shapes(ANT, world_model={"size": size, "reward": "two_hot"})) == expected


@pytest.mark.parametrize(("size", "expected"), [("5M", 1_469_953), ("48M", 18_489_089)])
def test_a_scalar_reward_head_counts_as_published(size: str, expected: int) -> None:
    assert model_total(shapes(ANT, world_model={"size": size, "reward": "scalar"})) == expected


@pytest.mark.parametrize(
    ("spec", "world_model", "expected"),
    [
        (MT30, {"size": "5M", "tasks": 30, "task_size": 64}, 1_599_717),
        (MT80, {"size": "5M", "tasks": 80, "task_size": 96}, 1_650_277),
        (MT30, {"size": "19M", "tasks": 30, "task_size": 64}, 5_603_301),
        (MT80, {"size": "19M", "tasks": 80, "task_size": 96, "latent": 768}, 6_772_837),
        (MT30, {"size": "48M", "tasks": 30, "task_size": 64}, 18_983_909),
        (MT80, {"size": "48M", "tasks": 80, "task_size": 96}, 19_188_581),
        (MT30, {"size": "317M", "tasks": 30, "task_size": 64}, 107_886_629),
        (MT30, {"size": "317M", "tasks": 30, "task_size": 96}, 108_280_805),
        (MT80, {"size": "317M", "tasks": 80, "task_size": 96}, 108_347_045),
    ],
)
def test_models_of_many_tasks_count_as_published(spec: Spec, world_model: dict[str, Any], expected: int) -> None:
    assert model_total(shapes(spec, world_model=world_model | {"reward": "two_hot"})) == expected


@pytest.mark.parametrize(("size", "actor", "critic"), [("5M", 307_716, 286_801), ("48M", 410_116, 389_201)])
def test_actor_and_critics_count_as_published(size: str, actor: int, critic: int) -> None:
    state = shapes(ANT, world_model={"size": size})
    assert count(state.actor) == actor
    assert count(state.critics) == 3 * critic


def test_the_flow_policy_counts_as_published() -> None:
    assert count(shapes(ANT, behavior={"policy": "flow"}).actor) == 311_316


@pytest.mark.parametrize("dynamics", [V1, V2, V3, V2 | {"space": "logits"}])
@pytest.mark.parametrize("size", ["5M", "48M"])
def test_a_flow_has_as_many_parameters_as_the_plain_network_within_two_percent(size: str, dynamics: Any) -> None:
    plain = model_total(shapes(ANT, world_model={"size": size}))
    flow = model_total(shapes(ANT, world_model={"size": size}, dynamics=dynamics))
    assert abs(flow - plain) / plain < 0.02


@pytest.mark.parametrize(("dynamics", "expected"), [({"kind": "mlp"}, 1), (V1, 4), (V2, 8), (V3, 8)])
def test_settings_say_how_often_an_imagined_step_evaluates_the_network(dynamics: Any, expected: int) -> None:
    assert PwmSettings.model_validate({"dynamics": dynamics}).dynamics.evaluations == expected
