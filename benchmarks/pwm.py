"""Milliseconds per epoch of the PWM agent: `python -m benchmarks.pwm`; run again, it continues where it stopped.

The published epoch is 16 steps of every env, one actor step, 32 critic steps and 8 model steps; a study's is 4 steps of
256 envs, 16 rounds of one actor step and 4 critic steps, and 16 model steps. Learning is measured with an environment
that costs nothing; with --task the environment's own share is measured too. Every row is a process of its own, so that
memory is that row's, and is kept in --output as a JSON line. With --together several rows compile at the same time
and are measured one after the other, after the last of them has compiled. XLA then chooses its kernels while others use
the GPU, and programs may be a few percent slower: not for figures that are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.registry import make_agent
from dreamproof.base.commit import code_name
from dreamproof.base.lines import append_rows, read_rows
from dreamproof.envs.api import Env, Params, Spec, State, TimeStep
from dreamproof.envs.registry import make as make_env
from dreamproof.jaxcore.devices import give_back_memory, memory_in_use, use_compilation_cache
from dreamproof.settings.cell import PwmCell
from dreamproof.settings.several_tasks import merge
from dreamproof.settings.traced import traced_values
from dreamproof.train.pack import Pack, PackState

FLOW: dict[str, dict[str, Any]] = {
    "mlp": {"kind": "mlp"},
    "v1": {"kind": "flow", "integrator": "heun", "substeps": 2},
    "v2": {"kind": "flow", "integrator": "heun", "substeps": 4},
    "v3": {"kind": "flow", "integrator": "euler", "substeps": 8},
}


class Row(NamedTuple):
    """One measured configuration; the target is in milliseconds per epoch without environment."""

    size: str
    dynamics: str
    seeds: int
    target: float | None = None
    epoch: str = "published"

    @property
    def alone(self) -> str:
        """The name of the row with one seed."""
        return " ".join([self.size, self.dynamics, *(["study"] if self.epoch == "study" else [])])

    @property
    def name(self) -> str:
        return self.alone + (f" x{self.seeds}" if self.seeds > 1 else "")


ROWS = [
    Row("5M", "mlp", 1, 15.0),
    Row("5M", "v2", 1, 50.0),
    Row("48M", "mlp", 1, 45.0),
    Row("48M", "v2", 1, 150.0),
    Row("48M", "v2", 2, 240.0),
    Row("5M", "mlp", 5),
    Row("5M", "v2", 5),
    Row("5M", "mlp", 1, epoch="study"),
    Row("5M", "mlp", 5, epoch="study"),
    Row("5M", "v2", 5, epoch="study"),
]
BEHAVIOR = {
    "published": {"rounds": 1, "critic_passes": 8, "horizon": 16, "replayed_starts": 0},
    "study": {"rounds": 16, "critic_passes": 1, "horizon": 4, "replayed_starts": 256},
}
EPOCH = {
    "published": {"epoch_env_steps": 16, "batches": 8, "window": 17, "envs": 128},
    "study": {"epoch_env_steps": 4, "batches": 16, "window": 5, "envs": 256},
}
COMPILED = "compiled"
TINY = {"world_model": {"units": [32, 32], "encoder_units": [32], "latent": 32}}


class _Still(NamedTuple):
    agent_steps: Array


@dataclass(frozen=True)
class FreeEnv(Env):
    """Shows as many numbers and takes as many actions as the ant, and costs nothing."""

    @cached_property
    def spec(self) -> Spec:
        """The ant's sizes."""
        return Spec("Free", observation_size=37, action_size=8, episode_agent_steps=1000, has_cost=False)

    def default_params(self) -> Params:
        """Nothing to change."""
        return jnp.zeros(())

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts at step 0."""
        return self._shown(_Still(jnp.zeros(keys.shape[0], jnp.int32)), jnp.zeros((keys.shape[0], 8)))

    def step(self, keys: Array, state: _Still, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Counts a step and shows the action."""
        return self._shown(_Still(state.agent_steps + 1), action)

    def _shown(self, state: _Still, action: Array) -> tuple[State, TimeStep]:
        count = action.shape[0]
        zero, no = jnp.zeros(count), jnp.zeros(count, bool)
        observation = jnp.pad(action, ((0, 0), (0, 29))) + 0.001 * state.agent_steps[:, None]
        ends = state.agent_steps >= 1000
        first = state.agent_steps == 0
        return state, TimeStep(observation, action.sum(-1), zero, zero, zero, first, no, ends)


def make_pack(row: Row, env: Env, changes: dict[str, Any], is_tiny: bool) -> Pack:
    """The pack of one row."""
    wide = row.size == "48M"
    agent = {"world_model": {"size": row.size}, "dynamics": FLOW[row.dynamics], "behavior": BEHAVIOR[row.epoch]}
    train = {"envs": 256, "batch": 1024, "prefill_agent_steps": 16_384} if wide else {}
    if is_tiny:
        agent, train = merge(agent, TINY), {"envs": 16, "batch": 32, "prefill_agent_steps": 512}
    cell = PwmCell.model_validate({"agent": merge(agent, changes), "train": EPOCH[row.epoch] | train})
    rows = [traced_values(cell.agent)] * row.seeds
    scalars = jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *rows)
    learner = make_agent("pwm", env.spec, cell.agent)
    steps = 15_000 * cell.train.epoch_env_steps * cell.train.envs
    return Pack(learner, env, cell.train, list(range(row.seeds)), scalars, steps)


def filled(pack: Pack) -> PackState:
    """A state with enough in its replay."""
    state, _ = pack.prefill(pack.init(), -(-pack.settings.prefill_agent_steps // pack.envs))
    return state


def epoch_milliseconds(pack: Pack, state: PackState, seconds: float) -> tuple[PackState, list[float]]:
    """Milliseconds of whole epochs, in groups of five, for about so many seconds."""
    steps, found, began = pack.settings.epoch_env_steps, [], time.monotonic()
    while time.monotonic() - began < seconds or len(found) < 3:
        started = time.monotonic()
        for _ in range(5):
            state, metrics = pack.chunk(state, steps)
        jax.block_until_ready((state.env_steps, metrics))
        found.append(1000 * (time.monotonic() - started) / 5)
    return state, found


def environment_milliseconds(pack: Pack, state: PackState) -> float:
    """Milliseconds of the env steps of one epoch with random actions, compiled and warm."""
    steps = pack.settings.epoch_env_steps
    state, _ = pack.prefill(state, steps)
    jax.block_until_ready(state.env_steps)
    started = time.monotonic()
    for _ in range(3):
        state, _ = pack.prefill(state, steps)
    jax.block_until_ready(state.env_steps)
    return 1000 * (time.monotonic() - started) / 3


def memory() -> tuple[float, float, float]:
    """GiB on the device now and at its peak, and GiB of this process on the host."""
    give_back_memory()
    held, device = memory_in_use(), jax.devices()[0].memory_stats() or {}
    return held.get("memory/device_gib", 0.0), device.get("peak_bytes_in_use", 0) / 2**30, held["memory/host_gib"]


def measure(row: Row, asked: argparse.Namespace) -> dict[str, Any]:
    """Everything that is reported of one row; once it is compiled, it says so and waits for its turn."""
    use_compilation_cache()
    changes = json.loads(asked.agent)
    began = time.monotonic()
    pack = make_pack(row, FreeEnv(), changes, asked.tiny)
    steps = pack.settings.epoch_env_steps
    state, _ = pack.chunk(filled(pack), steps)
    state, _ = pack.chunk(state, steps)
    jax.block_until_ready(state.env_steps)
    compile_seconds = time.monotonic() - began
    print(COMPILED, flush=True)
    sys.stdin.readline()
    first = memory()
    state, found = epoch_milliseconds(pack, state, asked.seconds)
    last = memory()
    result = {
        "name": row.name,
        "agent": changes,
        "milliseconds": sorted(found)[len(found) // 2],
        "fastest": min(found),
        "slowest": max(found),
        "target": row.target,
        "compile_seconds": compile_seconds,
        "device_gib": [first[0], last[0]],
        "peak_gib": last[1],
        "host_gib": [first[2], last[2]],
        "finite": bool(state.agent.finite.all()),
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "commit": code_name(),
    }
    if asked.task:
        real = make_pack(row, make_env(asked.task), changes, asked.tiny)
        result["environment"] = {asked.task: environment_milliseconds(real, real.init())}
    return result


def line(result: dict[str, Any], alone: float | None) -> str:
    """One row as people read it."""
    target = f" (target {result['target']:g})" if result["target"] else ""
    ratio = f", {result['milliseconds'] / alone:.2f} times one seed" if alone else ""
    environment = "".join(f", {task} {value:.1f} ms" for task, value in result.get("environment", {}).items())
    device, host = result["device_gib"], result["host_gib"]
    return (
        f"{result['name']:<15} {result['milliseconds']:7.1f} ms per epoch{target}, {result['fastest']:.1f} to "
        f"{result['slowest']:.1f}{ratio}{environment}; compile {result['compile_seconds']:.0f} s; device "
        f"{device[0]:.2f} then {device[1]:.2f} GiB, peak {result['peak_gib']:.2f}; "
        f"host {host[0]:.2f} then {host[1]:.2f} GiB"
    )


def measure_together(names: list[str]) -> None:
    """One process for each row: all compile at the same time, then each is measured alone."""
    # Processes that share a GPU must not take all of its memory in advance.
    given = os.environ | {"PYTHONUNBUFFERED": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    rows = {
        name: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pwm", *sys.argv[1:], "--only", name],
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    }
    for process in rows.values():
        assert process.stdout is not None
        for said in process.stdout:
            if said.strip() == COMPILED:
                break
    for name, process in rows.items():
        process.communicate("\n")
        if process.returncode:
            print(f"{name}: ended with exit code {process.returncode}", flush=True)


def measured(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The rows that --output holds for these settings, by name."""
    wanted = json.loads(asked.agent)
    return {row["name"]: row for row in read_rows(asked.output) if row["agent"] == wanted}


def main() -> None:
    """Measures the rows that --output does not hold yet, printing as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/pwm.jsonl"))
    parser.add_argument("--rows", default=",".join(row.name for row in ROWS), help="names, separated by commas")
    parser.add_argument("--agent", default="{}", help="agent settings of all rows, as JSON")
    parser.add_argument("--task", help="also measure this task's own steps")
    parser.add_argument("--seconds", type=float, default=4.0, help="measured time of a row")
    parser.add_argument("--together", type=int, default=1, help="rows that compile at the same time")
    parser.add_argument("--budget-seconds", type=float, default=450.0, help="no new row after so long")
    parser.add_argument("--tiny", action="store_true", help="tiny networks, to try the script")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    rows = {row.name: row for row in ROWS}
    if asked.only:
        append_rows(asked.output, [measure(rows[asked.only], asked)])
        return
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    names = asked.rows.split(",")
    for at in range(0, len(names), asked.together):
        group = names[at : at + asked.together]
        missing = [name for name in group if name not in measured(asked)]
        if missing and time.monotonic() - began > asked.budget_seconds:
            print(f"{', '.join(missing)}: no time is left; start it again to continue", flush=True)
        else:
            measure_together(missing)
        known = measured(asked)
        for name in [name for name in group if name in known]:
            alone = known.get(rows[name].alone) if rows[name].seeds > 1 else None
            print(line(known[name], alone["milliseconds"] if alone else None), flush=True)


if __name__ == "__main__":
    main()
