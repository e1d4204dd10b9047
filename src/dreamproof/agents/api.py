"""What the training loop and the evaluator ask of an agent. Nothing here mentions replicas."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jax import Array

from dreamproof.jaxcore.types import TimeStep


class Decision(NamedTuple):
    """What an agent does now (N, A), what it remembers, and what is logged of it (N,)."""

    action: Array
    memory: Any
    metrics: dict[str, Array]


class EpochBatch(NamedTuple):
    """What one epoch learns from: replayed windows (K, T, B, ...), K batches of them, and what each env shows now."""

    replayed: Any
    now: TimeStep


class Agent(Protocol):
    """A bundle of pure functions over one learning state."""

    settings: Any

    def init_state(self, key: Array) -> Any:
        """The learning state before any update."""

    def init_memory(self, envs: int) -> Any:
        """What acting remembers between steps, for `envs` envs."""

    def act(
        self, state: Any, memory: Any, seen: TimeStep, key: Array, scalars: dict[str, Any], explore: bool
    ) -> Decision:
        """Chooses actions; `explore` adds the noise of training."""

    def update(self, state: Any, batch: Any, key: Array, scalars: dict[str, Any], progress: Array) -> tuple[Any, dict]:
        """One gradient step on a batch of replayed windows, or one epoch on a Lesson; `progress` is what is trained."""


@runtime_checkable
class SeparateUpdates(Agent, Protocol):
    """An agent whose world model and behaviour can learn apart, as from recorded episodes."""

    def update_model(
        self, state: Any, windows: Any, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[Any, dict]:
        """One gradient step for each of K batches of windows (K, T, B, ...)."""

    def update_behavior(
        self, state: Any, observation: Array, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[Any, dict]:
        """One round of learning in imagination that starts in observations (S, O); the model stays as it is."""


@runtime_checkable
class Reflective(Agent, Protocol):
    """An agent that learns from how its own decisions turned out, besides from replay."""

    def reflect(self, state: Any, shown: dict[str, Array], scalars: dict[str, Any]) -> Any:
        """Takes in what a decision logged (N,), how many episodes ended in its step and what they cost on average."""


@runtime_checkable
class Calibrated(Agent, Protocol):
    """An agent that acts on a certificate; its memory holds the certificate's value as `barrier`."""

    def calibrate(self, state: Any, values: Array, margins: Array) -> Any:
        """The state after held-out episodes: values (T, E) at each decision, true margins (T, E) after it."""
