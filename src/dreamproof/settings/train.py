"""Settings of the training loop. Every cadence counts agent steps."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from dreamproof.settings.strict import Settings
from dreamproof.settings.traced import TRACED


class Collapse(Settings):
    """When a sudden fall of the validation return counts as a collapse, and what is done about it."""

    fraction: float = Field(0.3, ge=0, lt=1, description="of the best validation return so far; 0 looks for nothing")
    evaluations: int = Field(2, ge=1, description="so many in a row below the fraction are a collapse")
    rollbacks: int = Field(3, ge=0, description="so often at most the networks go back to the selected checkpoint")


class Loop(Settings):
    """How much, how often, for every agent."""

    batch: int = Field(32, ge=1, description="windows an update")
    window: int = Field(16, ge=2, description="agent steps of a window")
    evaluate_every_agent_steps: int = Field(10_000, ge=1)
    validation_episodes: int = Field(20, ge=1)
    feasible_cost: float = Field(5.0, ge=0, description="validation cost up to which a checkpoint is feasible")
    log_every_agent_steps: int = Field(2_000, ge=1)
    chunk_agent_steps: int = Field(400, ge=1, description="steps between two looks of the host")
    keep_checkpoints: int = Field(2, ge=1)
    collapse: Collapse = Collapse(fraction=0.0)


class Collecting(Loop):
    """An agent that learns from what it does itself."""

    envs: int = Field(8, ge=1, description="environments a replica")
    prefill_agent_steps: int = Field(1600, ge=1, description="steps with random actions before the first update")
    replay_agent_steps: int | None = Field(None, ge=1, description="steps kept for replay; all if left out")


class Randomise(Settings):
    """Domain randomisation: every training episode of every env draws its own body and timing. Off by default.

    Validation and evaluation never see it. A factor lies between 1 / spread and spread, evenly in its logarithm.
    """

    mass_spread: Annotated[float, TRACED] = Field(1.0, ge=1)
    damping_spread: Annotated[float, TRACED] = Field(1.0, ge=1)
    force_spread: Annotated[float, TRACED] = Field(1.0, ge=1)
    most_delay: Annotated[float, TRACED] = Field(0.0, ge=0, le=2, description="agent steps that actions come late")

    @property
    def is_on(self) -> bool:
        """Whether anything differs between episodes."""
        return self != Randomise()


class Train(Collecting):
    """An agent that updates after every step."""

    updates_per_agent_step: float = Field(0.5, gt=0)
    randomise: Randomise = Randomise()

    @model_validator(mode="after")
    def _whole_updates(self) -> Self:
        updates = self.envs * self.updates_per_agent_step
        if abs(updates - round(updates)) > 1e-9 or round(updates) < 1:
            raise ValueError(
                f"{self.envs} envs × {self.updates_per_agent_step} updates an agent step is not a whole number"
            )
        return self


class EpochTrain(Collecting):
    """An agent that collects steps from many envs, then learns from them and from replay in one compiled call."""

    envs: int = Field(256, ge=1, description="environments a replica")
    epoch_env_steps: int = Field(4, ge=1, description="steps of every env between two rounds of updates")
    batches: int = Field(16, ge=1, description="batches of windows, and so updates of the model, an epoch")
    batch: int = Field(256, ge=1, description="windows an update of the model")
    window: int = Field(5, ge=2, description="rows of a window: one more than the transitions in it")
    prefill_agent_steps: int = Field(8192, ge=1, description="steps with random actions before the first epoch")
    replay_agent_steps: int | None = Field(1_000_000, ge=1, description="steps kept for replay; all if left out")
    staggered: bool = Field(
        True,
        description="first episodes are cut short, each at another time, so that envs are not all as far in theirs",
    )
    evaluate_every_agent_steps: int = Field(512_000, ge=1)
    validation_episodes: int = Field(16, ge=1)
    log_every_agent_steps: int = Field(40_960, ge=1)
    chunk_agent_steps: int = Field(40_960, ge=1, description="steps between two looks of the host")
    collapse: Collapse = Collapse()

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        if -(-self.prefill_agent_steps // self.envs) + 1 < self.window:
            raise ValueError(
                f"{self.prefill_agent_steps} steps of {self.envs} envs hold no window of {self.window} rows"
            )
        return self


class OfflineTrain(Loop):
    """An agent that learns from recorded episodes. Its agent steps are its updates: it takes no steps of its own."""

    batch: int = Field(256, ge=1, description="windows an update of the model")
    window: int = Field(17, ge=2, description="rows of a window: one more than the transitions in it")
    fine_tune: bool = Field(
        False, description="whether the model goes on learning, from its own task alone, while the behaviour learns"
    )
    evaluate_every_agent_steps: int = Field(2_000, ge=1)
    validation_episodes: int = Field(16, ge=1)
    log_every_agent_steps: int = Field(100, ge=1)
    chunk_agent_steps: int = Field(100, ge=1, description="updates between two looks of the host")
