"""The study: what is asked, what is compared, how much may be spent, when it counts as decided."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from dreamproof.base.files import canonical_json, text_hash
from dreamproof.settings.backend import BackendSettings, gpus_of
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.checked import (
    MAXIMUM_SEEDS,
    MAXIMUM_STEPS,
    Arguments,
    EnvironmentValue,
    FreeText,
    Line,
    SeedList,
    Variable,
    Whole,
    plain_name,
)
from dreamproof.settings.env import Shift
from dreamproof.settings.notify import Notification
from dreamproof.settings.pwm_recipes import with_recipe
from dreamproof.settings.renames import current_names, first_names
from dreamproof.settings.running import AtEnd, Liveness, Money, ReportSettings, Requirements, Retries
from dreamproof.settings.several_tasks import merge, with_tasks
from dreamproof.settings.strict import Settings
from dreamproof.settings.task_sets import TASK_SETS


def _condition(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class Metric(Settings):
    """The primary metric, its direction, and the smallest difference that would change a decision."""

    name: Line = Field("return", description="name of the per-episode value that decides")
    direction: Literal["higher", "lower"] = "higher"
    smallest_difference: float = Field(gt=0, description="differences below this do not matter")
    condition: str = Field("id", description="the condition on which the verdict is taken")
    checkpoint_rule: Line | None = Field(
        None,
        min_length=1,
        description="how the checkpoint of every value was chosen, e.g. 'the last one'; needed if imported tables do "
        "not name it, or if the name of the metric says peak, max or best",
    )


class Constraint(Settings):
    """A metric that must stay on one side of a limit for an arm to be acceptable, e.g. cost at most 5."""

    name: Line = "cost"
    at_most: float


class Decides(Settings):
    """A decision over several conditions: the mean of the metric over some, subject to the limit under some."""

    conditions: list[str] = Field(min_length=1, description="the mean of the metric over these decides")
    over: Literal["mean", "iqm"] = Field(
        "mean", description="how the conditions of a seed become one value; iqm: the mean of the middle half of them"
    )
    limits: list[str] | None = Field(
        None,
        min_length=1,
        description="an arm wins only if it is shown to keep the constraint under each of these; the same if left out",
    )

    @property
    def limited(self) -> list[str]:
        """Conditions under which the limit must be kept."""
        return self.conditions if self.limits is None else self.limits


class StudyCondition(Settings):
    """One evaluation setting."""

    name: str
    kind: Literal["in_distribution", "proxy", "genuine"] | None = Field(
        None,
        description="a proxy imitates a shift, a genuine shift changes the environment; the trainer's own if left out",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="settings of the evaluator in addition to the name"
    )

    _name = field_validator("name")(plain_name)


class CommandTrainer(Settings):
    """Any script as trainer.

    Placeholders: {python} {run_dir} {seed} {arm} {agent_steps} {condition} {episodes} {micro_batches} {settings.KEY}
    {flags} {overrides} {checkpoint} {checkpoint_hash}. {python} is the interpreter that runs dreamproof; {flags} are
    the settings as --key value, {overrides} as key=value (Hydra); {checkpoint} is what an evaluation is to load.
    """

    command: Arguments = Field(min_length=1, description="the training command, in one line or as a list of arguments")
    evaluate: Arguments | None = Field(None, description="the command that evaluates one condition, likewise")
    adapter: Literal[
        "native", "embodied", "sb3", "tensorboard", "wandb", "jsonl", "csv", "bracket_lines", "line_pattern", "auto"
    ] = Field(
        "native",
        description="how progress is read: the native run folder, or what the script already writes; auto looks at "
        "what is there",
    )
    step_key: Line | None = Field(
        None, description="key, column or tag that counts steps; a usual name such as global_step if left out"
    )
    line_pattern: Line | None = Field(
        None,
        description="regular expression over printed lines, with a group (?P<step>…), perhaps (?P<total>…), and one "
        "group for every value to keep",
    )
    steps_per_count: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="agent steps for one count of the script's own, e.g. 2048 if it counts rollouts",
    )
    working_folder: str | None = Field(None, description="where it runs; the folder of the study file if left out")
    environment: dict[Variable, EnvironmentValue] = Field(
        default_factory=dict, description="variables set for it; no secrets"
    )
    from_env: list[Variable] = Field(
        default_factory=list,
        description="variables it needs from the environment of `run`, e.g. WANDB_API_KEY; never recorded",
    )
    code: list[str] | None = Field(
        None,
        description="files, folders or patterns that make up its code, seen from where it runs; if left out, the git "
        "repository of the script, or the source files next to it",
    )

    @field_validator("line_pattern")
    @classmethod
    def _pattern_finds_a_step(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        if "step" not in groups:
            raise ValueError("has no group named step: write (?P<step>[0-9]+) where the step is")
        return pattern

    @model_validator(mode="after")
    def _pattern_is_declared(self) -> Self:
        if self.adapter == "line_pattern" and self.line_pattern is None:
            raise ValueError("adapter line_pattern needs 'line_pattern', e.g. 'step (?P<step>[0-9]+)'")
        return self


def _or_a_set(schema: dict[str, Any]) -> None:
    schema["anyOf"].append({"enum": list(TASK_SETS)})


def _as_written(schema: dict[str, Any]) -> None:
    """`tasks` stands for `task`, and for `arms` where each task is one."""
    schema["required"] = [key for key in schema["required"] if key not in ("task", "arms")]
    schema["anyOf"] = [{"required": ["task", "arms"]}, {"required": ["tasks"]}]


class Study(Settings):
    """One declared study."""

    model_config = ConfigDict(json_schema_extra=_as_written)

    name: str
    question: FreeText = Field(min_length=1)
    metric: Metric
    constraint: Constraint | None = Field(None, description="a limit that an arm must keep to win")
    constraints: list[Constraint] = Field(
        default_factory=list,
        description="instead of `constraint`: several limits, all of which an arm must keep to win",
    )
    decides: Decides | None = None
    task: Line = Field(min_length=1)
    tasks: list[Line] | None = Field(
        None,
        min_length=2,
        description="several tasks, each with a policy of its own; names, or `mt8` or `mt30`. `task`, `conditions` and "
        "`decides` follow from them",
        json_schema_extra=_or_a_set,
    )
    trainer: Literal["dreamer", "pwm", "pwm_offline"] | CommandTrainer
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the trainer that all arms share")
    arms: dict[str, dict[str, Any]] = Field(
        min_length=1, description="name: the settings in which this arm differs; with our trainers also `task`"
    )
    reference_arm: str | None = Field(None, description="what the others are compared with; the first arm if left out")
    seeds: SeedList = Field(min_length=1, max_length=MAXIMUM_SEEDS)
    paired_seeds: bool = Field(
        False,
        description="a seed number means the same layouts and initial data in every arm, so verdicts compare arms seed "
        "by seed; needs at least 6 seeds",
    )
    maximum_seeds: int | None = Field(None, ge=1, description="no sequential plan goes beyond this")
    agent_steps: Whole = Field(ge=1, le=MAXIMUM_STEPS)
    agent_steps_tolerance: Whole = Field(
        0,
        ge=0,
        le=MAXIMUM_STEPS,
        description="a cell counts as trained with so many agent steps fewer, and lengths that differ by no more count "
        "as equal: for trainers that end with whole rollouts",
    )
    conditions: list[
        Annotated[StudyCondition, BeforeValidator(_condition, json_schema_input_type=str | StudyCondition)]
    ] = Field(default_factory=list)
    evaluation_episodes: int = Field(50, ge=1)
    backend: BackendSettings = BackendSettings()
    pack_cells: int = Field(1, ge=1, description="cells trained by one process")
    money: Money = Money()
    retries: Retries = Retries()
    liveness: Liveness = Liveness()
    require: Requirements = Requirements()
    report: ReportSettings = ReportSettings()
    at_end: AtEnd = AtEnd()
    notify: list[Notification] = Field(
        default_factory=list, description="commands and webhooks for deaths, stalls, the budget and the decision"
    )
    folder: str | None = Field(None, description="where results go, seen from this file; results/NAME if left out")

    _name = field_validator("name")(plain_name)

    @model_validator(mode="before")
    @classmethod
    def _expand_tasks(cls, value: Any) -> Any:
        return with_tasks(value) if isinstance(value, dict) and value.get("tasks") is not None else value

    @model_validator(mode="before")
    @classmethod
    def _gpus_of_gres(cls, value: Any) -> Any:
        """On a cluster gres sets how many GPUs are paid for, unless `money` does."""
        backend = value.get("backend") if isinstance(value, dict) else None
        slurm = backend.get("slurm") if isinstance(backend, dict) else None
        gpus = gpus_of(slurm["gres"]) if isinstance(slurm, dict) and isinstance(slurm.get("gres"), str) else None
        money = value.get("money") or {} if isinstance(value, dict) else {}
        if gpus is None or not isinstance(money, dict):
            return value
        return {**value, "money": {"gpus_per_attempt": gpus, **money}}

    @field_validator("arms", mode="before", json_schema_input_type=dict[str, dict[str, Any] | None])
    @classmethod
    def _empty_arm(cls, arms: Any) -> Any:
        if isinstance(arms, dict):
            return {name: {} if value is None else value for name, value in arms.items()}
        return arms

    @field_validator("settings")
    @classmethod
    def _settings_under_current_names(cls, settings: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return _under_current_names(info.data.get("trainer"), settings)

    @field_validator("arms")
    @classmethod
    def _arms_under_current_names(
        cls, arms: dict[str, dict[str, Any]], info: ValidationInfo
    ) -> dict[str, dict[str, Any]]:
        # Before arms are laid over the shared settings: an old key and its new name must meet.
        return {name: _under_current_names(info.data.get("trainer"), settings) for name, settings in arms.items()}

    @field_validator("conditions")
    @classmethod
    def _conditions_under_current_names(
        cls, conditions: list[StudyCondition], info: ValidationInfo
    ) -> list[StudyCondition]:
        if not isinstance(info.data.get("trainer"), str):
            return conditions
        return [each.model_copy(update={"settings": current_names(Shift, each.settings)}) for each in conditions]

    @field_validator("arms")
    @classmethod
    def _arms_differ(cls, arms: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        seen: dict[str, str] = {}
        for name, settings in arms.items():
            plain_name(name)
            text = canonical_json(settings)
            if text in seen:
                raise ValueError(f"arm '{name}' equals arm '{seen[text]}': the same settings under two names")
            seen[text] = name
        return arms

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: list[int]) -> list[int]:
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1}) if len(set(seeds)) < len(seeds) else []
        if twice:
            raise ValueError(f"seed {twice[0]} is listed twice")
        if min(seeds) < 0:
            raise ValueError(f"seed {min(seeds)} is negative")
        return seeds

    @field_validator("conditions")
    @classmethod
    def _conditions_differ(cls, conditions: list[StudyCondition]) -> list[StudyCondition]:
        names = [condition.name for condition in conditions]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"condition '{name}' is listed twice")
        return conditions

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        if self.reference_arm is not None and self.reference_arm not in self.arms:
            raise ValueError(f"reference_arm '{self.reference_arm}' is not one of the arms {', '.join(self.arms)}")
        own = [arm for arm in self.arms if ":" in self.task_of(arm) and self.task_of(arm) != self.task]
        if own:
            raise ValueError(f"arms.{own[0]}.task: a task in a file of your own needs a study of its own")
        names = [condition.name for condition in self.conditions]
        if self.tasks is not None and names != self.tasks:
            raise ValueError("conditions: a study over several tasks is evaluated on each of them; remove `conditions`")
        if names and self.metric.condition not in names:
            raise ValueError(
                f"metric.condition '{self.metric.condition}' is not one of the conditions {', '.join(names)}"
            )
        if self.tasks is not None and self.decides is not None and set(self.decides.conditions) != set(self.tasks):
            raise ValueError(
                "decides.conditions: a study over several tasks decides over all of them; remove `conditions`, and "
                "name the tasks that are to decide in `tasks`"
            )
        unknown = [name for name in self.named_by_decides if name not in names]
        if unknown:
            raise ValueError(f"decides: '{unknown[0]}' is not one of the conditions {', '.join(names) or '(none)'}")
        self._check_limits()
        if isinstance(self.trainer, CommandTrainer):
            if names and self.trainer.evaluate is None:
                raise ValueError("conditions are declared but trainer.evaluate names no command")
            if self.pack_cells > 1:
                raise ValueError("pack_cells above 1 needs a trainer of our own, not a command")
        if self.maximum_seeds is not None and self.maximum_seeds < len(self.seeds):
            raise ValueError(f"maximum_seeds {self.maximum_seeds} is below the {len(self.seeds)} declared seeds")
        return self

    def _check_limits(self) -> None:
        names = [limit.name for limit in self.limits]
        if self.constraint is not None and self.constraints:
            raise ValueError("constraint and constraints are both declared; list all limits in constraints")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"constraints: '{name}' has two limits")
        if self.decides is not None and self.decides.limits is not None and not names:
            raise ValueError("decides.limits needs a constraint")

    @property
    def limits(self) -> list[Constraint]:
        """The limits that an arm must keep, all of them."""
        return self.constraints if self.constraint is None else [self.constraint]

    def limit_of(self, metric: str) -> float | None:
        """The limit of a metric, if it has one."""
        return next((limit.at_most for limit in self.limits if limit.name == metric), None)

    @property
    def needed_agent_steps(self) -> int:
        """What a cell must reach at least to count as trained."""
        return max(1, self.agent_steps - self.agent_steps_tolerance)

    @property
    def named_by_decides(self) -> list[str]:
        """Every condition that the declared decision over several conditions names."""
        return [] if self.decides is None else [*dict.fromkeys([*self.decides.conditions, *self.decides.limited])]

    @property
    def reference(self) -> str:
        """The arm that the others are compared with."""
        return self.reference_arm or next(iter(self.arms))

    @property
    def treatments(self) -> list[str]:
        """Arms that are compared with the reference: those that are trained on its task."""
        apart = self.arms_on_other_tasks
        return [arm for arm in self.arms if arm != self.reference and arm not in apart]

    @property
    def arms_on_other_tasks(self) -> list[str]:
        """Arms that are trained on another task than the reference, so that no value of them is compared with its."""
        return [arm for arm in self.arms if self.task_of(arm) != self.task_of(self.reference)]

    def merged_settings(self, arm: str) -> dict[str, Any]:
        """The trainer's settings of one arm: of its recipe, shared ones, then its own, nested keys merged."""
        own = self.arms[arm]
        if isinstance(self.trainer, str):
            own = {key: value for key, value in own.items() if key != "task"}
        merged = merge(self.settings, own)
        return with_recipe(merged) if self.trainer == "pwm" else merged

    def task_of(self, arm: str) -> str:
        """The task of one arm; the study's, unless one of our trainers is given another."""
        own = self.arms[arm].get("task") if isinstance(self.trainer, str) else None
        return self.task if own is None else str(own)

    def hash(self) -> str:
        """Names the declaration: the same meaning gives the same hash."""
        value = self.model_dump(mode="json")
        _leave_out_defaults(value["metric"], LATER_METRIC_KEYS)
        if isinstance(value["trainer"], dict):
            _leave_out_defaults(value["trainer"], LATER_TRAINER_KEYS)
        _leave_out_defaults(value, LATER_STUDY_KEYS)
        if "decides" in value:
            _leave_out_defaults(value["decides"], {"over": "mean"})
        value["money"]["currency"] = value["money"]["currency"] or FIRST_CURRENCY
        cell = CELL_SETTINGS.get(self.trainer) if isinstance(self.trainer, str) else None
        if cell is not None:
            value["settings"] = first_names(cell, value["settings"])
            value["arms"] = {arm: first_names(cell, settings) for arm, settings in value["arms"].items()}
            value["conditions"] = [
                each | {"settings": first_names(Shift, each["settings"])} for each in value["conditions"]
            ]
        return text_hash(canonical_json(value))


# Studies that were declared before there were these keys keep their hash.
LATER_TRAINER_KEYS: dict[str, Any] = {"from_env": [], "step_key": None, "line_pattern": None, "steps_per_count": 1.0}
FIRST_CURRENCY = "CNY"
LATER_METRIC_KEYS = {"checkpoint_rule": None}
LATER_STUDY_KEYS: dict[str, Any] = {
    "agent_steps_tolerance": 0,
    "constraints": [],
    "decides": None,
    "paired_seeds": False,
    "tasks": None,
    "require": Requirements().model_dump(mode="json"),
    "report": ReportSettings().model_dump(mode="json"),
    "notify": [],
}


def _leave_out_defaults(value: dict[str, Any], keys: dict[str, Any]) -> None:
    for key, default in keys.items():
        if value[key] == default:
            del value[key]


def _under_current_names(trainer: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of one of our own trainers with old keys renamed; those of a command are its own."""
    cell = CELL_SETTINGS.get(trainer) if isinstance(trainer, str) else None
    return settings if cell is None else dict(current_names(cell, settings))
