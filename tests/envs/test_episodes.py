"""Complete episodes record how far and how fast a body went, until its own end and no farther."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from dreamproof.envs.api import SoloEnv, Spec, TimeStep
from dreamproof.envs.episodes import complete_episodes, shared_episodes
from dreamproof.envs.probes import TargetProbe
from dreamproof.jaxcore.keys import layout_keys

pytestmark = pytest.mark.optimised

PACES = jnp.array([1.0, 2.0, -1.0])
KEYS = (layout_keys(0, "test", 3, 0), layout_keys(1, "test", 3, 0))


@dataclass(frozen=True)
class Strider(SoloEnv):
    """Goes as many metres a step as the action says, and ends beyond 3 m or after 4 steps of half a second."""

    seconds: float | None = 0.5

    @property
    def spec(self) -> Spec:
        """One number seen, one done."""
        return Spec("Strider", 1, 1, 4, has_cost=False, agent_step_seconds=self.seconds)

    def default_params(self) -> Array:
        """Nothing to change."""
        return jnp.zeros(())

    def reset_one(self, key: Array, params: Any) -> tuple[Any, TimeStep]:
        """At the start."""
        del key, params
        start = (jnp.zeros(()), jnp.zeros((), jnp.int32))
        return start, self._shown(start, jnp.zeros(()))

    def step_one(self, key: Array, state: Any, action: Array, params: Any) -> tuple[Any, TimeStep]:
        """A stride on."""
        del key, params
        state = (state[0] + action[0], state[1] + 1)
        return state, self._shown(state, action[0])

    def _shown(self, state: Any, stride: Array) -> TimeStep:
        zero, place = jnp.zeros(()), state[0]
        shown = TimeStep(place[None], zero, zero, zero, zero, state[1] == 0, place > 3, state[1] >= 4)
        return shown._replace(forward_metres=stride)


def stride(memory: Any, seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
    """Every env at its own pace."""
    del index
    return PACES[: seen.reward.shape[0], None], memory, {}


def test_distance_and_speed_end_with_the_episode() -> None:
    env = Strider()
    found = complete_episodes(env, stride, None, KEYS, env.default_params())
    assert np.asarray(found.lengths).tolist() == [4, 2, 4]
    assert np.asarray(found.metrics["forward/metres"]).tolist() == [4.0, 4.0, -4.0]
    assert np.asarray(found.metrics["forward/metres_per_second"]).tolist() == [2.0, 4.0, -2.0]


def test_several_policies_are_separated() -> None:
    env = Strider()

    def both(memory: Array, seen: TimeStep, index: Array) -> tuple[Array, Array, dict[str, Array]]:
        del index
        return memory[:, None, None] * jnp.ones((*seen.reward.shape, 1)), memory, {}

    found = shared_episodes(env, both, jnp.array([0.5, 1.0]), KEYS, env.default_params())
    assert np.asarray(found.metrics["forward/metres"]).tolist() == [[2.0] * 3, [4.0] * 3]


def test_a_task_without_seconds_has_no_speed_and_one_without_ahead_has_nothing() -> None:
    timeless, target = Strider(seconds=None), TargetProbe()
    assert set(complete_episodes(timeless, stride, None, KEYS, timeless.default_params()).metrics) == {"forward/metres"}
    found = jax.eval_shape(lambda: complete_episodes(target, stride, None, KEYS, target.default_params()))
    assert found.metrics == {}
