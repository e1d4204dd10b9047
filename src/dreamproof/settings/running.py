"""Settings of a study while it runs: money, retries, stalled attempts, and what happens at the end."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from dreamproof.settings.checked import Arguments
from dreamproof.settings.strict import Settings

MAX_MONEY = 1e12
"""Beyond it a typing error is likelier than a price."""


class Money(Settings):
    """What a GPU-hour costs and how much may be spent."""

    price_per_gpu_hour: float = Field(0.0, ge=0, le=MAX_MONEY)
    currency: str | None = Field(
        None, pattern=r"^[A-Z]{3}$", description="e.g. CNY or USD; amounts have no sign without it"
    )
    budget: float | None = Field(None, gt=0, le=MAX_MONEY, description="hard stop; none if left out")
    gpus_per_attempt: float = Field(1.0, ge=0, le=1e6)


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
    kill_silent_after_seconds: Annotated[
        PhaseLimits, BeforeValidator(_phase_limits, json_schema_input_type=float | PhaseLimits)
    ] = Field(
        PhaseLimits(), description="killed after so long without progress, busy or not; one number or one per phase"
    )


class UpdatedDocument(Settings):
    """A Markdown file of the user's own whose bound numbers are brought up to date."""

    file: str = Field(min_length=1, description="seen from the study file")
    mapping: str | None = Field(
        None,
        min_length=1,
        description="file that binds its numbers, seen from the study file; 'auto' binds table cells whose row names "
        "an arm and whose column names a condition; anchors in the file need none",
    )


def _updated_document(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


class ReportSettings(Settings):
    """What is written when nothing is left to do, before the shutdown."""

    languages: list[Literal["en", "zh-Hans", "zh-Hant"]] = Field(
        default=["en"], min_length=1, description="English goes to reports/, any other language to reports/LANGUAGE/"
    )
    update: list[
        Annotated[UpdatedDocument, BeforeValidator(_updated_document, json_schema_input_type=str | UpdatedDocument)]
    ] = Field(
        default_factory=list, description="Markdown files of your own whose bound numbers are updated, e.g. [ppt.md]"
    )


class Requirements(Settings):
    """What the preflight refuses to do without."""

    gpu: bool = Field(False, description="an NVIDIA GPU that the trainer's library can use")
    library: Literal["jax", "torch", "tensorflow"] | None = Field(
        None, description="the library that must see the GPU; any that is installed if left out"
    )


def _or_one_command(schema: dict[str, Any]) -> None:
    schema["properties"]["command"] = schema["properties"]["commands"]["items"]


class AtEnd(Settings):
    """What happens when nothing is left to do."""

    model_config = ConfigDict(json_schema_extra=_or_one_command)

    action: Literal["nothing", "shutdown"] = "nothing"
    commands: list[Annotated[Arguments, Field(min_length=1)]] = Field(
        default=[["shutdown", "-h", "now"], ["systemctl", "poweroff"], ["poweroff"]],
        min_length=1,
        description="tried one after the other until one returns 0; 'command: [...]' is a chain of one",
    )
    grace_seconds: float = Field(300.0, ge=0, description="cancelled in this time by the file 'keep-running' or Ctrl-C")
    timeout_seconds: float = Field(60.0, gt=0, description="a command that takes longer is killed, the next is tried")
    confirm_seconds: float = Field(15.0, ge=0, description="how long to look for signs that the machine stops")
    idle_minutes: float | None = Field(
        None, gt=0, description="waits so much longer where cells are missing and none can run, e.g. stopped ones"
    )

    @model_validator(mode="before")
    @classmethod
    def _one_command(cls, value: Any) -> Any:
        if not isinstance(value, dict) or "command" not in value:
            return value
        if "commands" in value:
            raise ValueError("'command' and 'commands' are both given; use one of them")
        return {**{key: part for key, part in value.items() if key != "command"}, "commands": [value["command"]]}
