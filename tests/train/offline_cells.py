"""Tiny offline cells: two tasks of different sizes, episodes recorded of them, and run folders that learn from them."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from jax import Array
from tests.tiny import StopAfter

from dreamproof.base.files import write_json
from dreamproof.data.recordings import write_recording
from dreamproof.envs import registry
from dreamproof.envs.api import Params, Spec, State, TimeStep
from dreamproof.envs.probes import KnownReturns, ProbeEnv
from dreamproof.record.episodes import record
from dreamproof.record.policies import find_policies
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import RunSettings
from dreamproof.testing.small_agent import merged, tiny_pwm_settings
from dreamproof.train import loop
from dreamproof.train.offline_pack import OfflinePack
from dreamproof.train.pack import ReplicaInputs

TASKS = ("TestTwoHands", "ProbeCostLine")
OWN_TASK = "ProbeCostLine"
MODEL_UPDATES, UPDATES = 300, 600


class _Targets(NamedTuple):
    targets: Array
    agent_steps: Array


@dataclass(frozen=True)
class TwoHands(ProbeEnv):
    """Two numbers in [-1, 1] are shown; the reward is 1 less the mean squared distance of two actions from them."""

    @cached_property
    def spec(self) -> Spec:
        """Two numbers seen, two done."""
        return self._spec("TestTwoHands", 2)._replace(action_size=2)

    def known(self) -> KnownReturns:
        """1 per step; uniform actions miss by 2/3 in the mean square."""
        return KnownReturns(self.episode_agent_steps, self.episode_agent_steps / 3, self.episode_agent_steps)

    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Shows first targets."""
        state = _Targets(jax.random.uniform(key, (2,), minval=-1.0), jnp.zeros((), jnp.int32))
        return state, self._shown(state.targets, jnp.zeros(()), state.agent_steps, params)

    def step_one(self, key: Array, state: _Targets, action: Array, params: Params) -> tuple[State, TimeStep]:
        """Rewards the hit and shows others."""
        reward = 1.0 - ((action - state.targets) ** 2).mean()
        state = _Targets(jax.random.uniform(key, (2,), minval=-1.0), state.agent_steps + 1)
        return state, self._shown(state.targets, reward, state.agent_steps, params)


registry.register("TestTwoHands", lambda task, settings: TwoHands())


def record_both(path: Path, episodes: int = 300) -> Path:
    """Random episodes of both tasks in a file."""
    made = record(find_policies(list(TASKS), ["random"]), list(TASKS), episodes, 0, lambda batches: batches)
    write_recording(path, made)
    return path


def offline_settings(file: Path, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The `settings` of a tiny offline cell as a study would say them."""
    agent = {
        "world_model": {"tasks": 2, "task_size": 4, "learning_rate": 3e-3},
        "behavior": {"warm_up_epochs": MODEL_UPDATES, "replayed_starts": 32},
    }
    given = {
        "agent": tiny_pwm_settings(agent)["agent"],
        "data": {"files": [str(file)], "tasks": list(TASKS), "observation_size": 2, "action_size": 2},
        "train": {
            "batch": 16,
            "window": 5,
            "chunk_agent_steps": 50,
            "log_every_agent_steps": 50,
            "evaluate_every_agent_steps": 150,
            "validation_episodes": 4,
            "keep_checkpoints": 4,
        },
    }
    return merged(given, changes or {})


def write_cell(place: Path, settings: dict[str, Any], task: str = OWN_TASK) -> RunFolder:
    """A run folder with the settings of an offline cell, as the supervisor would write them."""
    given = RunSettings(
        study="tiny",
        arm="offline",
        seed=1,
        task=task,
        trainer="pwm_offline",
        agent_steps=UPDATES,
        settings=settings,
        conditions=[{"name": "id"}],
        evaluation_episodes=6,
    )
    place.mkdir(parents=True, exist_ok=True)
    write_json(RunFolder(place).settings, given.model_dump(mode="json"))
    return RunFolder(place)


@contextmanager
def programs_of(pack: OfflinePack) -> Iterator[pytest.MonkeyPatch]:
    """While this lasts, jobs read in this process run the compiled programs of `pack`."""

    def compiled(agent: Any, env: Any, cell: Any, seeds: list[int], scalars: Any, steps: int) -> OfflinePack:
        del agent, env, steps
        other = copy(pack)
        other.inputs = ReplicaInputs(jnp.asarray(seeds, jnp.uint32), scalars, pack.inputs.recorded)
        other.data, other.sources = cell.data, {name: pack.sources[name] for name in cell.data.files}
        return other

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "make_offline_pack", compiled)
        yield patch


def train_offline(run: RunFolder, pack: OfflinePack, looks: int = UPDATES) -> bool:
    """Trains a run folder in this process with the compiled programs of `pack`, for so many chunks at most."""
    with programs_of(pack) as patch:
        patch.setattr(loop, "StopFlag", lambda: StopAfter(looks))
        return loop.train([run])
