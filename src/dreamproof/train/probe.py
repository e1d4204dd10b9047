"""Preflight of one cell: build, train, save, restore and evaluate once; records time and memory."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from operator import mul
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from dreamproof.base.files import write_json
from dreamproof.jaxcore.compile_events import announce_compiles
from dreamproof.jaxcore.devices import library_versions
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.pulse import Pulse
from dreamproof.runs.writer import RunWriter
from dreamproof.train.loop import chunk_env_steps, compile_ahead, read_job
from dreamproof.train.pack import TrainingPack
from dreamproof.train.saving import checkpoint_facts, restore, save_cell

MEASURED = ("return", "cost", "goals", "length")
"""Of every task."""


def probe(folder: RunFolder, micro_batches: int = 1) -> dict[str, Any]:
    """Runs every phase of a run once and writes probe.json."""
    pulse = Pulse([RunWriter(folder)])
    with pulse, announce_compiles(pulse.set_compiling, pulse.count_compile):
        return _probe(folder, micro_batches, pulse)


def _probe(folder: RunFolder, micro_batches: int, pulse: Pulse) -> dict[str, Any]:
    phases: dict[str, float] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        phases[name] = round(phases.get(name, 0.0) + time.monotonic() - began, 3)
        pulse.set("start", 0, 0)

    with phase("build"):
        job = read_job([folder], micro_batches)
        compile_ahead(job, job.pack.prefilled_agent_steps)
        state = job.pack.init()
    settings = job.cell.train
    with phase("prefill"):
        state = job.pack.prepare(state)
    seconds_per_step = []
    for stage in (None, *job.pack.later_stages):
        if stage is not None:
            state = state._replace(env_steps=jnp.asarray(stage, jnp.int32))
        with phase("compile and train"):
            # The same length as in training, so that training finds the compiled program in the cache.
            steps = chunk_env_steps(job, job.pack.prefilled_agent_steps)
            state, _ = job.pack.chunk(state, steps)
            before = int(state.env_steps)
        began = time.monotonic()
        with phase("train"):
            state, _ = job.pack.chunk(state, steps)
            jax.block_until_ready(state.env_steps)
        seconds_per_step.append((time.monotonic() - began) / (int(state.env_steps) - before))
    with phase("save"):
        done = int(state.env_steps) * job.pack.envs
        facts = checkpoint_facts(job.runs[0], done, int(state.agent.gradient_steps[0]), job.names)
        facts |= {"frozen": False, **job.pack.facts}
        saved = save_cell(job.writers[0], state, 0, facts)
    with phase("restore"):
        again = restore(job.pack, [saved])
        same = jax.tree.map(
            lambda a, b: bool(np.array_equal(np.asarray(a), np.asarray(b))), _arrays(again), _arrays(state)
        )
        if not all(jax.tree.leaves(same)):
            raise RuntimeError("the restored state differs from the saved one")
    with phase("evaluate"):
        # As many episodes as in training, for the same reason.
        episodes, _ = jax.block_until_ready(job.pack.validate(state.agent, settings.validation_episodes))
    device = jax.devices()[0].memory_stats() or {}
    now = sum(leaf.nbytes for leaf in jax.tree.leaves(_arrays(state)))
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {
        "phases": phases,
        "device_bytes": device.get("peak_bytes_in_use"),
        "host_bytes": host,
        # The replay is fully allocated at the start, so memory does not grow.
        "forecast_device_bytes": device.get("peak_bytes_in_use"),
        "forecast_host_bytes": host,
        "state_bytes": now,
        "checkpoint_bytes": now,
        "agent_steps_per_second": job.pack.envs / _mean_seconds(job.pack, seconds_per_step),
        "metrics": None if episodes is None else [*MEASURED, *sorted(episodes.metrics)],
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "versions": library_versions(),
    }
    write_json(folder.probe, found)
    return found


def _mean_seconds(pack: TrainingPack, seconds_per_step: list[float]) -> float:
    """Mean seconds per env step over all stages of the run."""
    bounds = [0, *pack.later_stages, pack.total_env_steps]
    lengths = [after - before for before, after in pairwise(bounds)]
    return sum(map(mul, lengths, seconds_per_step)) / pack.total_env_steps


def _arrays(state: Any) -> Any:
    return eqx.filter(state, eqx.is_array)
