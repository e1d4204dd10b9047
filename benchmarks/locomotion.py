"""How fast the locomotion tasks step on this machine: agent steps per second of one flat batch under random actions."""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dreamproof.envs import registry
from dreamproof.envs.api import Env
from dreamproof.envs.wrappers import AutoReset
from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key


def make_rollout(env: Env, batch: int, agent_steps: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiled start of a batch, and so many agent steps of it with restarts; also the mean reward and end count."""
    params = env.default_params()

    def start() -> Any:
        return env.reset(layout_keys(0, "train", batch, 0), params)[0]

    def rollout(state: Any, first: jax.Array) -> tuple[Any, jax.Array]:
        def tick(state: Any, step: jax.Array) -> tuple[Any, jax.Array]:
            shape = (batch, env.spec.action_size)
            action = jax.random.uniform(step_key(0, "act", step), shape, minval=-1.0, maxval=1.0)
            state, shown = env.step(noise_keys(0, "train", batch, step), state, action, params)
            ends = (shown.terminated | shown.truncated).sum()
            return state, jnp.stack([shown.reward.mean(), ends.astype(jnp.float32)])

        state, rows = jax.lax.scan(tick, state, first + jnp.arange(agent_steps))
        return state, jnp.stack([rows[:, 0].mean(), rows[:, 1].sum()])

    return jax.jit(start), jax.jit(rollout, donate_argnums=0)


def measure(task: str, batch: int, agent_steps: int, repeats: int) -> dict[str, Any]:
    """Compile seconds, the best milliseconds per step of several rollouts, and their rewards."""
    env = AutoReset(registry.make(task))
    start, rollout = make_rollout(env, batch, agent_steps)
    state = jax.block_until_ready(start())
    began = time.perf_counter()
    compiled = rollout.lower(state, jnp.int32(0)).compile()
    compile_seconds = time.perf_counter() - began
    best, rewards, ended = float("inf"), [], 0
    for repeat in range(repeats + 1):
        began = time.perf_counter()
        state, totals = jax.block_until_ready(compiled(state, jnp.int32(repeat * agent_steps)))
        # The first rollout warms up caches and allocators.
        best = best if repeat == 0 else min(best, time.perf_counter() - began)
        rewards.append(float(totals[0]))
        ended += int(totals[1])
    return {
        "task": task,
        "batch": batch,
        "device": str(jax.devices()[0].device_kind),
        "agent_steps_per_second": round(batch * agent_steps / best),
        "milliseconds_per_batch_step": round(1000 * best / agent_steps, 3),
        "simulated_seconds_per_second": round(batch * agent_steps * (env.spec.agent_step_seconds or 0.0) / best),
        "compile_seconds": round(compile_seconds, 1),
        "mean_reward": round(sum(rewards) / len(rewards), 3),
        "episodes_ended": ended,
    }


def main() -> None:
    """Prints one JSON line a task and batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", nargs="+", default=list(registry.LOCOMOTION_TASKS))
    parser.add_argument("--batch", type=int, nargs="+", default=[128, 640])
    parser.add_argument("--agent-steps", type=int, default=20, help="steps of one timed rollout")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    for task in chosen.task:
        for batch in chosen.batch:
            print(json.dumps(measure(task, batch, chosen.agent_steps, chosen.repeats)), flush=True)


if __name__ == "__main__":
    main()
