"""Agents and packs small enough to compile in seconds."""

import signal
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import yaml

from dreamproof.agents.registry import make_agent
from dreamproof.base.files import write_json
from dreamproof.envs.api import Env
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import RunSettings
from dreamproof.settings.cell import DreamerCell, PwmCell
from dreamproof.settings.traced import traced_values
from dreamproof.testing.many_probes import ManyProbes as ManyProbes
from dreamproof.testing.small_agent import TRAIN as TRAIN
from dreamproof.testing.small_agent import merged as merged
from dreamproof.testing.small_agent import tiny_pwm_settings, tiny_settings
from dreamproof.train import loop
from dreamproof.train.pack import Pack, ReplicaInputs

# Cells of one pack: a seed and what is traced. The last one steps so far that its numbers overflow.
CELLS: dict[str, tuple[int, dict[str, Any]]] = {
    "baseline": (0, {}),
    "full": (1, {"risk": {"uncertainty_weight": 1.0, "certificate_weight": 1.0}}),
    "wild": (2, {"behavior": {"critic_learning_rate": 1e30}}),
}
TASK, AGENT_STEPS = "ProbeCredit", 600


class StopAfter:
    """Asks the loop to stop at its n-th look, in place of a signal."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    @property
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def tiny_cell(agent: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> DreamerCell:
    """A tiny cell."""
    return DreamerCell.model_validate(tiny_settings(agent, train))


def tiny_pwm_cell(agent: dict[str, Any] | None = None, train: dict[str, Any] | None = None) -> PwmCell:
    """A tiny cell of the PWM agent."""
    return PwmCell.model_validate(tiny_pwm_settings(agent, train))


def stacked_scalars(cells: Sequence[DreamerCell | PwmCell]) -> dict[str, Any]:
    """Traced settings of several cells, (R,) each."""
    rows = [traced_values(cell.agent) for cell in cells]
    return jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *rows)


def make_pack(env: Env, cells: Sequence[DreamerCell], seeds: Sequence[int], agent_steps: int) -> Pack:
    """A pack of cells that differ in traced settings and seeds only."""
    agent = make_agent("dreamer", env.spec, cells[0].agent)
    return Pack(agent, env, cells[0].train, list(seeds), stacked_scalars(cells), agent_steps)


def make_pwm_pack(env: Env, cells: Sequence[PwmCell], seeds: Sequence[int], agent_steps: int) -> Pack:
    """A pack of PWM cells that differ in traced settings and seeds only."""
    agent = make_agent("pwm", env.spec, cells[0].agent)
    return Pack(agent, env, cells[0].train, list(seeds), stacked_scalars(cells), agent_steps)


def write_cells(place: Path, names: Sequence[str] = tuple(CELLS)) -> dict[str, RunFolder]:
    """Run folders with the settings of some cells, as the supervisor would write them."""
    folders = {}
    for name in names:
        seed, agent = CELLS[name]
        given = RunSettings(
            study="tiny",
            arm=name,
            seed=seed,
            task=TASK,
            agent_steps=AGENT_STEPS,
            settings=tiny_settings(agent),
            conditions=[{"name": "id"}],
            evaluation_episodes=6,
        )
        folders[name] = RunFolder(place / f"{name}-seed{seed}")
        folders[name].root.mkdir(parents=True)
        write_json(folders[name].settings, given.model_dump(mode="json"))
    return folders


# Three arms of one seed: as many cells as in the pack above, so that they run its compiled programs.
ARMS = {"baseline": {}, "full": CELLS["full"][1], "u_only": {"risk": {"uncertainty_weight": 1.0}}}
EPISODES = 6


def declare_packed(place: Path, **changes: Any) -> Path:
    """The file of a study of the tiny agent whose arms share a compile; `changes` replace whole keys."""
    study: dict[str, Any] = {
        "name": "packed",
        "question": "Do several cells train in one process?",
        "metric": {"name": "return", "smallest_difference": 1.0},
        "task": TASK,
        "trainer": "dreamer",
        "settings": tiny_settings(),
        "arms": {name: {"agent": agent} for name, agent in ARMS.items()},
        "seeds": 1,
        "agent_steps": AGENT_STEPS,
        "conditions": ["id"],
        "evaluation_episodes": EPISODES,
        "pack_cells": len(ARMS),
        "retries": {"first_wait_seconds": 0.05},
    }
    file = place / "packed.yaml"
    file.write_text(yaml.safe_dump(study | changes, sort_keys=False))
    return file


# Cells of one PWM pack: a seed and what is traced.
PWM_CELLS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (0, {}),
    "quick": (1, {"world_model": {"learning_rate": 3e-3}}),
}
PWM_TASK, PWM_AGENT_STEPS = "ProbeSurvive", 2560


def write_pwm_cells(place: Path, train: dict[str, Any] | None = None) -> dict[str, RunFolder]:
    """Run folders with the settings of the PWM cells, as the supervisor would write them."""
    folders = {}
    for name, (seed, agent) in PWM_CELLS.items():
        given = RunSettings(
            study="tiny",
            arm=name,
            seed=seed,
            task=PWM_TASK,
            trainer="pwm",
            agent_steps=PWM_AGENT_STEPS,
            settings=tiny_pwm_settings(agent, train),
            conditions=[{"name": "id"}],
            evaluation_episodes=6,
        )
        folders[name] = RunFolder(place / f"{name}-seed{seed}")
        folders[name].root.mkdir(parents=True)
        write_json(folders[name].settings, given.model_dump(mode="json"))
    return folders


def with_inputs(pack: Pack, cells: Sequence[DreamerCell | PwmCell], seeds: Sequence[int]) -> Pack:
    """A pack with other seeds and traced settings that runs the compiled programs of `pack`."""
    other = copy(pack)
    other.inputs = ReplicaInputs(jnp.asarray(seeds, jnp.uint32), stacked_scalars(cells))
    return other


def train_here(folders: dict[str, RunFolder], pack: Pack) -> bool:
    """Trains run folders in this process with the compiled programs of `pack`; signals are as before afterwards."""

    def compiled(*arguments: Any) -> Pack:
        other = copy(pack)
        other.inputs = ReplicaInputs(jnp.asarray(arguments[3], jnp.uint32), arguments[4])
        return other

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "Pack", compiled)
        finished = loop.train(list(folders.values()))
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    return finished
