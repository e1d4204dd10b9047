"""How fast a Goal task steps on this machine: whole episodes, resets included, flat and mapped over replicas."""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dreamproof.envs import registry
from dreamproof.envs.api import Env
from dreamproof.envs.scripted import FLOORS
from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key


def make_episode(env: Env, policy_name: str, batch: int) -> Callable[[Any], Any]:
    """One synchronous episode of a batch as a function of the seed; returns mean return, cost and goals."""
    policy = FLOORS[policy_name](env.spec)
    params = env.default_params()

    def episode(seed: jax.Array) -> jax.Array:
        state, shown = env.reset(layout_keys(seed, "train", batch, 0), params)

        def tick(carry: Any, step: jax.Array) -> tuple[Any, jax.Array]:
            state, observation = carry
            action = policy(step_key(seed, "policy", step), observation)
            state, shown = env.step(noise_keys(seed, "train", batch, step), state, action, params)
            return (state, shown.observation), jnp.stack([shown.reward, shown.cost, shown.goals]).mean(axis=1)

        _, rows = jax.lax.scan(tick, (state, shown.observation), jnp.arange(env.spec.episode_agent_steps))
        return rows.sum(axis=0)

    return episode


def measure(function: Callable[[Any], Any], argument: Any, simulator_steps: int, repeats: int) -> dict[str, Any]:
    """Compile seconds, and the best simulator steps per second of several runs."""
    start = time.perf_counter()
    compiled = jax.jit(function).lower(argument).compile()
    compile_seconds = time.perf_counter() - start
    result = jax.block_until_ready(compiled(argument))
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(compiled(argument))
        best = min(best, time.perf_counter() - start)
    means = [round(float(value), 3) for value in jnp.reshape(result, (-1, 3)).mean(axis=0)]
    return {
        "simulator_steps_per_second": round(simulator_steps / best),
        "compile_seconds": round(compile_seconds, 1),
        "return_cost_goals": means,
    }


def main() -> None:
    """Prints one JSON line per measured variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="SafetyPointGoal1")
    parser.add_argument("--batch", type=int, nargs="+", default=[1024])
    parser.add_argument("--observation", nargs="+", default=["coordinates", "lidar"])
    parser.add_argument("--policy", nargs="+", default=["random", "go_to_goal"])
    parser.add_argument("--replicas", type=int, default=0, help="also as vmap over so many replicas")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    for observation in chosen.observation:
        env = registry.make(chosen.task, {"observation": observation})
        simulator = env.spec.action_repeat * env.spec.episode_agent_steps
        for batch in chosen.batch:
            for policy in chosen.policy:
                about = {"task": chosen.task, "observation": observation, "batch": batch, "policy": policy}
                flat = measure(make_episode(env, policy, batch), jnp.uint32(0), batch * simulator, chosen.repeats)
                about["device"] = str(jax.devices()[0].device_kind)
                print(json.dumps(about | {"form": "flat"} | flat), flush=True)
                if chosen.replicas:
                    part = jax.vmap(make_episode(env, policy, batch // chosen.replicas))
                    seeds = jnp.arange(chosen.replicas, dtype=jnp.uint32)
                    mapped = measure(part, seeds, batch * simulator, chosen.repeats)
                    print(json.dumps(about | {"form": f"vmap over {chosen.replicas}"} | mapped), flush=True)


if __name__ == "__main__":
    main()
