"""Settings of the environments: static ones that determine shapes, and shifts (data, no recompile)."""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dreamproof.settings.strict import Settings


class EnvSettings(Settings):
    """Static settings of a task: they determine its shapes and are equal within a pack."""

    observation: Literal["coordinates", "lidar"] = Field(
        "coordinates", description="SafeDreamer's coordinate vector, or the official 60 values with lidar"
    )
    ghost_slots: int = Field(
        2,
        ge=0,
        le=3,
        description="extra hazard slots, placed at 3 m unless a shift fills them; 0: the official 29 values",
    )
    action_repeat: Literal[1, 2, 4, 5, 8] = Field(5, description="simulator steps per agent step")
    episode_simulator_steps: int = Field(1000, ge=1, description="time limit; truncates the episode")
    vase: Literal["still", "pushed"] | None = Field(
        None, description="whether the agent pushes the vase; default: pushed if it is observed (lidar)"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="passed unchanged to a custom environment")

    @model_validator(mode="after")
    def _whole_agent_steps(self) -> Self:
        if self.episode_simulator_steps % self.action_repeat:
            raise ValueError(
                f"{self.episode_simulator_steps} simulator steps are no multiple of action_repeat {self.action_repeat}"
            )
        return self


class Shift(Settings):
    """Everything in which a condition may differ from training. The defaults change nothing."""

    old_names: ClassVar[dict[str, str]] = {
        "ghost_least_steps": "ghost_min_steps",
        "ghost_most_steps": "ghost_max_steps",
        "miss_least_steps": "miss_min_steps",
        "miss_most_steps": "miss_max_steps",
    }

    mass_factor: float = Field(1.0, gt=0, description="mass and inertia")
    damping_factor: float = Field(1.0, gt=0, description="translational damping")
    force_factor: float = Field(1.0, gt=0, description="drive force")
    friction_factor: float = Field(1.0, gt=0, description="friction of contacts; tasks on MuJoCo only")
    yaw_gain_factor: float = Field(1.0, gt=0, description="turning torque")
    hazard_radius: float = Field(0.2, gt=0, description="metres; not part of the observation")
    hazards: int | None = Field(
        None, ge=1, le=16, description="how many; the task's own number if null, and as many of the nearest are seen"
    )
    action_delay: int = Field(0, ge=0, le=2, description="agent steps")
    action_noise: float = Field(0.0, ge=0, description="standard deviation, then clipped to ±1")
    observation_delay: int = Field(0, ge=0, le=2, description="agent steps")
    observation_noise: float = Field(0.0, ge=0, description="standard deviation, on every value of the observation")
    place_noise: float = Field(
        0.0, ge=0, description="metres; standard deviation of observed hazard and goal positions"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="probability per step that the last observation is repeated")
    ghost_chance: float = Field(
        0.0, ge=0, le=1, description="probability per step that ghost hazards appear, if none are shown"
    )
    ghosts: int = Field(0, ge=0, le=3, description="number of ghost hazards that appear together")
    ghost_min_steps: int = Field(1, ge=1)
    ghost_max_steps: int = Field(1, ge=1)
    miss_chance: float = Field(
        0.0, ge=0, le=1, description="probability per step that hazards vanish, if none are missing"
    )
    misses: int = Field(0, ge=0, le=8, description="number of hazards that vanish together")
    miss_min_steps: int = Field(1, ge=1)
    miss_max_steps: int = Field(1, ge=1)
    missed_shows: Literal["parked", "held"] = Field(
        "parked", description="a vanished hazard is shown at 3 m, or at its last observed position"
    )
    hallucination: Literal["corrected", "original"] = Field(
        "corrected", description="'original' keeps the defects of the first published definition"
    )
    latent_swaps: int = Field(0, ge=0, description="latent groups that the evaluator replaces by prior samples")

    @model_validator(mode="after")
    def _ranges_are_ranges(self) -> Self:
        if self.ghost_min_steps > self.ghost_max_steps or self.miss_min_steps > self.miss_max_steps:
            raise ValueError("a minimum number of steps is above its maximum")
        return self
