"""The files of a run folder as records. Records are plain data; readers refuse what does not fit."""

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dreamproof.base.files import MAX_INT

CONTRACT_VERSION = 1
Count = Annotated[int, Field(ge=0, le=MAX_INT)]
Seconds = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
LONGEST_METRIC_NAME = 200


def _file_inside(name: str) -> str:
    """A file of the folder itself or below it, and nowhere else."""
    path = PurePosixPath(name)
    if not name or not name.isprintable() or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not the name of a file inside the folder")
    return name


def _metric_name(name: str) -> str:
    """One printable line; it becomes a column of tables and a label of figures."""
    if not name.isprintable() or len(name) > LONGEST_METRIC_NAME:
        raise ValueError(f"{name[:40]!r} is not the name of a metric")
    return name


FileInside = Annotated[str, AfterValidator(_file_inside)]
MetricName = Annotated[str, AfterValidator(_metric_name)]

Phase = Literal["start", "compile", "train", "evaluate", "save", "done"]


class Record(BaseModel):
    """Frozen; keys of a newer version are kept out of the way rather than refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=True)


class RunSettings(Record):
    """settings.json: everything a trainer needs to know about its cell."""

    contract: int = CONTRACT_VERSION
    study: str
    arm: str
    seed: int
    task: str
    trainer: str = "dreamer"
    agent_steps: int
    settings: dict[str, Any] = Field(default_factory=dict)
    conditions: list[dict[str, Any]] = Field(default_factory=list)
    evaluation_episodes: int = 50


class ResolvedRecord(Record):
    """resolved.json: every setting after defaults, the hash that names them, and the code that trains."""

    hash: str
    resolved: dict[str, Any]
    code: dict[str, Any] = Field(default_factory=dict)


class Heartbeat(Record):
    """heartbeat.json: counters that only grow; `beat` grows with every writing."""

    agent_steps: Count
    gradient_steps: Count = 0
    phase: Phase = "train"
    beat: Count = 0
    compiles: Count = 0
    """Programs compiled so far: a compile that ends is progress."""
    process_id: int = 0
    unix_seconds: float = 0.0
    agent_steps_per_second: float | None = None
    device_bytes: int | None = None


class CheckpointRecord(Record):
    """record.json of a checkpoint: what it is and the hash of every file in it."""

    agent_steps: Count
    gradient_steps: Count
    parameter_hash: str
    finite: bool
    files: dict[FileInside, str]
    task: str
    settings_hash: str = Field("", description="of the settings as they were typed; a default may mean another agent")
    resolved_hash: str = Field("", description="of every setting after defaults; empty before they were stored")
    code_hash: str = Field("", description="of the content of the code that trained it")
    code_version: str = ""
    code_commit: str | None = None
    pack: list[str] = Field(default_factory=list)
    versions: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, str] = Field(
        default_factory=dict, description="hash of each recorded file and world model that training started with"
    )
    data_returns: dict[str, tuple[float, float]] = Field(
        default_factory=dict, description="mean and best return of each task among the recorded episodes"
    )


class EvaluatedCheckpoint(Record):
    """The complete episodes of one checkpoint under one condition; every list has one value per episode."""

    agent_steps: Count
    gradient_steps: Count
    parameter_hash: str
    episodes: dict[MetricName, list[float]]
    scalars: dict[MetricName, float] = Field(default_factory=dict)

    @property
    def episode_count(self) -> int:
        """Episodes that every metric has."""
        return min((len(values) for values in self.episodes.values()), default=0)


Place = tuple[float, float]
MovedPlace = tuple[Count, float, float]
"""Agent step, x and y."""


class Trail(Record):
    """Where things were in one test episode, in metres: one place per agent step, and what each step cost."""

    agent: list[Place]
    goal: list[Place]
    goal_radius: float
    hazards: list[Place]
    hazard_radius: float
    vases: list[list[MovedPlace]] = Field(default_factory=list)
    """By vase: where it was at first, and wherever it was moved to."""
    vase_size: float = 0.0
    cost: list[float]


SCORE = "score"
"""Return / largest possible return of the task."""
RELATIVE_SCORE = "relative_score"
"""0 for random actions, 1 for the best recorded return of the task."""
DATA_FLOORS = ("data mean", "data best")
"""Floors that are no policy: what the recorded episodes of a task returned."""


class EvaluationRecord(Record):
    """evaluations/CONDITION.json: `final` is the headline; `selected` was chosen on validation layouts.

    It is left out if the final one was selected.
    """

    condition: str
    kind: Literal["in_distribution", "proxy", "genuine"]
    task: str
    layouts: str = "test"
    checkpoints: dict[MetricName, EvaluatedCheckpoint]
    floors: dict[str, dict[str, float]] = Field(default_factory=dict)
    trail: Trail | None = None
    has_cost: bool | None = Field(None, description="false: the task has no cost, its zeros measure nothing")
    code_version: str = ""
    code_commit: str | None = None


class FrozenRecord(Record):
    """frozen.json: when and why a replica stopped being finite."""

    agent_steps: Count
    gradient_steps: Count
    reason: str


class CollapseRecord(Record):
    """A row of collapses.jsonl: a validation return that stayed far below the best one, and what was done."""

    agent_steps: Count
    gradient_steps: Count
    validation_return: float
    best_return: float
    best_agent_steps: Count
    rolled_back_to: Count | None = Field(None, description="agent steps of the checkpoint whose networks were restored")
    reason: str


class SummaryRecord(Record):
    """summary.json: the validation curve in numbers. The final value is the headline, a peak flatters."""

    final_return: float
    final_agent_steps: Count
    peak_return: float
    peak_agent_steps: Count
    area_return: float = Field(description="mean of the curve over agent steps, straight between validations")
    validations: Count
    collapses: Count
    rollbacks: Count


class ExitRecord(Record):
    """exit.json: how the child of a shim ended. Exactly one of `exit_code` and `signal` is set."""

    exit_code: int | None = None
    signal: int | None = None
    wall_seconds: Seconds
    cpu_seconds: Seconds = 0.0
    peak_bytes: int | None = None
    oom_kills: int | None = Field(
        None, description="kills by the memory controller during the attempt; None if unreadable"
    )
    kernel_lines: list[str] = Field(default_factory=list)
    started_unix_seconds: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    ended_unix_seconds: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    asked_to_stop: str | None = Field(None, description="why the supervisor sent the stop signal, if it did")
    spawn_error: str | None = None
    killed_after_seconds: Seconds | None = Field(None, description="time after SIGTERM at which it was killed, if so")
