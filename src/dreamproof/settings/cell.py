"""All settings of one trained cell: the task's, the agent's and the loop's."""

from dreamproof.settings.dreamer import Dreamer
from dreamproof.settings.env import EnvSettings
from dreamproof.settings.strict import Settings
from dreamproof.settings.train import Train


class DreamerCell(Settings):
    """What `settings` of a study with `trainer: dreamer` may say."""

    env: EnvSettings = EnvSettings()
    agent: Dreamer = Dreamer()
    train: Train = Train()


CELL_SETTINGS: dict[str, type[DreamerCell]] = {"dreamer": DreamerCell}
