"""A trained agent as a policy for any simulator: observations in, actions out."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Env
from dreamproof.envs.wrappers import Padded
from dreamproof.evaluate.calibration import as_evaluated
from dreamproof.evaluate.loading import Loaded, load
from dreamproof.evaluate.policy_file import read_policy
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.runs.layout import RunFolder


class Policy:
    """Acts as in evaluation: without exploration noise, with the certificate's offset that the evaluation calibrated.

    It remembers an episode, so `reset` begins every new one. A policy of a study over several tasks takes and gives
    what its own task has, without the padding to the widest one.
    """

    def __init__(self, loaded: Loaded, seed: int = 0) -> None:
        self._loaded = loaded
        self._env = loaded.env.env if isinstance(loaded.env, Padded) else loaded.env
        self._key = jax.random.key(seed)
        self._scalars = loaded.scalars | {"latent_swaps": jnp.zeros(())}
        self._act = eqx.filter_jit(self._decide)
        self.reset()

    @property
    def env(self) -> Env:
        """The environment the agent was trained on."""
        return self._env

    @property
    def spec(self) -> Spec:
        """Sizes and names of observations and actions."""
        return self._env.spec

    @property
    def agent_steps(self) -> int:
        """Agent steps of training behind the checkpoint."""
        return self._loaded.record.agent_steps

    def reset(self) -> None:
        """Forgets the episode; the next observation is a first one."""
        self._memory: Any = None
        self._count = self._steps = 0

    def act(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Actions in [-1, 1] for observations (O,) or (N, O); the shape must not change within an episode."""
        try:
            seen = np.asarray(observation, np.float32)
        except (TypeError, ValueError) as error:
            raise BadInput(f"an observation is no array of numbers: {error}", "check the simulator") from None
        if seen.ndim not in (1, 2) or seen.shape[-1] != self.spec.observation_size or not len(seen):
            raise BadInput(
                f"an observation has the shape {seen.shape}; ({self.spec.observation_size},) or "
                f"(N, {self.spec.observation_size}) is expected",
                "check the task: policy.spec",
            )
        if not np.isfinite(seen).all():
            raise BadInput(
                "an observation holds values that are not finite", "check the simulator, then policy.reset()"
            )
        batch = np.atleast_2d(seen)
        missing = self._loaded.env.spec.observation_size - self.spec.observation_size
        batch = np.pad(batch, ((0, 0), (0, missing)))
        if self._memory is None:
            self._memory, self._count = self._loaded.agent.init_memory(len(batch)), len(batch)
        if len(batch) != self._count:
            raise BadInput(
                f"{len(batch)} observations after {self._count} in the steps before", "at a new episode: policy.reset()"
            )
        key = jax.random.fold_in(self._key, self._steps)
        action, self._memory = self._act(
            self._loaded.state, self._memory, jnp.asarray(batch), jnp.asarray(self._steps == 0), key
        )
        self._steps += 1
        actions = np.asarray(action, np.float32)[:, : self.spec.action_size]
        return actions[0] if seen.ndim == 1 else actions

    def _decide(
        self, state: Any, memory: Any, observation: jax.Array, is_first: jax.Array, key: jax.Array
    ) -> tuple[Any, Any]:
        zeros = jnp.zeros(len(observation))
        first = jnp.full(len(observation), is_first, jnp.float32)
        seen = TimeStep(observation, zeros, zeros, zeros, zeros, first, zeros, zeros)
        decided = self._loaded.agent.act(state, memory, seen, key, self._scalars, explore=False)
        return decided.action, decided.memory


def open_policy(path: Path) -> Policy:
    """The policy of a file that `export --policy` wrote."""
    return Policy(read_policy(path))


def load_policy(run: RunFolder, checkpoint: str = "final", task: str | None = None) -> Policy:
    """The policy of a run's `final` or `selected` checkpoint; without a selected one the final one is both.

    task: which of its tasks, if the run has policies for several.
    """
    return Policy(load_agent(run, checkpoint, task))


def load_agent(run: RunFolder, checkpoint: str = "final", task: str | None = None) -> Loaded:
    """The agent of `load_policy`."""
    if checkpoint not in ("final", "selected"):
        raise BadInput(f"there is no checkpoint '{checkpoint}'", "use 'final' or 'selected'")
    loaded = load(run, checkpoint) or load(run, "final")
    assert loaded is not None
    if (model_updates := loaded.model_updates) >= loaded.record.agent_steps:
        raise BadInput(
            f"{run.root}: no policy has learned in {loaded.record.agent_steps:,} updates; in the first "
            f"{model_updates:,} the world model learns alone",
            "take it over as a world model: data.world_model, see docs/multitask.md",
        )
    return as_evaluated(loaded, run) if task is None else loaded.of_task(task)
