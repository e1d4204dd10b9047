"""Who is to be notified of what: a command or a webhook for each kind of event. Secrets are named, never declared."""

import re
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from dreamproof.settings.checked import Arguments, Line, Variable
from dreamproof.settings.strict import Settings

# A long part of letters and digits in an address is what chat services put there instead of a password.
SECRET_PART = re.compile(r"(?=[A-Za-z0-9_-]*[0-9])(?=[A-Za-z0-9_-]*[A-Za-z])[A-Za-z0-9_-]{20,}")


class Notification(Settings):
    """One command or webhook, and what it is used for."""

    on: list[Literal["death", "stall", "budget", "decision"]] = Field(
        min_length=1,
        description="death: an attempt ended without being complete; stall: it makes no progress; budget: 80 % is "
        "spent; decision: the reports were written",
    )
    command: Arguments | None = Field(
        None,
        min_length=1,
        description="a command, in one line or as a list of arguments, started without a shell; it gets the message as "
        "JSON on standard input and as text in DREAMPROOF_MESSAGE",
    )
    webhook: Line | None = Field(None, description="address that gets the message as JSON by POST; without secrets")
    webhook_from_env: Variable | None = Field(
        None, description="variable in the environment of `run` that holds the address; never recorded"
    )
    from_env: list[Variable] = Field(
        default_factory=list, description="variables that the command takes from the environment of `run`"
    )
    at_most_per_hour: int = Field(
        12, ge=1, le=3600, description="further messages are counted and named in the next one"
    )
    timeout_seconds: float = Field(20.0, gt=0, le=300)

    @field_validator("webhook")
    @classmethod
    def _plain_address(cls, address: str | None) -> str | None:
        if address is None:
            return None
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("is not an http or https address")
        if parts.username or parts.password or SECRET_PART.search(f"{parts.path}?{parts.query}"):
            raise ValueError("holds what looks like a secret: name a variable with webhook_from_env instead")
        return address

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = [self.command, self.webhook, self.webhook_from_env]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("needs exactly one of command, webhook and webhook_from_env")
        return self

    @property
    def variables(self) -> list[str]:
        """What must be set in the environment of `run`."""
        return [*self.from_env, *([self.webhook_from_env] if self.webhook_from_env is not None else [])]

    @property
    def way(self) -> str:
        """How it is sent, for the record; never an address that may hold a secret."""
        return f"command {self.command[0]}" if self.command is not None else "webhook"
