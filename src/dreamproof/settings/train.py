"""Settings of the training loop. Every cadence counts agent steps."""

from typing import Self

from pydantic import Field, model_validator

from dreamproof.settings.strict import Settings


class Train(Settings):
    """How much, how often."""

    envs: int = Field(8, ge=1, description="environments a replica")
    prefill_agent_steps: int = Field(1600, ge=1, description="steps with random actions before the first update")
    updates_per_agent_step: float = Field(0.5, gt=0)
    batch: int = Field(32, ge=1, description="windows an update")
    window: int = Field(16, ge=2, description="agent steps of a window")
    evaluate_every_agent_steps: int = Field(10_000, ge=1)
    validation_episodes: int = Field(20, ge=1)
    feasible_cost: float = Field(5.0, ge=0, description="validation cost up to which a checkpoint is feasible")
    log_every_agent_steps: int = Field(2_000, ge=1)
    chunk_agent_steps: int = Field(400, ge=1, description="steps of one compiled call")
    keep_checkpoints: int = Field(2, ge=1)

    @model_validator(mode="after")
    def _whole_updates(self) -> Self:
        updates = self.envs * self.updates_per_agent_step
        if abs(updates - round(updates)) > 1e-9 or round(updates) < 1:
            raise ValueError(
                f"{self.envs} envs × {self.updates_per_agent_step} updates an agent step is not a whole number"
            )
        return self
