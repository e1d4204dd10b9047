"""A turning system with known rewards, and world models small enough to learn it in seconds."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm.agent import PwmAgent, PwmState
from dreamproof.agents.pwm.world_model import observed_scales
from dreamproof.jaxcore.types import Spec
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.traced import traced_values

SPEC = Spec("Turning", observation_size=2, action_size=1, episode_agent_steps=16, terminates=False)
SMALL: dict[str, Any] = {
    "world_model": {"units": [24], "encoder_units": [24], "latent": 16, "termination_units": 8},
    "behavior": {
        "actor_units": [16],
        "critic_units": [16],
        "horizon": 4,
        "rounds": 4,
        "critic_passes": 2,
        "replayed_starts": 0,
    },
    "precision": "float32",
}
BATCH, STEPS = 16, 16


def make_agent(spec: Spec = SPEC, **settings: Any) -> PwmAgent:
    """A small agent with some settings in place of the small ones, part by part."""
    parts = {name: {**SMALL.get(name, {}), **part} for name, part in settings.items()}
    settings = PwmSettings.model_validate({**SMALL, **parts})
    return PwmAgent(spec._replace(task=0) if settings.world_model.tasks else spec, settings)


def behavior_scales(**values: float) -> dict[str, Array]:
    """Numbers of the actor's loss as a traced program gets them; those left out have no effect."""
    none = {"entropy_coef": 0.0, "cloning_scale": 0.0, "min_return_std": 0.0}
    return {name: jnp.asarray(value) for name, value in (none | values).items()}


@functools.cache
def _fresh(spec: Spec, settings: PwmSettings) -> PwmState:
    return eqx.filter_jit(PwmAgent(spec, settings).init_state)(jax.random.key(0))


def fresh(agent: PwmAgent) -> PwmState:
    """The agent before any update; compiled once for all tests that ask for the same."""
    return _fresh(agent.spec, agent.settings)


def lively(agent: PwmAgent, spread: float = 0.3) -> PwmState:
    """A state none of whose numbers is 0, made without compiling anything."""
    draw = np.random.default_rng(0)

    def number(path: Any, leaf: Any) -> Any:
        if not eqx.is_inexact_array_like(leaf) and not hasattr(leaf, "dtype"):
            return leaf
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.ones(leaf.shape, leaf.dtype)
        around = 1.0 if jax.tree_util.keystr(path).endswith(".scale") else 0.0
        return jnp.asarray(around + spread * draw.normal(size=leaf.shape), leaf.dtype)

    shapes = eqx.filter_eval_shape(agent.init_state, jax.random.key(0))
    return jax.tree_util.tree_map_with_path(number, shapes)


def true_reward(observation: Array, action: Array) -> Array:
    """Reward of a step from `observation` (..., 2) with `action` (..., 1): up to 3, and 0 in the middle."""
    return 1.5 * observation[..., 0] + observation[..., 1] * action[..., 0]


def windows(key: Array, steps: int = STEPS, batch: int = BATCH) -> Windows:
    """Windows of a point that turns by an angle its action changes, seen as (cos, sin)."""
    start_key, action_key = jax.random.split(key)
    action = jax.random.uniform(action_key, (steps, batch, 1), minval=-1.0)
    turned = jnp.cumsum(0.4 + 0.4 * action[..., 0], axis=0)
    angle = jax.random.uniform(start_key, (batch,), maxval=2 * jnp.pi) + jnp.concatenate(
        [jnp.zeros((1, batch)), turned]
    )
    observation = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1)
    reward = jnp.concatenate([jnp.zeros((1, batch)), true_reward(observation[:-1], action)])
    led = jnp.concatenate([jnp.zeros((1, batch, 1)), action])
    no = jnp.zeros((steps + 1, batch))
    return Windows(observation, led, reward, no, no, jnp.ones(()))


def train_model(agent: PwmAgent, updates: int, rate: float = 1e-3, steps: int = STEPS) -> tuple[PwmState, np.ndarray]:
    """The state after so many updates of the model alone, and the dynamics loss of each."""
    scales = jax.tree.map(jnp.asarray, traced_values(agent.settings))["world_model"]

    @eqx.filter_jit
    def run(state: PwmState) -> tuple[PwmState, Array]:
        arrays, static = eqx.partition(state, eqx.is_array)

        def one(arrays: Any, key: Array) -> tuple[Any, Array]:
            now = eqx.combine(arrays, static)
            drawn = jax.tree.map(lambda part: part[None], windows(key, steps))
            # Rewards stay in their own unit.
            after, metrics = agent._learn_model(now, drawn, key, (jnp.asarray(rate), scales | observed_scales(drawn)))
            return eqx.filter(after._replace(rewards=now.rewards), eqx.is_array), metrics["model/dynamics"]

        arrays, losses = jax.lax.scan(one, arrays, jax.random.split(jax.random.key(1), updates))
        return eqx.combine(arrays, static), losses

    state, losses = run(fresh(agent))
    return state, np.asarray(losses)
