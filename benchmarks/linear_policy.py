"""What a linear policy gets on a locomotion task, before an agent is blamed for not having more.

Random search (ARS, 2018) over weights from what is seen, standardised, and from a clock to the arguments of tanh.
Prints complete episodes of the policy as it stands.
"""

import argparse
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.envs import registry
from dreamproof.envs.api import Env
from dreamproof.envs.episodes import Episodes, episode_keys, shared_episodes
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.jaxcore.types import TimeStep

CLOCK = 5  # two waves of sine and cosine, and 1
MIN_STD = 0.01


class Seen(NamedTuple):
    """Sums over all observations so far (O,), and how many they were."""

    total: Array
    squares: Array
    count: Array

    def standard(self) -> tuple[Array, Array]:
        """Mean and deviation of each number."""
        count = jnp.maximum(self.count, 1.0)
        mean = self.total / count
        spread = jnp.sqrt(jnp.maximum(self.squares / count - mean**2, MIN_STD**2))
        return mean, jnp.where(self.count > 0, spread, 1.0)


def act(memory: tuple[Array, Array, Array, Array], seen: TimeStep, index: Array) -> tuple[Array, Any, dict[str, Array]]:
    """Actions (R, E, A) of R policies; memory: weights (R, A, F), mean and deviation (R, O), the clock's turn (R,)."""
    weights, mean, deviation, turn = memory
    observed = (seen.observation - mean[:, None]) / deviation[:, None]
    phase = turn * index
    clock = jnp.stack(
        [jnp.sin(phase), jnp.cos(phase), jnp.sin(2 * phase), jnp.cos(2 * phase), jnp.ones_like(phase)], -1
    )
    given = jnp.concatenate([observed, jnp.broadcast_to(clock[:, None], (*observed.shape[:2], CLOCK))], axis=-1)
    return jnp.tanh(jnp.einsum("raf,ref->rea", weights, given)), memory, {}


def rollout(env: Env, weights: Array, seen: Seen, clock: float, seed: Array, episodes: int) -> Episodes:
    """Complete episodes of R policies (R, A, F) on the same layouts; the trace is what was observed."""
    turn = 2 * jnp.pi * clock * env.spec.agent_step_seconds
    mean, deviation = (jnp.broadcast_to(moment, (weights.shape[0], *moment.shape)) for moment in seen.standard())
    memory = (weights, mean, deviation, jnp.full(weights.shape[0], turn))
    keys = episode_keys(seed, "train", episodes)
    return shared_episodes(env, act, memory, keys, env.default_params(), lambda _, shown, __: shown.observation)


def improve(env: Env, asked: argparse.Namespace, weights: Array, seen: Seen, seed: Array) -> tuple[Array, Seen]:
    """One step of the search: both ways along random directions, then along the best of them."""
    ways = jax.random.normal(jax.random.key(seed), (asked.directions, *weights.shape))
    tried = jnp.concatenate([weights + asked.noise * ways, weights - asked.noise * ways])
    found = rollout(env, tried, seen, asked.clock, seed, 1)
    there, back = found.returns[:, 0].reshape(2, -1)
    best = jnp.argsort(-jnp.maximum(there, back))[: asked.directions // 2]
    scale = jnp.std(jnp.concatenate([there[best], back[best]])) + 1e-6
    step = jnp.einsum("k,kaf->af", (there - back)[best], ways[best]) * asked.step / (best.size * scale)
    # Steps after an episode's end are observed too; they do not count.
    counted = jnp.arange(found.trace.shape[0])[:, None] < found.lengths.reshape(-1)
    observed = jnp.where(counted[..., None], found.trace, 0.0).reshape(-1, weights.shape[1] - CLOCK)
    sums = Seen(seen.total + observed.sum(0), seen.squares + (observed**2).sum(0), seen.count + counted.sum())
    return weights + step, sums


def main() -> None:
    """Searches until time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Ant")
    parser.add_argument("--clock", type=float, default=2.3, help="its waves per second")
    parser.add_argument("--control-steps", type=int, default=300, help="the length of an episode of the search")
    parser.add_argument("--directions", type=int, default=24)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--step", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=20, help="steps of the search between two looks")
    parser.add_argument("--seconds", type=float, default=600.0)
    asked = parser.parse_args()
    use_compilation_cache()
    short, whole = (
        registry.make(asked.task, {"episode_simulator_steps": asked.control_steps}),
        registry.make(asked.task),
    )
    spec = whole.spec
    if spec.agent_step_seconds is None:
        parser.error(
            f"the task '{asked.task}' declares no seconds per step, so there is no clock; take a locomotion task"
        )
    better = jax.jit(partial(improve, short, asked))
    look = jax.jit(lambda weights, seen, seed: rollout(whole, weights[None], seen, asked.clock, seed, 8))
    weights = jnp.zeros((spec.action_size, spec.observation_size + CLOCK))
    nothing = jnp.zeros(spec.observation_size)
    seen, began, step = Seen(nothing, nothing, jnp.zeros(())), time.monotonic(), 0
    while time.monotonic() - began < asked.seconds:
        weights, seen = better(weights, seen, jnp.uint32(asked.seed * 1_000_003 + step))
        step += 1
        if step % asked.every == 0:
            found = look(weights, seen, jnp.uint32(step))
            speed = found.metrics.get("forward/metres_per_second")
            speeds = "" if speed is None else f", m/s {[round(float(one), 2) for one in speed[0]]}"
            rounded = [round(float(one)) for one in found.returns[0]]
            print(f"{step:>6}  {time.monotonic() - began:5.0f} s  returns {rounded}{speeds}", flush=True)


if __name__ == "__main__":
    main()
