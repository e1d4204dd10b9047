"""What networks say: rewards that decode to what they were, simplexes, norms, first weights, embeddings of tasks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.nn.activations import mish
from dreamproof.nn.heads import SymlogTwoHot, symexp, symlog
from dreamproof.nn.normed import LayerNorm
from dreamproof.nn.simplex import centred_logits, grouped, on_simplex, simnorm

TWO_HOT = SymlogTwoHot(101, 10.0)


@pytest.fixture(scope="module", params=["scalar", "two_hot"])
def rewarded(request: pytest.FixtureRequest) -> Any:
    """A model after 3,000 updates on short windows of the turning system."""
    agent = toy.make_agent(world_model={"reward": request.param})
    return toy.train_model(agent, 3_000, rate=2e-3, steps=1)[0]


@eqx.filter_jit
def imagined(model: Any) -> tuple[jax.Array, ...]:
    """Rewards that the model predicts for fresh windows and the true ones, and both slopes in the action; all flat."""
    drawn = toy.windows(jax.random.key(77), batch=64)
    seen, action = drawn.observation[:-1], drawn.action[1:]
    z = model.encode(seen)
    slope = jax.grad(lambda a: model.reward(z, a).sum())(action)
    # ∂r/∂a is the second number of the observation.
    return tuple(part.ravel() for part in (model.reward(z, action), drawn.reward[1:], slope, seen[..., 1]))


def test_imagined_rewards_are_the_true_ones_after_three_thousand_steps(rewarded: Any) -> None:
    predicted, true, _, _ = (np.asarray(part) for part in imagined(rewarded.model))
    assert np.corrcoef(predicted, true)[0, 1] > 0.99
    # The right unit too, not only the right order.
    assert np.abs(predicted - true).mean() < 0.1 * np.abs(true).mean()


def test_the_imagined_reward_has_the_slope_of_the_true_one(rewarded: Any) -> None:
    _, _, slope, true_slope = (np.asarray(part) for part in imagined(rewarded.model))
    assert np.corrcoef(slope, true_slope)[0, 1] > 0.9


def test_two_hot_rewards_come_back_as_they_went_in() -> None:
    values = jnp.concatenate([jnp.linspace(-50.0, 50.0, 401), jnp.array([0.0, 1e-3, -1e-3, 2.0e4, -2.0e4])])
    weights = TWO_HOT.encode(values)
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert int((weights > 0).sum(-1).max()) <= 2
    np.testing.assert_allclose(TWO_HOT.decode(jnp.log(weights + 1e-30)), values, rtol=2e-4, atol=1e-5)


def test_two_hot_rewards_are_cut_at_the_outermost_bins() -> None:
    weights = TWO_HOT.encode(jnp.array([1e9, -1e9]))
    np.testing.assert_array_equal(weights.argmax(-1), [100, 0])


def test_the_two_hot_loss_is_least_at_its_own_target() -> None:
    target = jnp.array([-3.0, 0.1, 7.0])
    own = jnp.log(TWO_HOT.encode(target) + 1e-9)
    slope = jax.grad(lambda logits: TWO_HOT.loss(logits, target).sum())(own)
    np.testing.assert_allclose(slope, 0.0, atol=1e-5)


def test_equal_logits_decode_to_zero_whatever_their_level() -> None:
    # Why a squared error on logits cannot teach a two-hot head: all levels mean the same.
    for level in (-3.0, 0.0, 5.0):
        assert float(TWO_HOT.decode(jnp.full(101, level))) == pytest.approx(0.0, abs=1e-4)


def test_symexp_undoes_symlog() -> None:
    values = jnp.linspace(-100, 100, 41)
    np.testing.assert_allclose(symexp(symlog(values)), values, rtol=1e-5, atol=1e-5)


def test_mish_is_x_times_tanh_of_softplus_and_so_is_its_slope() -> None:
    x = jnp.linspace(-30.0, 60.0, 181)
    np.testing.assert_allclose(mish(x), x * jnp.tanh(jax.nn.softplus(x)), rtol=2e-6, atol=1e-6)
    slope, expected = (jax.vmap(jax.grad(f))(x) for f in (mish, lambda v: v * jnp.tanh(jax.nn.softplus(v))))
    np.testing.assert_allclose(slope, expected, rtol=1e-4, atol=1e-5)


def test_a_layer_norm_gives_zero_mean_and_unit_variance() -> None:
    x = 5 + 3 * jax.random.normal(jax.random.key(0), (7, 64))
    y = LayerNorm(64)(x)
    np.testing.assert_allclose(y.mean(-1), 0.0, atol=1e-5)
    np.testing.assert_allclose(y.var(-1), 1.0, rtol=1e-4)


def test_the_nearest_point_of_the_simplex_is_found() -> None:
    x = 2 * jax.random.normal(jax.random.key(0), (200, 16))
    found = np.asarray(grouped(on_simplex(x, 8), 8)).reshape(-1, 8)
    for point, given in zip(found, np.asarray(grouped(x, 8)).reshape(-1, 8), strict=True):
        high = np.sort(given)[::-1]
        sums = (np.cumsum(high) - 1) / np.arange(1, 9)
        threshold = sums[np.flatnonzero(high > sums)[-1]]
        np.testing.assert_allclose(point, np.maximum(given - threshold, 0), atol=1e-5)


def _sorted_projection(x: jax.Array) -> jax.Array:
    """The projection of groups of 8 in the form of its paper, with the slope that a compiler derives from it."""
    shaped = grouped(x, 8)
    high = jnp.flip(jnp.sort(shaped, -1), -1)
    sums = (jnp.cumsum(high, -1) - 1) / jnp.arange(1, 9)
    count = (high > sums).sum(-1, keepdims=True)
    return jnp.maximum(shaped - jnp.take_along_axis(sums, count - 1, -1), 0).reshape(x.shape)


def _plain_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    deviation = jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / deviation * scale + shift


@pytest.mark.parametrize(
    ("ours", "plain"),
    [
        (lambda x: on_simplex(x, 8), _sorted_projection),
        (lambda x: simnorm(x, 8), lambda x: jax.nn.softmax(grouped(x, 8)).reshape(x.shape)),
    ],
    ids=["projection", "softmax"],
)
def test_slopes_that_are_written_down_are_those_of_the_plain_form(ours: Any, plain: Any) -> None:
    x, weight = jax.random.normal(jax.random.key(0), (2, 50, 16))
    made, pull = jax.vjp(ours, x)
    expected, plain_pull = jax.vjp(plain, x)
    np.testing.assert_allclose(made, expected, atol=1e-6)
    np.testing.assert_allclose(pull(weight)[0], plain_pull(weight)[0], atol=1e-6)


def test_what_is_known_takes_the_place_of_a_projection_and_has_its_slope() -> None:
    x, weight = jax.random.normal(jax.random.key(0), (2, 50, 16))
    for function in (on_simplex, simnorm):
        made, pull = jax.vjp(lambda x, function=function: function(x, 8), x)
        again, known_pull = jax.vjp(lambda x, function=function, made=made: function(x, 8, made), 0 * x)
        np.testing.assert_array_equal(again, made)
        np.testing.assert_array_equal(known_pull(weight)[0], pull(weight)[0])


def test_all_gradients_of_a_layer_norm_are_those_of_the_plain_form() -> None:
    x, weight = 2 + 3 * jax.random.normal(jax.random.key(0), (2, 7, 64))
    scale, shift = 1 + jax.random.normal(jax.random.key(1), (2, 64))

    def ours(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
        return eqx.tree_at(lambda norm: (norm.scale, norm.shift), LayerNorm(64), (scale, shift))(x)

    found = jax.vjp(ours, x, scale, shift)[1](weight)
    for one, expected in zip(found, jax.vjp(_plain_norm, x, scale, shift)[1](weight), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


def test_a_point_on_the_simplex_stays_where_it_is() -> None:
    z = simnorm(jax.random.normal(jax.random.key(0), (5, 16)), 8)
    np.testing.assert_allclose(on_simplex(z, 8), z, atol=1e-6)


def test_centred_logits_lead_back_to_their_latent() -> None:
    z = simnorm(jax.random.normal(jax.random.key(0), (5, 16)), 8)
    logits = centred_logits(z, 8, 1e-4)
    np.testing.assert_allclose(grouped(logits, 8).mean(-1), 0.0, atol=1e-6)
    np.testing.assert_allclose(simnorm(logits, 8), z, atol=1e-6)


@pytest.fixture(scope="module")
def two_tasks() -> Any:
    """A fresh agent of two tasks."""
    return toy.fresh(toy.make_agent(world_model={"tasks": 2, "task_size": 4, "units": [64, 64], "latent": 64}))


def test_first_weights_are_as_published(two_tasks: Any) -> None:
    weight = np.asarray(two_tasks.model.dynamics.network.hidden[1].linear.weight)
    assert weight.std() == pytest.approx(0.02, rel=0.05)
    assert not np.asarray(two_tasks.model.reward_head.last.weight).any()
    np.testing.assert_allclose(two_tasks.actor.log_std, -1.0)
    assert np.abs(np.asarray(two_tasks.actor.network.hidden[0].linear.weight)).max() <= 1 / np.sqrt(64)
    assert np.abs(np.asarray(two_tasks.model.tasks)).max() <= 0.02
    tall = np.asarray(two_tasks.critics.members.hidden[0].linear.weight[0])
    np.testing.assert_allclose(tall.T @ tall, 2 * np.eye(16), atol=1e-4)


def test_hidden_layers_of_the_model_norm_first_and_those_of_the_actor_last(two_tasks: Any) -> None:
    layer, x = two_tasks.model.dynamics.network.hidden[1], jax.random.normal(jax.random.key(1), (4, 64))
    np.testing.assert_allclose(layer(x), mish(layer.norm(layer.linear(x))), rtol=1e-5)
    layer = two_tasks.actor.network.hidden[0]
    np.testing.assert_allclose(layer(x), layer.norm(mish(layer.linear(x))), rtol=1e-5)


def test_a_task_vector_is_never_longer_than_one_and_changes_what_is_encoded(two_tasks: Any) -> None:
    model = two_tasks.model
    tasks = jnp.array([[0.1, 0.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]])
    model = eqx.tree_at(lambda made: made.tasks, model, tasks)

    @eqx.filter_jit
    def shown(model: Any) -> tuple[jax.Array, jax.Array]:
        vectors = model.task_vector(jnp.arange(2))
        return vectors, model.encode(jnp.ones((2, 2)), vectors)

    vectors, encoded = shown(model)
    np.testing.assert_allclose(vectors, [[0.1, 0, 0, 0], [0.6, 0.8, 0, 0]], rtol=1e-5)
    assert float(jnp.abs(encoded[0] - encoded[1]).max()) > 1e-4
