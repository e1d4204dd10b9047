"""What the training loop and the evaluator require of an agent. Nothing here mentions replicas."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array

from dreamproof.jaxcore.types import TimeStep


class Decision(NamedTuple):
    """Actions (N, A), the next memory, and metrics (N,)."""

    action: Array
    memory: Any
    metrics: dict[str, Array]


class Batch(NamedTuple):
    """Replayed windows (T, B, ...). Action, reward and cost belong to the transition into their row.

    held_out (B,) marks windows that the ensemble does not train on. costs (T, B, K): of each constraint of a task that
    names several.
    """

    observation: Array
    action: Array
    reward: Array
    cost: Array
    margin: Array
    first: Array
    terminated: Array
    held_out: Array
    costs: Array | None = None


class Windows(NamedTuple):
    """Replayed rows (T+1, B, ...). Action, reward and end flags belong to the transition into their row.

    scale divides rewards; task (B,) is the task of each window if there are several.
    """

    observation: Array
    action: Array
    reward: Array
    first: Array
    terminated: Array
    scale: Array
    task: Array | None = None

    @property
    def valid(self) -> Array:
        """1 for transitions (T, B) up to the first end of an episode inside the window."""
        return jnp.cumprod(1.0 - self.first[1:], axis=0)


class RecordedSteps(NamedTuple):
    """Recorded observations (S, O), and the actions (S, A) that were taken in them.

    copied: other steps whose actions may be cloned; None: these. windows: recorded windows (T+1, S, ...) with unscaled
    rewards, from which values are learned too.
    """

    observation: Array
    action: Array
    copied: "RecordedSteps | None" = None
    windows: Windows | None = None


class EpochBatch(NamedTuple):
    """Data of one epoch: K batches of replayed windows (K, T, B, ...), and the current time step of each env."""

    replayed: Batch
    now: TimeStep

    @property
    def windows(self) -> Windows:
        """The replayed windows, with unscaled rewards."""
        rows = self.replayed
        scale = jnp.ones(rows.reward.shape[:1])
        return Windows(rows.observation, rows.action, rows.reward, rows.first, rows.terminated, scale)


class Agent(Protocol):
    """A bundle of pure functions over one learning state."""

    settings: Any

    def init_state(self, key: Array) -> Any:
        """The learning state before any update."""

    def init_memory(self, envs: int) -> Any:
        """The memory between steps, for `envs` envs."""

    def act(
        self, state: Any, memory: Any, seen: TimeStep, key: Array, scalars: dict[str, Any], explore: bool
    ) -> Decision:
        """Chooses actions; `explore` adds exploration noise."""

    def update(self, state: Any, batch: Any, key: Array, scalars: dict[str, Any], progress: Array) -> tuple[Any, dict]:
        """One gradient step on a Batch, or one epoch on an EpochBatch; `progress` is the trained fraction."""


@runtime_checkable
class SeparateUpdates(Agent, Protocol):
    """An agent whose world model and behaviour can learn separately, as from recorded episodes.

    model_fields: fields of its learning state that another run with the same world model can take over.
    """

    model_fields: tuple[str, ...]

    def update_model(
        self, state: Any, windows: Windows, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[Any, dict]:
        """One gradient step for each of K batches of windows (K, T, B, ...)."""

    def update_behavior(
        self, state: Any, steps: RecordedSteps, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[Any, dict]:
        """One round of learning from recorded steps of the agent's task; the model does not change."""


@runtime_checkable
class FreezableModel(SeparateUpdates, Protocol):
    """An agent that can learn from its own experience in a world model that does not change."""

    def with_frozen_model(self) -> "FreezableModel":
        """The same agent; its updates leave the world model as it is."""


@runtime_checkable
class SeveralPolicies(SeparateUpdates, Protocol):
    """An agent with a policy for each of several tasks; it learns from recorded steps (K, S, ...) of all of them."""

    def policy_of(self, state: Any, index: int) -> Any:
        """The learning state of the policy of one task, as an agent of that task alone has it."""


@runtime_checkable
class Reflective(Agent, Protocol):
    """An agent that learns from the outcome of its own decisions, besides from replay."""

    def reflect(self, state: Any, shown: dict[str, Array], scalars: dict[str, Any]) -> Any:
        """The state after one step; `shown`: logged metrics (N,), number and mean cost of the episodes that ended."""


@runtime_checkable
class Calibrated(Agent, Protocol):
    """An agent that acts on a certificate; its memory holds the value of the certificate as `barrier`.

    certificate_steps: agent steps for which it guarantees a margin >= 0. miscoverage: its allowed error rate.
    """

    certificate_steps: int
    miscoverage: float

    def calibrate(self, state: Any, values: Array, margins: Array) -> Any:
        """The state after held-out episodes: values (T, E) at each decision, true margins (T, E) after it."""

    def certificate_offset(self, state: Any) -> Array:
        """What is subtracted from a certificate value before it is compared with 0."""

    def with_offset(self, state: Any, offset: Array) -> Any:
        """The state with another offset."""
