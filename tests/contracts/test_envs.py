"""One suite over every environment: what the training loop and the evaluator rely on."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs import registry
from dreamproof.envs.api import Env, TimeStep
from dreamproof.envs.probes import PROBES
from dreamproof.envs.wrappers import AutoReset, Padded
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = [pytest.mark.long(40), pytest.mark.optimised]

COUNT = 8
STEPS = 12


def short_point(observation: str) -> Env:
    """The point task with episodes of eight agent steps."""
    return registry.make("SafetyPointGoal1", {"observation": observation, "episode_simulator_steps": 40})


ENVS: dict[str, Any] = {
    "coordinates": lambda: short_point("coordinates"),
    "lidar": lambda: short_point("lidar"),
    **{name: (lambda name=name: registry.make(name)) for name in PROBES},
    "restarting probe": lambda: AutoReset(registry.make("ProbeCredit")),
    "padded probe": lambda: Padded(registry.make("ProbeCredit"), 5, 3, 1),
}


class Ride:
    """A rollout with random actions, and the functions that made it."""

    def __init__(self, env: Env) -> None:
        self.env = env
        self.traces = 0
        self.reset = jax.jit(env.reset)
        self.step = jax.jit(self._counted)
        self.params = env.default_params()
        self.seen = self.run(self.params)

    def _counted(self, keys: Any, state: Any, action: Any, params: Any) -> Any:
        self.traces += 1
        return self.env.step(keys, state, action, params)

    def run(self, params: Any) -> list[TimeStep]:
        """Everything shown, the reset first."""
        state, shown = self.reset(layout_keys(0, "train", COUNT, 0), params)
        seen = [shown]
        for step in range(STEPS):
            shape = (COUNT, self.env.spec.action_size)
            action = jax.random.uniform(jax.random.key(step), shape, minval=-1, maxval=1)
            state, shown = self.step(noise_keys(0, "train", COUNT, step), state, action, params)
            seen.append(shown)
        return seen


@pytest.fixture(scope="module", params=list(ENVS))
def ride(request: pytest.FixtureRequest) -> Ride:
    """One rollout of each environment."""
    return Ride(ENVS[request.param]())


def test_what_is_shown_has_the_declared_shapes_and_types(ride: Ride) -> None:
    spec = ride.env.spec
    for shown in ride.seen:
        assert shown.observation.shape == (COUNT, spec.observation_size)
        for name in ("reward", "cost", "margin", "goals"):
            column = getattr(shown, name)
            assert (column.shape, column.dtype) == ((COUNT,), jnp.float32), name
        for name in ("first", "terminated", "truncated"):
            column = getattr(shown, name)
            assert (column.shape, column.dtype) == ((COUNT,), jnp.bool_), name
    assert shown.observation.dtype == jnp.float32


def test_everything_is_finite(ride: Ride) -> None:
    assert all(bool(jnp.isfinite(leaf).all()) for shown in ride.seen for leaf in jax.tree.leaves(shown))


def test_the_same_keys_give_the_same_rollout(ride: Ride) -> None:
    again = ride.run(ride.params)
    for one, other in zip(ride.seen, again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_spec_is_hashable_and_its_parts_lie_inside_the_observation(ride: Ride) -> None:
    spec = ride.env.spec
    hash(spec)
    assert spec.weights().shape == (spec.observation_size,)
    assert all(0 <= start < stop <= spec.observation_size for _, start, stop in spec.slots)


def test_equal_environments_hash_alike(ride: Ride) -> None:
    assert hash(ride.env) == hash(ride.env)
    jax.jit(lambda env: env.default_params(), static_argnums=0)(ride.env)


def test_the_first_observation_is_marked_and_costs_nothing(ride: Ride) -> None:
    start = ride.seen[0]
    assert bool(start.first.all())
    assert float(jnp.abs(start.reward).sum() + start.cost.sum() + start.goals.sum()) == 0.0
    assert not bool((start.terminated | start.truncated).any())


def test_costs_are_not_negative_and_stay_below_the_declared_most(ride: Ride) -> None:
    cost = np.stack([shown.cost for shown in ride.seen])
    assert cost.min() >= 0
    assert cost.max() <= (ride.env.spec.max_step_cost if ride.env.spec.has_cost else 0.0)


def test_episodes_end_by_truncation_at_the_declared_length(ride: Ride) -> None:
    length = ride.env.spec.episode_agent_steps
    ends = np.stack([shown.truncated for shown in ride.seen])
    assert not ends[: min(length, STEPS + 1)].any()
    if length <= STEPS:
        assert ends[length].all()


def test_a_change_of_params_compiles_nothing_anew(ride: Ride) -> None:
    before = ride.traces
    ride.run(jax.tree.map(lambda leaf: leaf * 1, ride.params))
    for condition in list(ride.env.conditions().values())[:4]:
        ride.run(condition.change(ride.params))
    assert ride.traces == before


def test_in_distribution_changes_nothing(ride: Ride) -> None:
    params = ride.env.conditions()["id"].change(ride.params)
    jax.tree.map(np.testing.assert_array_equal, params, ride.params)


def test_a_restarting_environment_keeps_the_last_observation(ride: Ride) -> None:
    if not isinstance(ride.env, AutoReset):
        assert all(shown.final_observation is None for shown in ride.seen)
        return
    plain = Ride(ride.env.env)
    length = ride.env.spec.episode_agent_steps
    ended = ride.seen[length]
    assert bool(ended.truncated.all())
    assert bool(ended.first.all())
    assert not np.allclose(ended.observation, ended.final_observation)
    # Without restarting, the same step shows what the restarting one keeps apart.
    assert bool(plain.seen[length].truncated.all())
    assert not bool(plain.seen[length].first.any())
    assert not bool(ride.seen[length - 1].first.any())
    np.testing.assert_array_equal(ride.seen[1].final_observation, ride.seen[1].observation)
