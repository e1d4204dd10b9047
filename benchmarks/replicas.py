"""Milliseconds per update of packs of several sizes: `python -m benchmarks.replicas STUDY 1 5 20 40`.

Replicas are seeds of the reference arm; acting, planning and replay count. All sizes are compiled before any is
measured. --wait then waits for a line on standard input, so that other work can end first.
"""

import argparse
import json
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dreamproof.agents.registry import make_agent
from dreamproof.envs.registry import make_for
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.study import Study
from dreamproof.settings.study_file import read_study
from dreamproof.settings.traced import traced_values
from dreamproof.train.pack import Pack, PackState


class Compiled(NamedTuple):
    """A pack that has run one chunk of `env_steps`, and the seconds until then."""

    pack: Pack
    state: PackState
    env_steps: int
    seconds: float


def make_pack(study: Study, replicas: int) -> Pack:
    """Seeds 0, 1, … of the reference arm."""
    settings = study.merged_settings(study.reference_arm or next(iter(study.arms)))
    cell = CELL_SETTINGS["dreamer"].model_validate(settings)
    env = make_for(study.task, cell)
    scalars = jax.tree.map(lambda value: jnp.full(replicas, value, jnp.float32), traced_values(cell.agent))
    agent = make_agent("dreamer", env.spec, cell.agent)
    return Pack(agent, env, cell.train, list(range(replicas)), scalars, study.agent_steps)


def compiled(study: Study, replicas: int) -> Compiled:
    """A pack of so many replicas after its first chunk."""
    began, pack = time.monotonic(), make_pack(study, replicas)
    env_steps = pack.settings.chunk_agent_steps // pack.envs
    state, _ = pack.chunk(pack.prepare(pack.init()), env_steps)
    jax.block_until_ready(state)
    return Compiled(pack, state, env_steps, time.monotonic() - began)


def measured(made: Compiled, chunks: int) -> list[float]:
    """Milliseconds per update in each of several chunks."""
    state, found = made.state, []
    for _ in range(chunks):
        began = time.monotonic()
        state, _ = made.pack.chunk(state, made.env_steps)
        jax.block_until_ready(state)
        updates = made.env_steps * made.pack.updates_per_step
        found.append(1e3 * (time.monotonic() - began) / updates)
    return found


def main() -> None:
    """Prints one JSON line per size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("replicas", nargs="+", type=int)
    parser.add_argument("--chunks", type=int, default=3)
    parser.add_argument("--wait", action="store_true")
    asked = parser.parse_args()
    use_compilation_cache()
    study = read_study(asked.study)
    made = [compiled(study, replicas) for replicas in asked.replicas]
    if asked.wait:
        input("compiled; press Enter to measure\n")
    for each in made:
        figures = [round(value, 3) for value in measured(each, asked.chunks)]
        line = {"replicas": each.pack.replicas, "ms_per_update": figures, "first_chunk_seconds": round(each.seconds, 1)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
