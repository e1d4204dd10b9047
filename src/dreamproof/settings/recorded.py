"""Settings of the recorded episodes of an offline cell, and of a world model to start from."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dreamproof.base.errors import BadInput
from dreamproof.base.text import nearest_word
from dreamproof.settings.strict import Settings
from dreamproof.settings.task_sets import MT80, TASK_SETS

OTHERS = "others"
SIZES = ("observation_size", "action_size")
WORLD_MODEL = "world model to start from: a run folder (its newest checkpoint), a checkpoint, or TD-MPC2's .pt"


class OnlineData(Settings):
    """What a cell starts from that collects its own experience. Paths are relative to the study file's folder."""

    world_model: str | None = Field(None, min_length=1, description=f"{WORLD_MODEL}; of the same task and sizes")

    @property
    def paths(self) -> tuple[str, ...]:
        """Files and folders that training needs at its start."""
        return () if self.world_model is None else (self.world_model,)


class RecordedData(Settings):
    """The episodes that a cell learns from. Paths are relative to the study file's folder."""

    added: ClassVar[dict[str, Any]] = {"cloning_share": 1.0}

    files: tuple[str, ...] = Field(min_length=1, description="recorded episodes (.npz or .pt), see docs/multitask.md")
    tasks: tuple[str, ...] = Field(
        min_length=1, description="names of all tasks, in the order of their numbers; or `mt8`, `mt30` or `mt80`"
    )
    observation_size: int = Field(ge=1, description="observation size of the widest task; others are zero-padded")
    action_size: int = Field(ge=1, description="action size of the widest task; others are zero-padded")
    policies: tuple[str, ...] = Field(
        (), description="tasks that get a policy each in one cell; the study's `tasks`, or its own task if left out"
    )
    max_episodes: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description="task, or `others`: how many of its episodes are used, drawn at random, the same in every cell; "
        "all if left out",
    )
    cloning_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of every task's episodes, those with the highest returns, whose actions are cloned "
        "(`objective: cloning`, `cloning_scale`); imagination starts in all",
    )
    device_episodes: int | None = Field(
        None, ge=16, description="episodes on the device at a time, streamed from the files; all if left out"
    )
    storage: Literal["float32", "float16", "bfloat16"] = Field(
        "float32", description="type of recorded values on the device; windows are float32 in any case"
    )
    refresh_updates: int = Field(
        50, ge=1, description="updates after which the oldest sixteenth of `device_episodes` is replaced"
    )
    world_model: str | None = Field(None, min_length=1, description=WORLD_MODEL)

    @property
    def paths(self) -> tuple[str, ...]:
        """Files that training needs at its start."""
        return self.files if self.world_model is None else (*self.files, self.world_model)

    def limit_of(self, number: int) -> int | None:
        """The number of episodes of a task, by its number, that are used; None for all."""
        return self.max_episodes.get(self.tasks[number], self.max_episodes.get(OTHERS))

    def number_of(self, task: str) -> int:
        """The number of a task; an unknown one is refused."""
        if task in self.tasks:
            return self.tasks.index(task)
        near = nearest_word(task, self.tasks)
        hint = f"did you mean '{near}'?" if near else f"it names {', '.join(self.tasks)}"
        raise BadInput(f"data.tasks does not name the task '{task}'; {hint}", "add it to data.tasks in the study file")

    @model_validator(mode="before")
    @classmethod
    def _name_a_set(cls, values: Any) -> Any:
        """A set of tasks by its name, with the sizes of its widest tasks."""
        if not isinstance(values, dict):
            return values
        wanted = values.get("policies")
        if isinstance(wanted, str) and wanted in TASK_SETS:
            values = values | {"policies": [task.name for task in TASK_SETS[wanted]]}
        named = values.get("tasks")
        if isinstance(named, str) and named not in TASK_SETS:
            raise ValueError(f"tasks: there is no set '{named}'; known: {', '.join(TASK_SETS)}; or list names of tasks")
        names = [task.name for task in TASK_SETS[named]] if isinstance(named, str) else named
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            return values
        known = {task.name: task for task in MT80}
        missing = [name for name in SIZES if name not in values]
        unknown = next((name for name in names if name not in known), None)
        if missing and unknown is not None:
            near = nearest_word(unknown, known)
            meant = f"; did you mean '{near}'?" if near else ""
            raise ValueError(
                f"{' and '.join(missing)} must be set: '{unknown}' is no task of MT80, whose sizes are known{meant}"
            )
        sizes = {size: max(getattr(known[name], size) for name in names) for size in missing if names}
        return {**sizes, **values, "tasks": names}

    @model_validator(mode="after")
    def _tasks_differ(self) -> Self:
        for task in self.tasks:
            if self.tasks.count(task) > 1:
                raise ValueError(f"duplicate task '{task}'")
        for task in (*self.policies, *(task for task in self.max_episodes if task != OTHERS)):
            self.number_of(task)
        return self
