"""All settings of one cell: of the task, the agent and the training loop."""

import math
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from dreamproof.base.errors import BadInput
from dreamproof.settings.dreamer import DreamerSettings
from dreamproof.settings.env import EnvSettings
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.pwm_recipes import RecipeName, with_recipe
from dreamproof.settings.recorded import OnlineData, RecordedData
from dreamproof.settings.renames import current_names
from dreamproof.settings.strict import Settings
from dreamproof.settings.train import EpochTrain, LoopSettings, OfflineTrain, StepTrain

OFFLINE_BEHAVIOR = ("cloned_states", "starts", "critic_warm_up", "recorded_value_scale")
"""Settings of a behaviour that have no effect on one that learns from its own experience."""


class CellSettings(Settings):
    """Settings of a cell of any agent."""

    agent_name: ClassVar[str]
    supports_micro_batches: ClassVar[bool] = False
    """Whether a batch can be split into micro-batches if memory is short."""

    env: EnvSettings = EnvSettings()
    agent: Settings
    train: LoopSettings

    @property
    def settled_fraction(self) -> float:
        """The trained fraction from which all scheduled weights have their full value."""
        return 0.0

    @property
    def needed_paths(self) -> tuple[str, ...]:
        """Files and folders, relative to the study file's folder, that training needs at its start."""
        return ()

    @property
    def agent_steps_before_policy(self) -> dict[str, int]:
        """Agent steps before the first update of the policy, by the setting that asks for them."""
        return {}

    def with_micro_batches(self, micro_batches: int) -> Self:
        """The same cell with every batch split into micro-batches, if its agent can do that."""
        if micro_batches == 1:
            return self
        raise BadInput("this agent does not support --micro-batches", "set a smaller pack_cells")


class DreamerCell(CellSettings):
    """`settings` of a study with `trainer: dreamer`."""

    agent_name: ClassVar[str] = "dreamer"

    agent: DreamerSettings = DreamerSettings()
    train: StepTrain = StepTrain()

    @model_validator(mode="after")
    def _delays_are_filtered(self) -> Self:
        belief, delay = self.agent.filter, self.train.randomise.max_delay
        if delay > min(belief.hypotheses - 1, belief.max_delay):
            raise ValueError(
                f"train.randomise.max_delay {delay:g} needs a filter for every delay: set agent.filter.hypotheses to "
                f"at least {math.ceil(delay) + 1} and agent.filter.max_delay to at least {delay:g}"
            )
        return self

    @property
    def settled_fraction(self) -> float:
        """Where the ramps of risk and of the Lagrange multiplier end."""
        return max(self.agent.risk.ramp_end, self.agent.behavior.multiplier_to)

    @property
    def agent_steps_before_policy(self) -> dict[str, int]:
        """The prefill."""
        return {"train.prefill_agent_steps": self.train.prefill_agent_steps}


class AnyPwmCell(CellSettings):
    """What all cells of the PWM agent share."""

    agent_name: ClassVar[str] = "pwm"
    supports_micro_batches: ClassVar[bool] = True

    agent: PwmSettings = PwmSettings()

    def with_micro_batches(self, micro_batches: int) -> Self:
        """The same cell with every batch of the model split into micro-batches; the effective batch does not change."""
        if micro_batches == 1:
            return self
        if self.train.batch % micro_batches:
            raise BadInput(
                f"a batch of {self.train.batch} windows cannot be split into {micro_batches} equal micro-batches",
                "choose --micro-batches that divides train.batch",
            )
        model = self.agent.world_model.model_copy(update={"micro_batches": micro_batches})
        return self.model_copy(update={"agent": self.agent.model_copy(update={"world_model": model})})

    @model_validator(mode="after")
    def _pieces_are_equal(self) -> Self:
        if self.train.batch % self.agent.world_model.micro_batches:
            raise ValueError(f"train.batch {self.train.batch} is not a multiple of micro_batches")
        return self


class PwmCell(AnyPwmCell):
    """`settings` of a study with `trainer: pwm`."""

    added: ClassVar[dict[str, Any]] = {"data": {"world_model": None}}

    recipe: RecipeName | None = Field(
        None,
        exclude=True,
        description="a named set of values that other settings override: PWM as released, a fork of it with flows, or "
        "the defaults; see docs/pwm.md",
    )
    data: OnlineData = OnlineData()
    train: EpochTrain = EpochTrain()

    @model_validator(mode="before")
    @classmethod
    def _write_out_recipe(cls, value: Any) -> Any:
        return with_recipe(current_names(cls, value)) if isinstance(value, dict) else value

    @property
    def needed_paths(self) -> tuple[str, ...]:
        """The run whose world model is taken over."""
        return self.data.paths

    @property
    def agent_steps_before_policy(self) -> dict[str, int]:
        """The prefill, and the epochs in which the model alone learns."""
        epochs = self.agent.behavior.warm_up_epochs * self.train.envs * self.train.epoch_env_steps
        found = {"train.prefill_agent_steps": self.train.prefill_agent_steps}
        return found | ({"agent.behavior.warm_up_epochs": epochs} if epochs else {})

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.train.fine_tune and self.data.world_model is None:
            raise ValueError("train.fine_tune has no effect without a pretrained model: set data.world_model")
        if self.agent.world_model.tasks:
            raise ValueError("a world model of several tasks learns from recorded episodes: set trainer: pwm_offline")
        behavior, windows = self.agent.behavior, self.train.batch * self.train.batches
        if behavior.objective == "cloning" or behavior.cloning_scale > 0:
            raise ValueError("recorded actions are cloned offline: set trainer: pwm_offline, or cloning_scale: 0")
        for name in OFFLINE_BEHAVIOR:
            if getattr(behavior, name) != type(behavior).model_fields[name].default:
                raise ValueError(f"behavior.{name} has an effect offline alone: set trainer: pwm_offline, or remove it")
        if behavior.rounds * behavior.replayed_starts > windows:
            raise ValueError(
                f"rounds × replayed_starts, {behavior.rounds} × {behavior.replayed_starts}, is more than the "
                f"{windows} windows of an epoch"
            )
        return self


class BehaviorDraws(NamedTuple):
    """What one update of the behaviour draws from the recorded episodes of a task.

    starts: of imagined rollouts; copied_starts: from the episodes alone whose actions may be cloned. cloned: steps to
    clone; None: as many as starts. windows: from which values are learned.
    """

    starts: int
    copied_starts: bool
    cloned: int | None
    windows: int


class OfflineCell(CellSettings):
    """A cell of any agent that learns from recorded episodes."""

    data: RecordedData
    train: OfflineTrain = OfflineTrain()

    @property
    def needed_paths(self) -> tuple[str, ...]:
        """The recorded episodes, and the run whose world model is taken over."""
        return self.data.paths

    @property
    def is_multitask(self) -> bool:
        """Whether the agent is conditioned on the number of its task."""
        raise NotImplementedError

    @property
    def model_updates(self) -> int:
        """Updates of the model alone, before the behaviour learns."""
        raise NotImplementedError

    @property
    def agent_steps_before_policy(self) -> dict[str, int]:
        """The updates of the model alone."""
        return {"agent.behavior.warm_up_epochs": self.model_updates}

    @property
    def draws(self) -> BehaviorDraws:
        """What an update of the behaviour learns from."""
        raise NotImplementedError


class PwmOfflineCell(AnyPwmCell, OfflineCell):
    """`settings` of a study with `trainer: pwm_offline`."""

    # Declared again: pydantic would take the field of the first parent.
    train: OfflineTrain = OfflineTrain()

    @property
    def is_multitask(self) -> bool:
        """Whether the world model has task embeddings."""
        return self.agent.world_model.tasks > 0

    @property
    def model_updates(self) -> int:
        """The warm-up of the behaviour."""
        return self.agent.behavior.warm_up_epochs

    @property
    def draws(self) -> BehaviorDraws:
        """All rollouts start from recorded observations."""
        behavior = self.agent.behavior
        windows = behavior.replayed_starts if behavior.recorded_value_scale else 0
        return BehaviorDraws(behavior.replayed_starts, behavior.starts == "copied", behavior.cloned_states, windows)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        named, known = len(self.data.tasks), self.agent.world_model.tasks
        if known != named and (known, named) != (0, 1):
            raise ValueError(f"agent.world_model.tasks is {known}, but data.tasks names {named}")
        if self.agent.behavior.acting == "open_loop":
            raise ValueError("acting: open_loop has no effect: an offline cell takes no steps; remove it")
        if not self.agent.behavior.replayed_starts:
            raise ValueError("replayed_starts is 0, but an offline cell has no other starts of imagination")
        return self

    @model_validator(mode="after")
    def _behavior_has_effect(self) -> Self:
        behavior = self.agent.behavior
        imagines, clones = behavior.objective == "imagined_return", behavior.cloning_scale > 0
        clones_too = imagines and clones
        has_no_effect = {
            "starts: copied": (
                behavior.starts == "copied" and self.data.cloning_share == 1,
                "data.cloning_share below 1",
            ),
            "cloned_states": (
                behavior.cloned_states is not None and imagines and not clones,
                "objective: cloning, or a cloning_scale above 0",
            ),
            "critic_warm_up": (
                behavior.critic_warm_up > 0 and not clones_too,
                "objective: imagined_return and a cloning_scale above 0",
            ),
            "recorded_value_scale": (behavior.recorded_value_scale > 0 and not imagines, "objective: imagined_return"),
        }
        for name, (is_idle, needed) in has_no_effect.items():
            if is_idle:
                raise ValueError(f"behavior.{name} has no effect: it needs {needed}")
        return self


CELL_SETTINGS: dict[str, type[CellSettings]] = {
    "dreamer": DreamerCell,
    "pwm": PwmCell,
    "pwm_offline": PwmOfflineCell,
}
