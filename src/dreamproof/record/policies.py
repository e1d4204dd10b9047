"""Policies whose episodes are recorded: uniform random actions, or a trained run with its exploration noise."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Env
from dreamproof.envs.registry import make as make_env
from dreamproof.envs.wrappers import Padded
from dreamproof.evaluate.loading import Loaded
from dreamproof.evaluate.policy import load_agent
from dreamproof.evaluate.policy_file import read_policy
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.runs.layout import RunFolder

RANDOM = "random"
# act(state, memory, seen, key) -> (action (N, A), memory)
Act = Callable[[Any, Any, TimeStep, Array], tuple[Array, Any]]


@dataclass(frozen=True)
class RecordingPolicy:
    """One policy on one task: the env as the policy sees it, its parameters and its memory of N envs."""

    name: str
    task: str
    env: Env
    act: Act
    state: Any
    memory: Callable[[int], Any]

    @property
    def own_spec(self) -> Spec:
        """The task's own sizes, without padding."""
        return self.env.env.spec if isinstance(self.env, Padded) else self.env.spec


def find_policies(tasks: list[str], policies: list[str]) -> list[RecordingPolicy]:
    """One policy for every task and every run of it; a task or a run without a match is refused."""
    runs = {policy: _loaded(Path(policy)) for policy in policies if policy != RANDOM}
    for policy, run in runs.items():
        if run.run.task not in tasks:
            raise BadInput(
                f"{policy}: was trained on '{run.run.task}', which is not one of --tasks", "add it to --tasks"
            )
    found: list[RecordingPolicy] = []
    for task in tasks:
        able = [name for name in policies if name == RANDOM or runs[name].run.task == task]
        if not able:
            raise BadInput(
                f"none of the runs was trained on the task '{task}'", f"add a run of it to --policy, or '{RANDOM}'"
            )
        found += [_random(task) if name == RANDOM else _trained(name, runs[name]) for name in able]
    return found


def _loaded(folder: Path) -> Loaded:
    if folder.is_file():
        return read_policy(folder)
    return load_agent(RunFolder(folder))


def _random(task: str) -> RecordingPolicy:
    env = make_env(task)

    def act(state: Any, memory: Any, seen: TimeStep, key: Array) -> tuple[Array, Any]:
        del state
        shape = (seen.observation.shape[0], env.spec.action_size)
        return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), memory

    return RecordingPolicy(RANDOM, task, env, act, (), lambda envs: ())


def _trained(name: str, run: Loaded) -> RecordingPolicy:
    scalars = run.scalars | {"latent_swaps": jnp.zeros(())}

    def act(state: Any, memory: Any, seen: TimeStep, key: Array) -> tuple[Array, Any]:
        decided = run.agent.act(state, memory, seen, key, scalars, explore=True)
        return decided.action, decided.memory

    return RecordingPolicy(name, run.run.task, run.env, act, run.state, run.agent.init_memory)
