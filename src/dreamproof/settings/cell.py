"""All settings of one trained cell: the task's, the agent's and the loop's."""

from typing import ClassVar, Self

from pydantic import model_validator

from dreamproof.base.errors import BadInput
from dreamproof.settings.dreamer import DreamerSettings
from dreamproof.settings.env import EnvSettings
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.recorded import Recorded
from dreamproof.settings.strict import Settings
from dreamproof.settings.train import EpochTrain, LoopSettings, OfflineTrain, StepTrain


class CellSettings(Settings):
    """What the loop and the evaluator need to know of any agent's cell."""

    agent_name: ClassVar[str]
    cuts_batches: ClassVar[bool] = False
    """Whether a batch can be worked through in pieces where memory is short."""

    env: EnvSettings = EnvSettings()
    agent: Settings
    train: LoopSettings

    @property
    def settled_fraction(self) -> float:
        """The trained fraction from which everything the arm is named for is in full force."""
        return 0.0

    @property
    def needed_paths(self) -> tuple[str, ...]:
        """Files and folders, seen from the study file's folder, without which training cannot start."""
        return ()

    def in_pieces(self, micro_batches: int) -> Self:
        """The same cell with every batch worked through in so many pieces, where its agent can do that."""
        if micro_batches == 1:
            return self
        raise BadInput("this agent trains whole batches; --micro-batches is not for it", "set a smaller pack_cells")


class DreamerCell(CellSettings):
    """What `settings` of a study with `trainer: dreamer` may say."""

    agent_name: ClassVar[str] = "dreamer"

    agent: DreamerSettings = DreamerSettings()
    train: StepTrain = StepTrain()

    @property
    def settled_fraction(self) -> float:
        """Where risk and the price of cost are whole; the same for every arm whose ramps are the same."""
        return max(self.agent.risk.ramp_end, self.agent.behavior.multiplier_to)


class AnyPwmCell(CellSettings):
    """What all cells of the PWM agent share."""

    agent_name: ClassVar[str] = "pwm"
    cuts_batches: ClassVar[bool] = True

    agent: PwmSettings = PwmSettings()

    def in_pieces(self, micro_batches: int) -> Self:
        """The same cell with every batch of the model worked through in so many pieces; the batch in effect stays."""
        if micro_batches == 1:
            return self
        if self.train.batch % micro_batches:
            raise BadInput(
                f"a batch of {self.train.batch} windows cannot be cut into {micro_batches} equal pieces",
                "choose --micro-batches that divides train.batch",
            )
        model = self.agent.world_model.model_copy(update={"micro_batches": micro_batches})
        return self.model_copy(update={"agent": self.agent.model_copy(update={"world_model": model})})

    @model_validator(mode="after")
    def _pieces_are_equal(self) -> Self:
        if self.train.batch % self.agent.world_model.micro_batches:
            raise ValueError(f"a batch of {self.train.batch} cannot be cut into equal micro_batches")
        return self


class PwmCell(AnyPwmCell):
    """What `settings` of a study with `trainer: pwm` may say."""

    train: EpochTrain = EpochTrain()

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.agent.world_model.tasks:
            raise ValueError("a world model of several tasks learns from recorded episodes: trainer: pwm_offline")
        behavior, windows = self.agent.behavior, self.train.batch * self.train.batches
        if behavior.rounds * behavior.replayed_starts > windows:
            raise ValueError(
                f"rounds × replayed_starts, {behavior.rounds} × {behavior.replayed_starts}, are more than the "
                f"{windows} windows of an epoch"
            )
        return self


class PwmOfflineCell(AnyPwmCell):
    """What `settings` of a study with `trainer: pwm_offline` may say."""

    data: Recorded
    train: OfflineTrain = OfflineTrain()

    @property
    def needed_paths(self) -> tuple[str, ...]:
        """The recorded episodes, and the run whose world model is taken over."""
        return self.data.paths

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        named, known = len(self.data.tasks), self.agent.world_model.tasks
        if known != named and (known, named) != (0, 1):
            raise ValueError(f"agent.world_model.tasks is {known}, but data.tasks names {named}")
        if not self.agent.behavior.replayed_starts:
            raise ValueError("imagination has no other starts than replayed_starts, of which there are 0")
        return self


CELL_SETTINGS: dict[str, type[CellSettings]] = {
    "dreamer": DreamerCell,
    "pwm": PwmCell,
    "pwm_offline": PwmOfflineCell,
}
