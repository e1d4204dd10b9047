"""Settings of the environments: what shapes a task (static), and what a shift changes (data, no recompile)."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dreamproof.settings.strict import Settings


class EnvSettings(Settings):
    """What decides the shapes of a task; equal within a pack."""

    observation: Literal["coordinates", "lidar"] = Field(
        "coordinates", description="SafeDreamer's coordinate vector, or the official 60 numbers with lidar"
    )
    ghost_slots: int = Field(
        2, ge=0, le=3, description="extra hazard slots, parked at 3 m unless a shift fills them; 0 is the official 29"
    )
    action_repeat: Literal[1, 2, 4, 5, 8] = Field(5, description="simulator steps one agent step lasts")
    episode_simulator_steps: int = Field(1000, ge=1, description="the time limit; a truncation, not a termination")
    vase: Literal["still", "pushed"] | None = Field(
        None, description="whether the agent pushes the vase; left out: pushed where it is seen (lidar)"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="told to an environment of your own as it is")

    @model_validator(mode="after")
    def _whole_agent_steps(self) -> Self:
        if self.episode_simulator_steps % self.action_repeat:
            raise ValueError(
                f"{self.episode_simulator_steps} simulator steps are no whole number of repeats of {self.action_repeat}"
            )
        return self


class Shift(Settings):
    """Everything in which a condition may differ from training. The defaults change nothing."""

    mass_factor: float = Field(1.0, gt=0, description="mass and inertia")
    damping_factor: float = Field(1.0, gt=0, description="translational damping")
    force_factor: float = Field(1.0, gt=0, description="drive force")
    friction_factor: float = Field(1.0, gt=0, description="friction with the ground; locomotion alone has any")
    yaw_gain_factor: float = Field(1.0, gt=0, description="turning torque")
    hazard_radius: float = Field(0.2, gt=0, description="metres; not seen in the observation")
    hazards: int = Field(8, ge=1, le=16, description="how many; the coordinate vector shows the 8 nearest")
    action_delay: int = Field(0, ge=0, le=2, description="agent steps")
    action_noise: float = Field(0.0, ge=0, description="standard deviation, then clipped to ±1")
    observation_delay: int = Field(0, ge=0, le=2, description="agent steps")
    observation_noise: float = Field(0.0, ge=0, description="standard deviation on every number of the observation")
    place_noise: float = Field(0.0, ge=0, description="metres, on where hazards and goal are seen")
    dropout: float = Field(0.0, ge=0, lt=1, description="chance a step that the last observation is held")
    ghost_chance: float = Field(0.0, ge=0, le=1, description="chance a step that ghost hazards appear, while none do")
    ghosts: int = Field(0, ge=0, le=3, description="ghost hazards that appear together")
    ghost_least_steps: int = Field(1, ge=1)
    ghost_most_steps: int = Field(1, ge=1)
    miss_chance: float = Field(0.0, ge=0, le=1, description="chance a step that hazards vanish, while none do")
    misses: int = Field(0, ge=0, le=8, description="hazards that vanish together")
    miss_least_steps: int = Field(1, ge=1)
    miss_most_steps: int = Field(1, ge=1)
    missed_shows: Literal["parked", "held"] = Field(
        "parked", description="a vanished hazard is seen at 3 m, or where it was seen last"
    )
    hallucination: Literal["corrected", "original"] = Field(
        "corrected", description="'original' keeps the defects of the users' first definition"
    )
    latent_swaps: int = Field(0, ge=0, description="categoricals of the latent the evaluator swaps for prior samples")

    @model_validator(mode="after")
    def _ranges_are_ranges(self) -> Self:
        if self.ghost_least_steps > self.ghost_most_steps or self.miss_least_steps > self.miss_most_steps:
            raise ValueError("the least number of steps is above the most")
        return self
