"""The study: what is asked, what is compared, how much may be spent, when it counts as decided."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from dreamproof.base.errors import BadInput
from dreamproof.base.files import canonical_json, text_hash
from dreamproof.base.safe_text import looks_secret, mask_secrets
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.env import Shift
from dreamproof.settings.renames import current_names, first_names, renamed_keys
from dreamproof.settings.strict import Settings, read_yaml, validate

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAX_CHARACTERS = 1000
MAXIMUM_SEEDS = 1_000_000
MAXIMUM_SEED = (1 << 32) - 1
"""NumPy takes no larger seed."""
MAXIMUM_STEPS = 10**15


def _plain_name(name: str) -> str:
    if not NAME.match(name) or len(name) > 80:
        raise ValueError(f"'{name}' is not a plain name (letters, digits, . _ + -, at most 80)")
    return name


def _plain_line(text: str) -> str:
    """One line of printable text: for tables, file names and scheduler scripts."""
    if not text.isprintable() or len(text) > MAX_CHARACTERS:
        raise ValueError(f"{text[:40]!r} holds a line break or a control character, or is over {MAX_CHARACTERS} long")
    return text


Line = Annotated[str, AfterValidator(_plain_line)]


def _no_hidden_characters(text: str) -> str:
    """Line breaks and tabs are allowed, and no other control character."""
    if not re.sub(r"[\n\t]", " ", text).isprintable():
        raise ValueError(f"{text[:40]!r} holds a control character")
    return text


FreeText = Annotated[str, AfterValidator(_no_hidden_characters)]


def _variable(name: str) -> str:
    if not VARIABLE.match(name):
        raise ValueError(f"'{name}' is not the name of an environment variable")
    return name


def _without_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a NUL character, which no environment variable can")
    return value


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a whole number is expected")
    return value


Variable = Annotated[str, AfterValidator(_variable)]
EnvironmentValue = Annotated[str, AfterValidator(_without_nul)]
Whole = Annotated[int, BeforeValidator(_no_truth_value)]
Seed = Annotated[Whole, Field(le=MAXIMUM_SEED)]


def _seed_list(value: Any) -> Any:
    """5 means 0..4; '0-4,7' means those; a list is itself."""
    if isinstance(value, bool):
        raise ValueError("seeds are whole numbers")
    if isinstance(value, int):
        if not 1 <= value <= MAXIMUM_SEEDS:
            raise ValueError(f"{value} is not a number of seeds (1 to {MAXIMUM_SEEDS:,})")
        return list(range(value))
    if isinstance(value, str):
        return parse_seeds(value)
    return value


def parse_seeds(text: str) -> list[int]:
    """'0-4,7' as [0, 1, 2, 3, 4, 7]."""
    seeds: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if not found:
            raise ValueError(f"'{part.strip()}' is not a seed or a range such as 0-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or last - first > MAXIMUM_SEEDS:
            raise ValueError(f"'{part.strip()}' is not a range of seeds")
        seeds.extend(range(first, last + 1))
    return seeds


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

    _name = field_validator("name")(_plain_name)


class CommandTrainer(Settings):
    """Any script as trainer.

    Placeholders: {python} {run_dir} {seed} {arm} {agent_steps} {condition} {episodes} {micro_batches} {settings.KEY}
    {flags}. {python} is the interpreter that runs dreamproof.
    """

    command: list[str] = Field(min_length=1, description="arguments of the training command")
    evaluate: list[str] | None = Field(None, description="arguments of the command that evaluates one condition")
    adapter: Literal["native", "embodied", "bracket_lines", "jsonl"] = Field(
        "native", description="how progress is read: the native run folder, or what the script already writes"
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


MEMORY_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "": 1 << 20}


def memory_bytes(text: str) -> int:
    """`8G` as bytes; a bare number is in megabytes, as for sbatch."""
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    assert found is not None, text
    return int(found[1]) * MEMORY_UNITS[found[2]]


def gpus_of(gres: str | None) -> int | None:
    """GPUs in a gres request such as gpu:a100:2; None if it names none."""
    counts = [
        int(parts[-1]) if parts[-1].isdigit() else 1
        for parts in (part.split("(")[0].split(":") for part in (gres or "").split(","))
        if parts[0] in ("gpu", "gres/gpu")
    ]
    return sum(counts) if counts else None


class Slurm(Settings):
    """How a cell asks a cluster for its place."""

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    constraint: Line | None = None
    gres: Line | None = None
    cpus_per_task: int = Field(2, ge=1)
    memory: str = Field("8G", pattern=r"^\d+[KMGT]?$")
    memory_cap: str | None = Field(None, pattern=r"^\d+[KMGT]?$", description="no more than this after out-of-memory")
    time_limit: Line = Field("04:00:00", description="as sbatch --time takes it")
    signal_seconds_before_limit: int = Field(120, ge=0)
    setup: list[FreeText] = Field(default_factory=list, description="shell lines before the trainer, e.g. module load")
    extra: list[Line] = Field(default_factory=list, description="extra #SBATCH lines")
    array_throttle: int = Field(20, ge=1, description="array elements running at a time")
    requeue: bool = Field(True, description="allow requeueing: at the time limit, after preemption, after a lost node")
    probe_time_limit: Line = Field("00:30:00", description="time limit of the preflight's probe jobs")
    poll_seconds: float = Field(10.0, ge=1.0, description="seconds between two polls of the controller")
    lease_seconds: float = Field(15.0, ge=2.0, description="how long a job continues that cannot read its lease")


class BackendSettings(Settings):
    """Where attempts run, and how many at a time."""

    kind: Literal["local", "slurm"] = "local"
    slots: int = Field(1, ge=1, le=10_000, description="attempts running at a time")
    memory_limit_bytes: int | None = Field(
        None, ge=1 << 20, description="host memory of one attempt, where enforceable"
    )
    quick_compiles: bool = Field(
        False,
        description="without a GPU, compile our own trainers without XLA's optimisers: for networks so small that they "
        "take longer to compile than to train",
    )
    slurm: Slurm | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_queue_is_long(cls, value: Any) -> Any:
        """On a cluster everything may wait in the queue; what runs at a time is array_throttle's part."""
        if isinstance(value, dict) and value.get("kind") == "slurm":
            return {"slots": 1000, "slurm": {}, **value}
        return value

    @property
    def has_queue(self) -> bool:
        """Whether attempts wait in a scheduler's queue."""
        return self.slurm is not None

    @property
    def runs_here(self) -> bool:
        """Whether attempts use this machine, which is paid for as a whole; else only running attempts are paid for."""
        return self.slurm is None

    @property
    def counts_memory_per_attempt(self) -> bool:
        """Whether the memory controller counts the kills of each attempt apart."""
        return self.memory_limit_bytes is not None or self.slurm is not None

    @property
    def lease_seconds(self) -> float | None:
        """How long an attempt continues without reading its lease; None if it needs no lease."""
        return self.slurm.lease_seconds if self.slurm is not None else None

    @property
    def max_parallel(self) -> int:
        """Attempts that run at a time."""
        return self.slots if self.slurm is None else min(self.slots, self.slurm.array_throttle)

    @model_validator(mode="after")
    def _slurm_has_its_part(self) -> Self:
        if self.slurm is not None and self.kind != "slurm":
            raise ValueError("a 'slurm' part needs kind: slurm")
        return self


class Money(Settings):
    """What a GPU-hour costs and how much may be spent."""

    price_per_gpu_hour: float = Field(0.0, ge=0)
    currency: str = Field("CNY", pattern=r"^[A-Z]{3}$")
    budget: float | None = Field(None, gt=0, description="hard stop; none if left out")
    gpus_per_attempt: float = Field(1.0, ge=0)


class Retries(Settings):
    """How often what is tried again."""

    transient_at_most: int = Field(
        5, ge=0, description="resumes of one cell after transient deaths in a row that left no newer checkpoint"
    )
    same_deterministic_at_most: int = Field(
        2, ge=1, description="a cell is stopped after so many failures with the same deterministic cause"
    )
    stalled_at_most: int = Field(3, ge=1, description="a cell is stopped after so many kills for stalling in a row")
    first_wait_seconds: float = Field(2.0, ge=0)
    longest_wait_seconds: float = Field(300.0, ge=0)
    breaker_failures: int = Field(6, ge=2, description="the study is stopped after so many quick failures in a row")
    breaker_quick_seconds: float = Field(60.0, gt=0)


class PhaseLimits(Settings):
    """Seconds by phase of an attempt."""

    start: float = Field(3600.0, gt=0)
    compile: float = Field(3600.0, gt=0)
    train: float = Field(3600.0, gt=0)
    evaluate: float = Field(3600.0, gt=0)
    save: float = Field(3600.0, gt=0)

    def of(self, phase: str) -> float:
        """The limit of a phase; one that is not known here counts as training."""
        limits: dict[str, float] = self.model_dump()
        return limits.get(phase, self.train)


def _phase_limits(value: Any) -> Any:
    """One number for all phases."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return dict.fromkeys(PhaseLimits.model_fields, value)
    return value


class Liveness(Settings):
    """When an attempt without progress is shown as stalled, and when it is killed."""

    old_names: ClassVar[dict[str, str]] = {
        "floor_seconds": "stalled_after_seconds",
        "compile_floor_seconds": "compile_stalled_after_seconds",
    }

    stalled_after_seconds: float = Field(120.0, gt=0, description="shown as stalled after so long without progress")
    compile_stalled_after_seconds: float = Field(900.0, gt=0, description="the same while importing and compiling")
    gap_factor: float = Field(5.0, gt=1, description="shown as stalled only after so many times the longest gap seen")
    stalled_action: Literal["report", "restart"] = Field("restart", description="report: never kill, only show")
    kill_stopped_after_seconds: float = Field(1800.0, gt=0, description="killed when stopped by a signal for so long")
    kill_idle_after_seconds: float = Field(
        1200.0, gt=0, description="killed after so long without progress and without CPU, disk or GPU use"
    )
    kill_silent_after_seconds: Annotated[PhaseLimits, BeforeValidator(_phase_limits)] = Field(
        PhaseLimits(), description="killed after so long without progress, busy or not; one number or one per phase"
    )


class AtEnd(Settings):
    """What happens when nothing is left to do."""

    action: Literal["nothing", "shutdown"] = "nothing"
    commands: list[Annotated[list[str], Field(min_length=1)]] = Field(
        default=[["shutdown", "-h", "now"], ["systemctl", "poweroff"], ["poweroff"]],
        min_length=1,
        description="tried one after the other until one returns 0; 'command: [...]' is a chain of one",
    )
    grace_seconds: float = Field(300.0, ge=0, description="cancelled in this time by the file 'keep-running' or Ctrl-C")
    timeout_seconds: float = Field(60.0, gt=0, description="a command that takes longer is killed, the next is tried")
    confirm_seconds: float = Field(15.0, ge=0, description="how long to look for signs that the machine stops")
    idle_minutes: float | None = Field(None, gt=0, description="also after so long without anything that can run")

    @model_validator(mode="before")
    @classmethod
    def _one_command(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "command" not in value:
            return value
        if "commands" in value:
            raise ValueError("'command' and 'commands' are both given; use one of them")
        return {**{key: part for key, part in value.items() if key != "command"}, "commands": [value["command"]]}


class Study(Settings):
    """One declared study."""

    name: str
    question: FreeText = Field(min_length=1)
    metric: Metric
    constraint: Constraint | None = None
    decides: Decides | None = None
    task: Line = Field(min_length=1)
    trainer: Literal["dreamer", "pwm", "pwm_offline"] | CommandTrainer
    settings: dict[str, Any] = Field(default_factory=dict, description="settings of the trainer that all arms share")
    arms: dict[str, dict[str, Any]] = Field(min_length=1, description="name: the settings in which this arm differs")
    reference_arm: str | None = Field(None, description="what the others are compared with; the first arm if left out")
    seeds: Annotated[list[Seed], BeforeValidator(_seed_list)] = Field(min_length=1, max_length=MAXIMUM_SEEDS)
    paired_seeds: bool = Field(
        False,
        description="a seed number means the same layouts and initial data in every arm, so verdicts compare arms seed "
        "by seed; needs at least 6 seeds",
    )
    maximum_seeds: int | None = Field(None, ge=1, description="no sequential plan goes beyond this")
    agent_steps: Whole = Field(ge=1, le=MAXIMUM_STEPS)
    conditions: list[Annotated[StudyCondition, BeforeValidator(_condition)]] = Field(default_factory=list)
    evaluation_episodes: int = Field(50, ge=1)
    backend: BackendSettings = BackendSettings()
    pack_cells: int = Field(1, ge=1, description="cells trained by one process")
    money: Money = Money()
    retries: Retries = Retries()
    liveness: Liveness = Liveness()
    at_end: AtEnd = AtEnd()
    folder: str | None = Field(None, description="where results go, seen from this file; results/NAME if left out")

    _name = field_validator("name")(_plain_name)

    @model_validator(mode="before")
    @classmethod
    def _gres_tells_gpus(cls, value: Any) -> Any:
        """On a cluster gres sets how many GPUs are paid for, unless `money` does."""
        backend = value.get("backend") if isinstance(value, dict) else None
        slurm = backend.get("slurm") if isinstance(backend, dict) else None
        gpus = gpus_of(slurm["gres"]) if isinstance(slurm, dict) and isinstance(slurm.get("gres"), str) else None
        money = value.get("money") or {} if isinstance(value, dict) else {}
        if gpus is None or not isinstance(money, dict):
            return value
        return {**value, "money": {"gpus_per_attempt": gpus, **money}}

    @field_validator("arms", mode="before")
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
            _plain_name(name)
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
        names = [condition.name for condition in self.conditions]
        if names and self.metric.condition not in names:
            raise ValueError(
                f"metric.condition '{self.metric.condition}' is not one of the conditions {', '.join(names)}"
            )
        unknown = [name for name in self.named_by_decides if name not in names]
        if unknown:
            raise ValueError(f"decides: '{unknown[0]}' is not one of the conditions {', '.join(names) or '(none)'}")
        if self.decides is not None and self.decides.limits is not None and self.constraint is None:
            raise ValueError("decides.limits needs a constraint")
        if isinstance(self.trainer, CommandTrainer):
            if names and self.trainer.evaluate is None:
                raise ValueError("conditions are declared but trainer.evaluate names no command")
            if self.pack_cells > 1:
                raise ValueError("pack_cells above 1 needs a trainer of our own, not a command")
        if self.maximum_seeds is not None and self.maximum_seeds < len(self.seeds):
            raise ValueError(f"maximum_seeds {self.maximum_seeds} is below the {len(self.seeds)} declared seeds")
        return self

    @property
    def named_by_decides(self) -> list[str]:
        """Every condition that the declared decision over several conditions names."""
        return [] if self.decides is None else [*dict.fromkeys([*self.decides.conditions, *self.decides.limited])]

    @property
    def reference(self) -> str:
        """The arm that the others are compared with."""
        return self.reference_arm or next(iter(self.arms))

    def merged_settings(self, arm: str) -> dict[str, Any]:
        """The trainer's settings of one arm: shared ones, then its own, nested keys merged."""
        return merge(self.settings, self.arms[arm])

    def hash(self) -> str:
        """Names the declaration: the same meaning gives the same hash."""
        value = self.model_dump(mode="json")
        # Studies that were declared before there were these keys keep their name.
        if value["metric"]["checkpoint_rule"] is None:
            del value["metric"]["checkpoint_rule"]
        if value["decides"] is None:
            del value["decides"]
        if not value["paired_seeds"]:
            del value["paired_seeds"]
        if isinstance(value["trainer"], dict) and not value["trainer"]["from_env"]:
            del value["trainer"]["from_env"]
        cell = CELL_SETTINGS.get(self.trainer) if isinstance(self.trainer, str) else None
        if cell is not None:
            value["settings"] = first_names(cell, value["settings"])
            value["arms"] = {arm: first_names(cell, settings) for arm, settings in value["arms"].items()}
            value["conditions"] = [
                each | {"settings": first_names(Shift, each["settings"])} for each in value["conditions"]
            ]
        return text_hash(canonical_json(value))


def _under_current_names(trainer: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of one of our own trainers with old keys renamed; those of a command are its own."""
    cell = CELL_SETTINGS.get(trainer) if isinstance(trainer, str) else None
    return settings if cell is None else dict(current_names(cell, settings))


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, mapping by mapping."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every text below a value, with the dotted name of its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, place)
    elif isinstance(value, str):
        yield place, value


def refuse_secrets(study: Study, path: Path) -> None:
    """Raises BadInput if a declaration holds a password, key or token: it would stand in the ledger for good."""
    trainer = study.trainer
    if isinstance(trainer, CommandTrainer):
        for name, value in trainer.environment.items():
            if looks_secret(name, value):
                raise BadInput(
                    f"{path}: trainer.environment.{name} looks like a secret; it would be recorded and exported",
                    f"take it out, write 'from_env: [{name}]' under trainer, and export {name}=… in the shell of run",
                )
    parts = study.model_dump(mode="json", include={"trainer", "settings", "arms", "conditions", "backend"})
    for place, text in _texts(parts, ""):
        if mask_secrets(text) != text:
            raise BadInput(
                f"{path}: {place[1:]} holds what looks like a secret; it would be recorded and exported",
                "take it out of the file; let the trainer read it from a variable named in trainer.from_env",
            )


def read_study(path: Path) -> Study:
    """The study declared in a YAML file."""
    value, lines = read_yaml(path)
    study = validate(Study, value, str(path), lines)
    refuse_secrets(study, path)
    return study


def deprecation_notes(path: Path) -> list[str]:
    """One line for every old key that a study file uses."""
    if not path.is_file():
        return []
    value, _ = read_yaml(path)
    pairs = list(renamed_keys(Study, value))
    trainer, arms, conditions = value.get("trainer"), value.get("arms"), value.get("conditions")
    if isinstance(trainer, str) and trainer in CELL_SETTINGS:
        shared = [value.get("settings"), *(arms.values() if isinstance(arms, dict) else [])]
        pairs += [pair for settings in shared for pair in renamed_keys(CELL_SETTINGS[trainer], settings)]
        for condition in conditions if isinstance(conditions, list) else []:
            if isinstance(condition, dict):
                pairs += renamed_keys(Shift, condition.get("settings"), f"{condition.get('name')}.")
    return [f"note: {old} is now {new}" for old, new in dict.fromkeys(pairs)]
