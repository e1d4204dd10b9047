"""Settings of the training loop. Every cadence counts agent steps."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dreamproof.settings.strict import Settings
from dreamproof.settings.traced import TRACED


class Collapse(Settings):
    """When a drop of the validation return counts as a collapse, and how often it is rolled back."""

    fraction: float = Field(0.3, ge=0, lt=1, description="of the best validation return so far; 0 disables the check")
    evaluations: int = Field(2, ge=1, description="consecutive validations below the fraction that count as a collapse")
    rollbacks: int = Field(3, ge=0, description="how often the networks may be rolled back to the selected checkpoint")


class LoopSettings(Settings):
    """Batch shape and cadences of every agent."""

    batch: int = Field(32, ge=1, description="windows per update")
    window: int = Field(16, ge=2, description="agent steps per window")
    evaluate_every_agent_steps: int = Field(10_000, ge=1)
    validation_episodes: int = Field(20, ge=1)
    feasible_cost: float = Field(5.0, ge=0, description="validation cost up to which a checkpoint is feasible")
    log_every_agent_steps: int = Field(2_000, ge=1)
    chunk_agent_steps: int = Field(400, ge=1, description="agent steps per call of the compiled program")
    keep_checkpoints: int = Field(2, ge=1)
    collapse: Collapse = Collapse(fraction=0.0)


class OnlineSettings(LoopSettings):
    """An agent that learns from its own experience."""

    envs: int = Field(8, ge=1, description="environments per replica")
    prefill_agent_steps: int = Field(1600, ge=1, description="steps with random actions before the first update")
    replay_agent_steps: int | None = Field(
        None, ge=1, description="replay capacity in agent steps; unlimited if left out"
    )


class Randomise(Settings):
    """Domain randomisation of training episodes; each episode of each env draws its own physics. Off by default.

    Validation and evaluation are not randomised. A factor is log-uniform between 1 / spread and spread. The agent
    learns from the actions that took effect, and finds their delay with `agent.filter`.
    """

    old_names: ClassVar[dict[str, str]] = {"most_delay": "max_delay"}

    mass_spread: Annotated[float, TRACED] = Field(1.0, ge=1)
    damping_spread: Annotated[float, TRACED] = Field(1.0, ge=1)
    force_spread: Annotated[float, TRACED] = Field(1.0, ge=1)
    max_delay: Annotated[float, TRACED] = Field(0.0, ge=0, le=2, description="action delay in agent steps, at most")

    @property
    def is_on(self) -> bool:
        """Whether anything is randomised."""
        return self != Randomise()


class StepTrain(OnlineSettings):
    """An agent that updates after every step."""

    updates_per_agent_step: float = Field(0.5, gt=0)
    randomise: Randomise = Randomise()

    @model_validator(mode="after")
    def _whole_updates(self) -> Self:
        updates = self.envs * self.updates_per_agent_step
        if abs(updates - round(updates)) > 1e-9 or round(updates) < 1:
            raise ValueError(
                f"{self.envs} envs × {self.updates_per_agent_step} updates per agent step is not a whole number"
            )
        return self


class EpochTrain(OnlineSettings):
    """An agent that collects steps from many envs, then learns from replay in one compiled call."""

    added: ClassVar[dict[str, Any]] = {
        "prefill_actions": "random",
        "replay_sampling": "transitions",
        "bootstrap_updates": 0,
        "fine_tune": False,
    }

    envs: int = Field(256, ge=1, description="environments per replica")
    epoch_env_steps: int = Field(4, ge=1, description="steps of every env per epoch")
    batches: int = Field(16, ge=1, description="batches of windows, and so model updates, per epoch")
    batch: int = Field(256, ge=1, description="windows per model update")
    window: int = Field(5, ge=2, description="rows per window: transitions plus one")
    prefill_agent_steps: int = Field(8192, ge=1, description="steps before the first epoch")
    prefill_actions: Literal["random", "policy"] = Field(
        "random", description="actions of these steps: uniform ones, or those of the initial policy"
    )
    replay_agent_steps: int | None = Field(
        1_000_000, ge=1, description="replay capacity in agent steps; unlimited if left out"
    )
    staggered: bool = Field(
        True,
        description="truncate the first episode of each env at a different time, so that envs are out of phase",
    )
    replay_sampling: Literal["transitions", "trajectories"] = Field(
        "transitions",
        description="windows are drawn uniformly over all transitions; or over finished episodes of at least `window` "
        "rows, then over the windows of each",
    )
    bootstrap_updates: int = Field(
        0,
        ge=0,
        description="model updates before the first epoch, on the prefill; none with data.world_model",
    )
    fine_tune: bool = Field(False, description="keep training the model of data.world_model; otherwise it is frozen")
    evaluate_every_agent_steps: int = Field(512_000, ge=1)
    validation_episodes: int = Field(16, ge=1)
    log_every_agent_steps: int = Field(40_960, ge=1)
    chunk_agent_steps: int = Field(40_960, ge=1, description="agent steps per call of the compiled program")
    collapse: Collapse = Collapse()

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        if -(-self.prefill_agent_steps // self.envs) + 1 < self.window:
            raise ValueError(
                f"{self.prefill_agent_steps} steps of {self.envs} envs are too few for a window of {self.window} rows"
            )
        if self.bootstrap_updates % self.batches:
            raise ValueError(f"bootstrap_updates {self.bootstrap_updates} is not a multiple of batches, {self.batches}")
        return self


class OfflineTrain(LoopSettings):
    """An agent that learns from recorded episodes. Its agent steps are its updates: it takes no environment steps."""

    batch: int = Field(256, ge=1, description="windows per model update")
    window: int = Field(17, ge=2, description="rows per window: transitions plus one")
    fine_tune: bool = Field(
        False, description="keep training the model, on the cell's task only, while the behaviour learns"
    )
    evaluate_every_agent_steps: int = Field(2_000, ge=1)
    validation_episodes: int = Field(16, ge=1)
    log_every_agent_steps: int = Field(100, ge=1)
    chunk_agent_steps: int = Field(100, ge=1, description="updates per call of the compiled program")
