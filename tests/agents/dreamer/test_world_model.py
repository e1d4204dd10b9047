"""The world model: entities are a set, a first observation forgets the past, swaps are as many as asked for."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.tiny import tiny_cell

from dreamproof.agents.api import Batch
from dreamproof.agents.dreamer.entities import entity_error, nearer
from dreamproof.agents.dreamer.world_model import (
    DreamerWorldModel,
    Latent,
    ObserveInputs,
    ObserveOutputs,
    observe_scan,
    swap_latents,
    world_model_loss,
)
from dreamproof.jaxcore.types import Spec
from dreamproof.settings.traced import traced_values

ENTITIES = 4
# Two numbers of the robot, one that names the world's axes, then four entities of two numbers each.
SPEC = Spec(
    "Entities",
    observation_size=11,
    action_size=2,
    episode_agent_steps=10,
    max_step_cost=5.0,
    slots=(("velocity", 0, 2), ("compass", 2, 3), ("hazards", 3, 11)),
    entities=(3, 11, 2),
    absolute=("compass",),
)


def build(**world_model: Any) -> Any:
    """Makes a tiny model of SPEC from a key."""
    settings = tiny_cell({"world_model": world_model}).agent.world_model
    return lambda key: DreamerWorldModel(key, SPEC, settings, jnp.float32)


@pytest.fixture(scope="module")
def model() -> DreamerWorldModel:
    """Gaussian latents."""
    return eqx.filter_jit(build())(jax.random.key(0))


@pytest.fixture(scope="module")
def state(model: DreamerWorldModel) -> Latent:
    """Random states of three envs."""
    keys = jax.random.split(jax.random.key(1), 3)
    return Latent(*(jax.random.normal(key, part.shape) for key, part in zip(keys, model.initial((3,)), strict=True)))


@eqx.filter_jit
def judged(model: DreamerWorldModel, state: Latent) -> tuple[jax.Array, ...]:
    """Feature, cost and margin of a state."""
    feature = model.feature(state)
    return feature, model.step_costs(state, feature)[0], model.step_margin(state, feature)


def test_the_order_of_entities_changes_neither_feature_nor_cost_nor_margin(
    model: DreamerWorldModel, state: Latent
) -> None:
    turned = state._replace(e=state.e[:, jnp.array([2, 0, 3, 1])])
    jax.tree.map(np.testing.assert_array_equal, judged(model, state), judged(model, turned))


def test_another_entity_changes_what_is_seen(model: DreamerWorldModel, state: Latent) -> None:
    other = state._replace(e=state.e.at[:, 1].add(0.7))
    assert float(jnp.abs(judged(model, state)[0] - judged(model, other)[0]).max()) > 1e-3


def test_the_cost_of_a_step_lies_between_zero_and_the_most(model: DreamerWorldModel, state: Latent) -> None:
    cost = np.asarray(judged(model, state)[1])
    assert ((cost >= 0) & (cost <= SPEC.max_step_cost)).all()


def test_entities_move_one_by_one_and_alike(model: DreamerWorldModel, state: Latent) -> None:
    order = jnp.array([2, 0, 3, 1])
    moved, turned = (eqx.filter_jit(model.moved)(state.h, e) for e in (state.e, state.e[:, order]))
    np.testing.assert_allclose(moved[:, order], turned, rtol=1e-5, atol=1e-6)


def test_the_recurrent_part_sees_neither_entities_nor_the_axes_of_the_world(model: DreamerWorldModel) -> None:
    assert model.rest_slots == (0, 1)
    shape = eqx.filter_eval_shape
    assert shape(build(absolute=True), jax.random.key(0)).rest_slots == (0, 1, 2)
    assert shape(build(entities=False), jax.random.key(0)).rest_slots == (0, 1, *range(3, 11))


def test_entities_are_read_from_the_observation_as_they_are(model: DreamerWorldModel) -> None:
    observation = jnp.arange(11.0)
    np.testing.assert_array_equal(model.seen_entities(observation), np.arange(3.0, 11.0).reshape(4, 2))


def test_a_type_is_seen_and_never_moves(state: Latent) -> None:
    spec = SPEC._replace(observation_size=19, slots=(), absolute=(), entities=(3, 19, 4), entity_types=2)
    typed = DreamerWorldModel(jax.random.key(0), spec, tiny_cell({}).agent.world_model, jnp.float32)
    kinds = jnp.tile(jnp.eye(2)[jnp.array([0, 0, 1, 1])], (3, 1, 1))
    typed_state = state._replace(e=jnp.concatenate([state.e, kinds], -1))
    swapped = state._replace(e=jnp.concatenate([state.e, kinds[:, ::-1]], -1))
    for one, other in zip(judged(typed, typed_state), judged(typed, swapped), strict=True):
        assert float(jnp.abs(one - other).max()) > 1e-4
    moved = typed.moved(typed_state.h, typed_state.e)
    assert float(jnp.abs(moved - typed_state.e)[..., :2].max()) > 0
    np.testing.assert_array_equal(moved[..., 2:], kinds)
    # Types count neither in distances nor in errors.
    np.testing.assert_array_equal(nearer(typed_state.e, 0.1, 2)[..., :2], nearer(state.e, 0.1))
    np.testing.assert_array_equal(entity_error(moved, typed_state.e, 2), entity_error(moved[..., :2], state.e))


def test_a_first_observation_forgets_the_past(model: DreamerWorldModel, state: Latent) -> None:
    observation = jax.random.normal(jax.random.key(2), (3, 11))

    @eqx.filter_jit
    def observed(state: Latent, action: jax.Array, first: jax.Array) -> Latent:
        seen = (model.encode(observation), model.seen_entities(observation))
        return model.observe(state, action, seen, first, model.noise(jax.random.key(3), first.shape))[0]

    action, first = jnp.ones((3, 2)), jnp.array([1.0, 1.0, 0.0])
    fresh = observed(model.initial((3,)), jnp.zeros((3, 2)), first)
    later = observed(state, action, first)
    np.testing.assert_array_equal(fresh.h[:2], later.h[:2])
    np.testing.assert_array_equal(fresh.z[:2], later.z[:2])
    assert float(jnp.abs(fresh.h[2] - later.h[2]).max()) > 1e-3


@pytest.mark.parametrize("latent", ["gaussian", "categorical"])
def test_exactly_as_many_groups_are_swapped_as_asked_for(latent: str, model: DreamerWorldModel) -> None:
    outputs = model if latent == "gaussian" else eqx.filter_jit(build(latent=latent, classes=4))(jax.random.key(0))
    start, groups = outputs.initial((50,)), outputs.settings.groups
    swap = eqx.filter_jit(lambda count, key: swap_latents(outputs, start, count, key).z.reshape(50, groups, -1))
    for count in (0, 1, 3, groups):
        # The initial latent is all zeros, so that every swapped group shows.
        changed = (np.asarray(swap(jnp.asarray(float(count)), jax.random.key(4))) != 0).any(-1)
        np.testing.assert_array_equal(changed.sum(1), count)
        if count == 1:
            assert len(np.unique(changed, axis=0)) == groups


@pytest.fixture(scope="module")
def batch() -> Batch:
    """Random windows (5, 3) whose second window holds a new episode."""
    keys = jax.random.split(jax.random.key(5), 3)
    zero = jnp.zeros((5, 3))
    return Batch(
        observation=jax.random.normal(keys[0], (5, 3, 11)),
        action=jax.random.uniform(keys[1], (5, 3, 2)),
        reward=jax.random.normal(keys[2], (5, 3)),
        cost=zero,
        margin=zero + 0.1,
        first=zero.at[2, 1].set(1.0),
        terminated=zero,
        held_out=jnp.zeros(3),
    )


@pytest.fixture(scope="module")
def loss() -> Any:
    """The compiled loss of a model on a batch."""
    scales = traced_values(tiny_cell().agent)["world_model"]
    return eqx.filter_jit(lambda model, batch: world_model_loss(model, batch, jax.random.key(6), scales))


def test_reward_and_cost_of_a_first_step_are_not_learned(model: DreamerWorldModel, batch: Batch, loss: Any) -> None:
    # A head that starts at zero answers every target alike.
    model = eqx.tree_at(lambda outputs: outputs.reward.output.bias, model, jnp.arange(21.0))
    total = loss(model, batch)[0]
    strange = batch._replace(reward=batch.reward.at[2, 1].set(50.0), cost=batch.cost.at[2, 1].set(5.0))
    assert float(loss(model, strange)[0]) == float(total)
    seen = batch._replace(reward=batch.reward.at[3, 1].set(50.0))
    assert float(loss(model, seen)[0]) != float(total)


def test_what_led_to_a_first_step_does_not_matter(model: DreamerWorldModel, batch: Batch, loss: Any) -> None:
    states = loss(model, batch)[1].states
    past = batch._replace(observation=batch.observation.at[:2, 1].add(1.0), action=batch.action.at[1:3, 1].set(-1.0))
    others = loss(model, past)[1].states
    np.testing.assert_array_equal(states.h[2:, 1], others.h[2:, 1])
    assert float(jnp.abs(states.h[1, 1] - others.h[1, 1]).max()) > 1e-4


def test_an_entity_that_jumps_is_no_motion_to_be_learned(model: DreamerWorldModel, batch: Batch, loss: Any) -> None:
    far = batch._replace(observation=batch.observation.at[3, 0, 3:5].set(1e3))
    assert float(loss(model, far)[1].metrics["model/entities"]) < 1e3
    assert np.isfinite(float(loss(model, far)[0]))


def test_gradients_made_after_the_scan_are_those_made_step_by_step(model: DreamerWorldModel, batch: Batch) -> None:
    embedding = model.encode(batch.observation)
    rows = ObserveInputs(batch.action, embedding, batch.first, model.noise(jax.random.key(7), batch.first.shape))

    def step_by_step(given: tuple[DreamerWorldModel, ObserveInputs]) -> ObserveOutputs:
        model, rows = given
        state, outputs = model.initial((3,)), []
        for row in map(ObserveInputs, *rows):
            state, output = model.observe(state, row.action, (row.embedding, state.e), row.first, row.noise)
            outputs.append(ObserveOutputs(state.h, state.z, output))
        return jax.tree.map(lambda *parts: jnp.stack(parts), *outputs)

    def differentiate(observe: Any) -> Any:
        def loss(given: tuple[DreamerWorldModel, ObserveInputs]) -> jax.Array:
            return sum(((x - 0.3) ** 2).sum() for x in observe(given))

        return eqx.filter_jit(eqx.filter_value_and_grad(loss))((model, rows))

    (value, (network, given)), (plain_value, (plain_network, plain_given)) = (
        differentiate(observe_scan),
        differentiate(step_by_step),
    )
    np.testing.assert_allclose(value, plain_value, rtol=1e-6)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5), network, plain_network)
    np.testing.assert_allclose(given.embedding, plain_given.embedding, rtol=2e-4, atol=2e-5)
