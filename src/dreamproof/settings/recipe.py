"""A recipe of recorded episodes: which policies play which tasks for how many episodes."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from dreamproof.base.text import repeated
from dreamproof.settings.strict import Settings
from dreamproof.settings.task_sets import TASK_SETS

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Recipe(Settings):
    """Episodes of several tasks, by random actions and by policies of rising skill. Paths are seen from its file."""

    version: int = Field(1, ge=1, description="of the data set; raise it when anything changes")
    tasks: tuple[str, ...] = Field(min_length=1, description="names in the order of their numbers; or `mt8` or `mt30`")
    policies: str = Field(
        "policies", description="folder of policy files TASK-seedN-stepK.npz, as `export --policies` writes them"
    )
    random_episodes: int = Field(100, ge=0, description="episodes per task with uniform random actions")
    episodes: tuple[Count, ...] = Field(
        (200, 300, 400),
        min_length=1,
        description="episodes per task of each level of skill; the files of a task, by their steps, are its levels",
    )
    random_actions: tuple[Share, ...] = Field(
        (0.0,),
        min_length=1,
        description="shares of steps at which a random action replaces that of the policy; the episodes of a level are "
        "split equally between them",
    )
    chunks: int = Field(2, ge=1, description="files to write")
    seed: int = Field(0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _name_a_set(cls, values: Any) -> Any:
        named = values.get("tasks") if isinstance(values, dict) else None
        if isinstance(named, str) and named in TASK_SETS:
            return values | {"tasks": [task.name for task in TASK_SETS[named]]}
        return values

    @model_validator(mode="after")
    def _something_is_recorded_once(self) -> Self:
        twice = repeated(self.tasks)
        if twice:
            raise ValueError(f"tasks: {', '.join(twice)} is listed twice")
        if not self.random_episodes + sum(self.episodes):
            raise ValueError("random_episodes and episodes are 0, so nothing would be recorded")
        return self
