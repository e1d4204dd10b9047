"""How fast the agent learns and updates on this machine: replicas with different traced settings in one compile.

Each --arm is a JSON object of dotted settings, e.g. '{"behavior.multiplier_start": 0.1, "seed": 3}'. Prints training
episodes as they end, deterministic validation episodes, how well cost is predicted, and milliseconds per update
(an epoch, for an agent that learns by epochs).
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.agents.registry import make_agent
from dreamproof.envs.registry import make as make_env
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.several_tasks import merge
from dreamproof.settings.traced import static_key, traced_values
from dreamproof.train.log import MetricSums
from dreamproof.train.pack import Pack, PackState

SHOWN = (
    "episode/return",
    "episode/cost",
    "model/margin",
    "model/entities",
    "model/dynamics",
    "model/reward",
    "model/latent_variance",
    "model/unexplained_variance",
    "imagined/cost",
    "imagined/reward",
    "imagined/first_reward",
    "imagined/return",
    "plan/safe_fraction",
    "actor/std",
)


def nested(dotted: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} → {"a": {"b": 1}}."""
    found: dict[str, Any] = {}
    for name, value in dotted.items():
        for part in reversed(name.split(".")):
            value = {part: value}
        found = merge(found, value)
    return found


def build(asked: argparse.Namespace) -> Pack:
    """The pack of all asked arms; they must share one compile."""
    arms = [json.loads(arm) for arm in asked.arm or ["{}"]]
    seeds = [arm.pop("seed", 0) for arm in arms]
    shared = {"agent": nested(json.loads(asked.base)), "train": json.loads(asked.train)}
    cells = [CELL_SETTINGS[asked.trainer].model_validate(merge(shared, {"agent": nested(arm)})) for arm in arms]
    if len({static_key(cell) for cell in cells}) > 1:
        raise SystemExit("the arms differ in settings that shape the compile")
    env = make_env(asked.task, cells[0].env)
    agent = make_agent(asked.trainer, env.spec, cells[0].agent)
    scalars = jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *(traced_values(c.agent) for c in cells))
    return Pack(agent, env, cells[0].train, seeds, scalars, asked.agent_steps)


def validate(pack: Pack, state: PackState, episodes: int) -> dict[str, list[float]]:
    """Mean return and cost of every replica on validation layouts."""
    found = jax.device_get(pack.evaluate(state.agent, pack.env.default_params(), "validation", episodes))
    return {"return": found.returns.mean(1).tolist(), "cost": found.costs.mean(1).tolist()}


def line(label: str, means: dict[str, list[float]]) -> str:
    """return/cost of every replica on one line."""
    return label + "  ".join(f"{r:.1f}/{c:.1f}" for r, c in zip(means["return"], means["cost"], strict=True))


def main() -> None:
    """Trains until the steps or the seconds are used up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", choices=sorted(CELL_SETTINGS), default="dreamer")
    parser.add_argument("--task", default="SafetyPointGoal1")
    parser.add_argument("--arm", action="append", help="one replica; may be given many times")
    parser.add_argument("--base", default="{}", help="agent settings of all replicas")
    parser.add_argument("--train", default="{}", help="settings of the loop")
    parser.add_argument("--agent-steps", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=500.0, help="no new chunk after so long")
    parser.add_argument("--evaluate-every", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--rows", type=Path, help="also write everything as JSON lines")
    asked = parser.parse_args()
    use_compilation_cache()
    began = time.monotonic()
    pack = build(asked)
    settings = pack.settings
    state, _ = pack.prefill(pack.init(), -(-settings.prefill_agent_steps // settings.envs))
    jax.block_until_ready(state.env_steps)
    print(f"{jax.devices()[0].device_kind}: {pack.replicas} replicas, ready after {time.monotonic() - began:.0f} s")
    rows = asked.rows.open("w") if asked.rows else None
    chunk, sums, seconds = max(1, settings.chunk_agent_steps // settings.envs), MetricSums(pack.replicas), []
    done = evaluated = int(state.env_steps) * settings.envs
    while done < asked.agent_steps and time.monotonic() - began < asked.seconds:
        started = time.monotonic()
        state, metrics = pack.chunk(state, chunk)
        sums.add(jax.device_get(metrics))
        seconds.append(time.monotonic() - started)
        done = int(state.env_steps) * settings.envs
        if done // settings.log_every_agent_steps > (done - chunk * settings.envs) // settings.log_every_agent_steps:
            taken = sums.take()
            updates = chunk * pack.updates_per_step / (pack.epoch_env_steps or 1)
            milliseconds = 1000 * float(np.median(seconds[-5:])) / updates
            first = {name: round(taken[0][name], 4) for name in SHOWN if name in taken[0]}
            print(
                f"{done:>7,}  {time.monotonic() - began:5.0f} s  {milliseconds:.1f} ms/update  first replica: {first}"
            )
            if rows:
                rows.write(json.dumps({"agent_steps": done, "milliseconds": milliseconds, "replicas": taken}) + "\n")
        if done - evaluated >= asked.evaluate_every or done >= asked.agent_steps:
            evaluated = done
            means = validate(pack, state, asked.episodes)
            print(line(f"{done:>7,}  validation  ", means), flush=True)
            if rows:
                rows.write(json.dumps({"agent_steps": done, "validation": means}) + "\n")
    memory = jax.devices()[0].memory_stats() or {}
    peak = memory.get("peak_bytes_in_use", 0) / 2**30
    first = f"compile and first chunk {seconds[0]:.0f} s" if seconds else "no chunk"
    print(f"{first}, peak {peak:.1f} GiB on the device")


if __name__ == "__main__":
    main()
