"""One suite over every environment: what the training loop and the evaluator rely on."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.envs.locomotion.rollouts import QUICK

from dreamproof.envs import registry
from dreamproof.envs.api import Env, TimeStep
from dreamproof.envs.probes import PROBES
from dreamproof.envs.wrappers import AutoReset, Padded
from dreamproof.jaxcore.keys import layout_keys, noise_keys

pytestmark = [pytest.mark.long(110), pytest.mark.optimised]

COUNT = 8
STEPS = 12


def short_goal(task: str, observation: str = "coordinates") -> Env:
    """A task with goals, in episodes of eight agent steps."""
    return registry.make(task, {"observation": observation, "episode_simulator_steps": 40})


ENVS: dict[str, Callable[[], Env]] = {
    "coordinates": lambda: short_goal("SafetyPointGoal1"),
    "lidar": lambda: short_goal("SafetyPointGoal1", "lidar"),
    "SafetyPointGoal2": lambda: short_goal("SafetyPointGoal2"),
    "SafetyCarGoal1": lambda: short_goal("SafetyCarGoal1"),
    "SafetyCheetahVelocity": lambda: registry.make("SafetyCheetahVelocity", {"episode_simulator_steps": 20}),
    **{name: (lambda name=name: registry.make(name)) for name in PROBES},
    "restarting probe": lambda: AutoReset(registry.make("ProbeCredit")),
    "padded probe": lambda: Padded(registry.make("ProbeCredit"), 5, 3, 1),
}


class RandomRollout:
    """A rollout with random actions, and the functions that made it."""

    def __init__(self, make: Callable[[], Env]) -> None:
        self.make = make
        self.env = env = make()
        self.traces = 0
        # The car alone runs longer than it compiles.
        options = None if env.spec.name == "SafetyCarGoal1" else QUICK
        self.reset = jax.jit(env.reset, compiler_options=options)
        self.step = jax.jit(self._counted, compiler_options=options)
        self.params = env.default_params()
        self.seen = self.run(self.params)

    def _counted(self, keys: Any, state: Any, action: Any, params: Any) -> Any:
        self.traces += 1
        return self.env.step(keys, state, action, params)

    def run(self, params: Any) -> list[TimeStep]:
        """Everything shown, the reset first."""
        state, shown = self.reset(layout_keys(0, "train", COUNT, 0), params)
        self.started = state, shown
        seen = [shown]
        for step in range(STEPS):
            shape = (COUNT, self.env.spec.action_size)
            action = jax.random.uniform(jax.random.key(step), shape, minval=-1, maxval=1)
            state, shown = self.step(noise_keys(0, "train", COUNT, step), state, action, params)
            seen.append(shown)
        return seen


@pytest.fixture(scope="module", params=list(ENVS))
def rollout(request: pytest.FixtureRequest) -> RandomRollout:
    """One rollout of each environment."""
    return RandomRollout(ENVS[request.param])


def test_what_is_shown_has_the_declared_shapes_and_types(rollout: RandomRollout) -> None:
    spec = rollout.env.spec
    for shown in rollout.seen:
        assert shown.observation.shape == (COUNT, spec.observation_size)
        for name in ("reward", "cost", "margin", "goals"):
            column = getattr(shown, name)
            assert (column.shape, column.dtype) == ((COUNT,), jnp.float32), name
        for name in ("first", "terminated", "truncated"):
            column = getattr(shown, name)
            assert (column.shape, column.dtype) == ((COUNT,), jnp.bool_), name
    assert shown.observation.dtype == jnp.float32


def test_a_reset_gives_no_weak_type_so_a_resumed_run_needs_no_other_program(rollout: RandomRollout) -> None:
    # Arrays from a checkpoint never have weak types.
    assert not [leaf for leaf in jax.tree.leaves(rollout.started) if jax.typeof(leaf).weak_type]


def test_everything_is_finite(rollout: RandomRollout) -> None:
    assert all(bool(jnp.isfinite(leaf).all()) for shown in rollout.seen for leaf in jax.tree.leaves(shown))


def test_the_same_keys_give_the_same_rollout(rollout: RandomRollout) -> None:
    again = rollout.run(rollout.params)
    for one, other in zip(rollout.seen, again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_spec_is_hashable_and_its_parts_lie_inside_the_observation(rollout: RandomRollout) -> None:
    spec = rollout.env.spec
    hash(spec)
    assert spec.weights().shape == (spec.observation_size,)
    assert all(0 <= start < stop <= spec.observation_size for _, start, stop in spec.slots)


def test_an_environment_made_again_is_equal_and_needs_no_other_program(rollout: RandomRollout) -> None:
    traces = 0

    @functools.partial(jax.jit, static_argnums=0)
    def params(env: Env) -> Any:
        nonlocal traces
        traces += 1
        return env.default_params()

    for env in (rollout.env, rollout.make()):
        params(env)
    assert rollout.make() == rollout.env and traces == 1


def test_the_first_observation_is_marked_and_costs_nothing(rollout: RandomRollout) -> None:
    start = rollout.seen[0]
    assert bool(start.first.all())
    assert float(jnp.abs(start.reward).sum() + start.cost.sum() + start.goals.sum()) == 0.0
    assert not bool((start.terminated | start.truncated).any())


def test_costs_are_not_negative_and_stay_below_the_declared_most(rollout: RandomRollout) -> None:
    cost = np.stack([shown.cost for shown in rollout.seen])
    assert cost.min() >= 0
    assert cost.max() <= (rollout.env.spec.max_step_cost if rollout.env.spec.has_cost else 0.0)


def test_each_constraint_has_a_cost_and_the_total_lies_between_the_largest_and_their_sum(
    rollout: RandomRollout,
) -> None:
    names = rollout.env.spec.costs
    if not names:
        assert all(shown.costs is None for shown in rollout.seen)
        return
    costs = np.stack([shown.costs for shown in rollout.seen])
    total = np.stack([shown.cost for shown in rollout.seen])
    assert costs.shape == (*total.shape, len(names))
    assert ((costs.max(axis=-1) <= total) & (total <= costs.sum(axis=-1))).all()


def test_a_task_that_declares_no_margin_shows_none(rollout: RandomRollout) -> None:
    margin = np.stack([shown.margin for shown in rollout.seen])
    assert rollout.env.spec.has_margin or not margin.any()


def test_episodes_end_by_truncation_at_the_declared_length(rollout: RandomRollout) -> None:
    length = rollout.env.spec.episode_agent_steps
    ends = np.stack([shown.truncated for shown in rollout.seen])
    assert not ends[: min(length, STEPS + 1)].any()
    if length <= STEPS:
        assert ends[length].all()


def test_a_change_of_params_compiles_nothing_anew(rollout: RandomRollout) -> None:
    before = rollout.traces
    rollout.run(jax.tree.map(lambda leaf: leaf * 1, rollout.params))
    for condition in list(rollout.env.conditions().values())[:4]:
        rollout.run(condition.change(rollout.params))
    assert rollout.traces == before


def test_in_distribution_changes_nothing(rollout: RandomRollout) -> None:
    params = rollout.env.conditions()["id"].change(rollout.params)
    jax.tree.map(np.testing.assert_array_equal, params, rollout.params)


def test_a_restarting_environment_keeps_the_last_observation(rollout: RandomRollout) -> None:
    if not isinstance(rollout.env, AutoReset):
        assert all(shown.final_observation is None for shown in rollout.seen)
        return
    plain = RandomRollout(lambda: rollout.env.env)
    length = rollout.env.spec.episode_agent_steps
    ended = rollout.seen[length]
    assert bool(ended.truncated.all())
    assert bool(ended.first.all())
    assert not np.allclose(ended.observation, ended.final_observation)
    # Without restarting, the same step shows what the restarting one keeps apart.
    assert bool(plain.seen[length].truncated.all())
    assert not bool(plain.seen[length].first.any())
    assert not bool(rollout.seen[length - 1].first.any())
    np.testing.assert_array_equal(rollout.seen[1].final_observation, rollout.seen[1].observation)
