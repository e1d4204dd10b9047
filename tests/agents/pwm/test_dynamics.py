"""Dynamics: flows stay on the simplex and learn, the users' broken head cannot, and network evaluations are counted."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents.pwm import toy

from dreamproof.agents.pwm.dynamics import MIN_PROBABILITY, FlowDynamics, make_dynamics, padded
from dreamproof.agents.pwm.world_model import world_model_loss
from dreamproof.nn.normed import NormedMLP
from dreamproof.nn.simplex import centred, centred_logits, grouped, on_simplex, simnorm
from dreamproof.settings.added import without_added
from dreamproof.settings.pwm import DynamicsSettings
from dreamproof.settings.traced import traced_values

LATENT, GIVEN, GROUP = 32, 3, 8
VARIANTS: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp"},
    "v1": {"kind": "flow", "integrator": "heun", "substeps": 2},
    "v2": {"kind": "flow", "integrator": "heun", "substeps": 4},
    "v3": {"kind": "flow", "integrator": "euler", "substeps": 8},
    "ends": {"kind": "flow", "integrator": "heun", "substeps": 2, "predicts": "end"},
    "euler velocity": {"kind": "flow", "integrator": "euler", "substeps": 1},
    "euler ends": {"kind": "flow", "integrator": "euler", "substeps": 3, "predicts": "end"},
    "skip": {"kind": "flow", "integrator": "heun", "substeps": 2, "predicts": "end", "skip": True},
    "logits": {"kind": "flow", "integrator": "euler", "substeps": 2, "space": "logits"},
    "noisy": {"kind": "flow", "integrator": "euler", "substeps": 2, "source_noise": 0.1},
}
FLOOR = sum(0.99**t * (1 + t) ** 2 / 64 for t in range(16)) / 16


def made(variant: str) -> Any:
    """Fresh dynamics."""
    settings = DynamicsSettings.model_validate(VARIANTS[variant])
    return make_dynamics(jax.random.key(0), (LATENT, GIVEN), (24, 24), GROUP, settings, jnp.float32)


def far(variant: str) -> Any:
    """Dynamics with large weights, also where fresh ones have none, so that it moves far."""
    leaves, tree = jax.tree.flatten(made(variant))
    keys = jax.random.split(jax.random.key(9), len(leaves))
    return tree.unflatten([x + 0.4 * jax.random.normal(key, x.shape) for key, x in zip(keys, leaves, strict=True)])


def some_step(key: int = 1) -> tuple[jax.Array, jax.Array]:
    """Latents (5, L) and what is given."""
    z_key, given_key = jax.random.split(jax.random.key(key))
    return simnorm(3 * jax.random.normal(z_key, (5, LATENT)), GROUP), jax.random.normal(given_key, (5, GIVEN))


@pytest.mark.parametrize(("variant", "expected"), [("mlp", 1), ("v1", 4), ("v2", 8), ("v3", 8), ("ends", 4)])
def test_an_imagined_step_evaluates_the_network_so_often(
    variant: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = NormedMLP.__call__

    def counted(self: NormedMLP, x: jax.Array, tape: Any = None) -> jax.Array:
        calls.append(x.shape)
        return original(self, x, tape)

    monkeypatch.setattr(NormedMLP, "__call__", counted)
    jax.eval_shape(made(variant).next, *some_step())
    assert len(calls) == expected
    assert DynamicsSettings.model_validate(VARIANTS[variant]).evaluations == expected


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_groups_stay_probabilities_over_sixteen_steps(variant: str) -> None:
    dynamics = far(variant)
    z, given = some_step()

    @eqx.filter_jit
    def walk(dynamics: Any, z: jax.Array) -> jax.Array:
        def step(now: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            following = dynamics.next(now, given, key)
            return following, following

        return jax.lax.scan(step, z, jax.random.split(jax.random.key(2), 16))[1]

    walked = np.asarray(walk(dynamics, z))
    np.testing.assert_allclose(walked.reshape(16, 5, -1, GROUP).sum(-1), 1.0, atol=1e-5)
    assert walked.min() >= 0.0
    assert np.abs(walked[0] - np.asarray(z)).max() > 0.05


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_dynamics_that_is_ready_steps_as_before(variant: str) -> None:
    dynamics = far(variant)
    step = (*some_step(), jax.random.key(3))
    ready = dynamics.ready()
    np.testing.assert_allclose(ready.next(*step), dynamics.next(*step), atol=1e-5)
    in_compute_dtype = eqx.tree_at(lambda made: made.network, ready, ready.network.in_compute_dtype())
    assert in_compute_dtype.network.inputs % 32 == 0
    np.testing.assert_allclose(in_compute_dtype.next(*step), dynamics.next(*step), atol=1e-5)


def test_a_velocity_has_no_mean_in_any_group_and_so_keeps_the_sums() -> None:
    dynamics = far("v1")
    z, given = some_step()
    velocity = dynamics.predicted(z, given, jnp.full((5, 1), 0.3))
    np.testing.assert_allclose(grouped(velocity, GROUP).mean(-1), 0.0, atol=1e-5)
    assert float(jnp.abs(velocity).max()) > 0.1


@pytest.mark.parametrize("variant", ["v1", "v2", "v3", "logits"])
def test_a_fresh_flow_stands_still(variant: str) -> None:
    z, given = some_step()
    # Logits know no probability below the least; what the others of a group have too much, one has too little.
    tolerance = GROUP * MIN_PROBABILITY if variant == "logits" else 1e-6
    np.testing.assert_allclose(made(variant).next(z, given), z, atol=tolerance)


@pytest.mark.parametrize("predicts", ["velocity", "end"])
@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("heun", 2)])
def test_integrators_have_the_order_of_their_rule(
    integrator: str, order: int, predicts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # dx/dτ = x·(1 − τ) from x = 1 ends in exp(1/2); its straight line through x ends in x + x·(1 − τ)².
    fields = {"velocity": lambda x, time: x * (1 - time), "end": lambda x, time: x + x * (1 - time) ** 2}
    monkeypatch.setattr(FlowDynamics, "predicted", lambda self, x, given, time, tape: fields[predicts](x, time))
    monkeypatch.setattr(FlowDynamics, "_latent", lambda self, x, known: x)
    errors = []
    for substeps in (4, 8):
        settings = DynamicsSettings.model_validate(
            {"kind": "flow", "integrator": integrator, "substeps": substeps, "predicts": predicts}
        )
        flow = FlowDynamics(jax.random.key(0), (8, 1), (4,), 8, settings, jnp.float32)
        errors.append(abs(float(flow.next(jnp.ones((1, 8)), jnp.zeros((1, 1)))[0, 0]) - np.exp(0.5)))
    assert errors[0] / errors[1] == pytest.approx(2.0**order, rel=0.35)


def test_the_target_of_a_flow_is_the_straight_way_and_is_matched_where_the_velocity_equals_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = made("v1")
    z, given = some_step(1)
    target, _ = some_step(2)
    monkeypatch.setattr(FlowDynamics, "predicted", lambda self, x, given, time: target - z)
    losses = flow.losses(jnp.stack([z, z]), given[None], target[None], 1.0, jax.random.key(3))
    np.testing.assert_allclose(losses["dynamics"][0], 0.0, atol=1e-12)
    np.testing.assert_allclose(losses["endpoint"][0], jnp.square(target - z).mean(-1), rtol=1e-6)


@pytest.mark.parametrize("loss", ["dynamics", "endpoint"])
def test_without_a_pull_only_the_velocity_sends_a_gradient_into_the_encoder(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flow of zero velocity ends where it starts; its errors pull the start latent, to the share that is set."""
    flow = made("v1")
    z, given = some_step(1)
    target, _ = some_step(2)
    monkeypatch.setattr(FlowDynamics, "predicted", lambda self, x, given, time, tape=None: jnp.zeros_like(x))

    def error(x: jax.Array, pull: float) -> jax.Array:
        steps = jnp.stack([x, flow.next(x, given)]), given[None], target[None]
        return flow.losses(*steps, pull, jax.random.key(3))[loss].sum()

    def slope(pull: float) -> jax.Array:
        return jax.grad(error)(z, pull)

    np.testing.assert_allclose(slope(0.0), 0.0, atol=1e-7)
    np.testing.assert_allclose(slope(1.0), 2 * (z - target) / z.shape[-1], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(slope(0.5), slope(1.0) / 2, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(error(z, 0.0), error(z, 1.0), rtol=1e-6)


@pytest.mark.parametrize("variant", ["ends", "euler ends"])
def test_a_flow_of_ends_arrives_where_its_network_always_points(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = made(variant)
    z, given = some_step(1)
    target, _ = some_step(2)
    monkeypatch.setattr(FlowDynamics, "predicted", lambda self, x, given, time, tape=None: target)
    np.testing.assert_allclose(flow.next(z, given), target, atol=1e-6)

    def error(x: jax.Array) -> jax.Array:
        steps = jnp.stack([x, flow.next(x, given)]), given[None], some_step(3)[0][None]
        return sum(loss.sum() for loss in flow.losses(*steps, 1.0, jax.random.key(3)).values())

    # Where it starts is no part of its errors: nothing draws latents towards what follows.
    np.testing.assert_allclose(jax.grad(error)(z), 0.0, atol=1e-7)
    assert float(error(z)) > 0.01


def test_one_euler_step_to_a_predicted_end_is_a_plain_network() -> None:
    settings = DynamicsSettings(kind="flow", integrator="euler", substeps=1, predicts="end")
    flow = make_dynamics(jax.random.key(0), (LATENT, GIVEN), (24, 24), GROUP, settings, jnp.float32)
    assert isinstance(flow, FlowDynamics)
    z, given = some_step()
    np.testing.assert_allclose(flow.next(z, given), flow.predicted(z, given, jnp.zeros((5, 1))), atol=1e-6)


def test_one_euler_step_of_a_velocity_with_the_end_point_alone_is_a_residual_network() -> None:
    """The control of the flows in studies/flow_ant_control.yaml."""
    flow, plain = far("euler velocity"), made("mlp")
    z, given = some_step(1)
    target, _ = some_step(2)

    def residual(x: jax.Array) -> jax.Array:
        inputs = jnp.concatenate([x, jnp.zeros((5, 1)), given], -1)
        return on_simplex(x + centred(flow.network(padded([inputs], flow.network)), GROUP), GROUP)

    def errors(dynamics: Any, step: Any, name: str, x: jax.Array) -> jax.Array:
        latents = jnp.stack([x, step(x)])
        return dynamics.losses(latents, given[None], target[None], 1.0, jax.random.key(3))[name].sum()

    np.testing.assert_allclose(flow.next(z, given), residual(z), atol=1e-6)
    found = jax.value_and_grad(lambda x: errors(flow, lambda at: flow.next(at, given), "endpoint", x))(z)
    expected = jax.value_and_grad(lambda x: errors(plain, residual, "dynamics", x))(z)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    assert float(jnp.abs(found[1]).max()) > 1e-3


@pytest.mark.parametrize(("integrator", "substeps"), [("euler", 1), ("euler", 8), ("heun", 2), ("heun", 4)])
def test_a_flow_with_a_skip_arrives_where_its_network_can_point(
    integrator: str, substeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some output of the network means any end at any time before 1, and substeps then change nothing."""
    settings = DynamicsSettings.model_validate(VARIANTS["skip"] | {"integrator": integrator, "substeps": substeps})
    flow = make_dynamics(jax.random.key(0), (LATENT, GIVEN), (24, 24), GROUP, settings, jnp.float32)
    z, target = (simnorm(jax.random.normal(jax.random.key(key), (5, LATENT)), GROUP) for key in (1, 2))

    def logits(x: jax.Array) -> jax.Array:
        return centred_logits(x, GROUP, MIN_PROBABILITY)

    def pointing(self: NormedMLP, inputs: jax.Array, tape: Any = None) -> jax.Array:
        del self, tape
        x, time = inputs[..., :LATENT], inputs[..., LATENT : LATENT + 1]
        return (logits(target) - time * logits(x)) / jnp.maximum(1 - time, 1e-3)

    monkeypatch.setattr(NormedMLP, "__call__", pointing)
    np.testing.assert_allclose(flow.next(z, jnp.zeros((5, GIVEN))), target, atol=1e-5)


def test_a_skip_is_the_network_alone_at_first_and_the_identity_at_the_end() -> None:
    skip, plain = far("skip"), far("ends")
    given = some_step()[1]
    x = simnorm(jax.random.normal(jax.random.key(4), (5, LATENT)), GROUP)
    first, last = jnp.zeros((5, 1)), jnp.ones((5, 1))
    np.testing.assert_allclose(skip.predicted(x, given, first), plain.predicted(x, given, first), atol=1e-6)
    np.testing.assert_allclose(skip.predicted(x, given, last), x, atol=1e-6)
    assert float(jnp.abs(plain.predicted(x, given, last) - x).max()) > 0.05


def test_a_skip_adds_no_parameters_and_leaves_hashes_of_other_settings() -> None:
    shapes = [[leaf.shape for leaf in jax.tree.leaves(made(variant))] for variant in ("skip", "ends")]
    assert shapes[0] == shapes[1]
    assert "skip" not in without_added(DynamicsSettings, DynamicsSettings().model_dump())
    assert without_added(DynamicsSettings, VARIANTS["skip"])["skip"] is True


@pytest.mark.parametrize("settings", [{}, {"kind": "flow"}, {"predicts": "end"}])
def test_a_skip_needs_a_flow_of_ends(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="skip has no effect without kind: flow and predicts: end"):
        DynamicsSettings.model_validate(settings | {"skip": True})


@pytest.mark.parametrize("space", ["logits", "broken"])
def test_ends_are_predicted_on_the_simplex_alone(space: str) -> None:
    with pytest.raises(ValueError, match="predicts: end needs space: simplex"):
        DynamicsSettings.model_validate({"kind": "flow", "predicts": "end", "space": space})


def test_a_flow_that_starts_in_noise_gives_other_latents_for_other_keys() -> None:
    dynamics, step = made("noisy"), some_step()
    one, other = (dynamics.next(*step, jax.random.key(key)) for key in (0, 1))
    assert float(jnp.abs(one - other).max()) > 1e-3
    with pytest.raises(AssertionError, match="needs a key"):
        dynamics.next(*step)


@eqx.filter_jit
def rolled_out(model: Any) -> tuple[jax.Array, jax.Array]:
    """Encoded observations (17, B, L), and what the model makes of the first of them in open loop."""
    drawn = toy.windows(jax.random.key(9))
    target = model.encode(drawn.observation)
    return target, model.roll_out(target[0], drawn.action[1:], jax.random.key(0))


@pytest.fixture(scope="module")
def learnt() -> Any:
    """A flow model after some updates on the turning system."""
    agent = toy.make_agent(dynamics={"kind": "flow", "integrator": "heun", "substeps": 2})
    return toy.train_model(agent, 350, rate=3e-3, steps=6)


def test_a_flow_learns_the_toy_system_far_below_what_the_broken_head_can_reach(learnt: Any) -> None:
    state, losses = learnt
    assert losses[-50:].mean() < 0.01
    target, z = rolled_out(state.model)
    target, z = target[1:], z[1:]
    spread = float(target.var(axis=(0, 1)).mean())
    explained = 1 - float(jnp.square(z - target).mean()) / spread
    # A loss can also be small because all latents are alike; these differ, and the open loop follows them.
    assert spread > 1e-4
    assert explained > 0.9


def test_the_broken_head_of_the_users_code_stops_at_its_floor() -> None:
    broken = {"kind": "flow", "integrator": "euler", "substeps": 1, "space": "broken"}
    fork = {"source_pull": 1.0, "endpoint_scale": 0.0, "reward_scale": 0.0}
    agent = toy.make_agent(dynamics=broken, world_model=fork)
    state, losses = toy.train_model(agent, 250, rate=5e-3)
    assert pytest.approx(1.30394, abs=1e-5) == FLOOR
    assert losses[-20:].mean() == pytest.approx(FLOOR, abs=5e-3)
    assert losses.min() > FLOOR - 1e-3
    _, z = rolled_out(state.model)
    sums = np.asarray(z).reshape(17, -1, GROUP).sum(-1)
    np.testing.assert_allclose(sums, np.broadcast_to(np.arange(1.0, 18.0)[:, None], sums.shape), atol=1e-3)


def test_steps_after_the_end_of_an_episode_do_not_count() -> None:
    agent = toy.make_agent()
    model = toy.fresh(agent).model
    scales = jax.tree.map(jnp.asarray, traced_values(agent.settings))["world_model"]
    drawn = toy.windows(jax.random.key(1), steps=6, batch=4)
    # The episode of window 0 ends with row 2; row 3 is the first of the next one.
    ended = drawn._replace(first=drawn.first.at[3, 0].set(1.0), terminated=drawn.terminated.at[2, 0].set(1.0))
    np.testing.assert_array_equal(ended.valid[:, 0], [1, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(ended.valid[:, 1], 1.0)
    changed = ended._replace(observation=ended.observation.at[3:, 0].add(5.0), reward=ended.reward.at[3:, 0].add(9.0))
    loss = eqx.filter_jit(world_model_loss)
    one, other, whole = (float(loss(model, each, jax.random.key(2), scales)[0]) for each in (ended, changed, drawn))
    assert one == other
    assert one != whole
