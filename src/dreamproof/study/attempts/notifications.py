"""Notifies people of deaths, stalls, the budget and the decision; in a thread, so that nothing else waits for it."""

import json
import os
import queue
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dreamproof.base.safe_text import mask_secrets, one_line
from dreamproof.settings.notify import Notification
from dreamproof.settings.study import Study
from dreamproof.study.ledger.events import Notified, Row

HOUR_SECONDS = 3600.0
MAX_WAITING = 100
QUOTED_LINES = 3
NOT_A_DEATH = ("completed", "stopped_by_user")
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER")


@dataclass(frozen=True)
class Message:
    """What is sent: one line for people, and the facts behind it."""

    on: str
    text: str
    facts: Row = field(default_factory=dict)

    def as_json(self) -> bytes:
        """The body of a webhook; chat services show `text`."""
        return json.dumps({"text": self.text, "on": self.on, **self.facts}, ensure_ascii=False).encode(
            "utf-8", "replace"
        )


def message_of(row: Row, study: str) -> Message | None:
    """What an event of the ledger is worth saying; None for most."""
    name = row["event"]
    if name == "attempt_ended" and row["cause"] not in NOT_A_DEATH:
        why = f" — {'; '.join(row['evidence'][:QUOTED_LINES])}" if row["evidence"] else ""
        return _message("death", study, f"{row['attempt']} ended: {row['cause']}{why}", row)
    if name == "liveness_changed" and row["state"] == "stalled":
        return _message("stall", study, f"{row['attempt']} is stalled: {row['reason']}", row)
    if name == "budget_warned":
        return _message("budget", study, f"{row['spent']:.2f} of the budget of {row['budget']:g} is spent", row)
    if name == "budget_reached":
        return _message("budget", study, f"budget reached: {row['spent']:.2f} of {row['budget']:g}; all stops", row)
    if name == "report_written":
        return _message("decision", study, row.get("answer") or "the reports were written", row)
    return None


def _message(on: str, study: str, text: str, row: Row) -> Message:
    facts: Row = {key: row[key] for key in ("attempt", "cells", "cause", "spent", "budget") if key in row}
    return Message(on, mask_secrets(one_line(f"{study}: {text}")), {"study": study, "event": row["n"], **facts})


class RateLimit:
    """So many messages per hour; counts those that were held back."""

    def __init__(self, at_most_per_hour: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_most, self._clock = at_most_per_hour, clock
        self._sent: deque[float] = deque()
        self.held_back = 0

    def allows(self) -> bool:
        """Whether one more may be sent now; counts it."""
        now = self._clock()
        while self._sent and now - self._sent[0] >= HOUR_SECONDS:
            self._sent.popleft()
        if len(self._sent) >= self._at_most:
            self.held_back += 1
            return False
        self._sent.append(now)
        return True

    def take_held_back(self) -> int:
        """How many were held back since the last call."""
        count, self.held_back = self.held_back, 0
        return count


class Notifier:
    """Takes the events of a supervisor and sends messages of them; what became of each is an event again."""

    def __init__(
        self, study: Study, environment: Mapping[str, str] = os.environ, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._study = study.name
        self._environment = environment
        self._limits = [(one, RateLimit(one.at_most_per_hour, clock)) for one in study.notify]
        self._waiting: queue.Queue[tuple[Notification, Message] | None] = queue.Queue(MAX_WAITING)
        self._outcomes: queue.SimpleQueue[Notified] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def take(self, row: Row) -> None:
        """Sends what this event is worth saying to whoever asked for it."""
        message = message_of(row, self._study) if self._limits else None
        if message is None:
            return
        for notification, limit in self._limits:
            if message.on in notification.on and (message.on == "decision" or limit.allows()):
                self._send_later(notification, _with_held_back(message, limit.take_held_back()))

    def _send_later(self, notification: Notification, message: Message) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="notifications")
            self._thread.start()
        try:
            self._waiting.put_nowait((notification, message))
        except queue.Full:
            reason = f"{MAX_WAITING} messages wait already"
            self._outcomes.put(Notified(message.on, notification.way, False, reason))

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            notification, message = item
            fault = send(notification, message, self._environment)
            self._outcomes.put(Notified(message.on, notification.way, fault is None, fault))

    def outcomes(self) -> list[Notified]:
        """What became of messages since the last call."""
        found = []
        while not self._outcomes.empty():
            found.append(self._outcomes.get())
        return found

    def finish(self) -> list[Notified]:
        """Waits for what is still to be sent, as long as its commands may take; returns what became of it."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(sum(one.timeout_seconds for one, _ in self._limits) + 5.0)
            self._thread = None
        return self.outcomes()


def _with_held_back(message: Message, count: int) -> Message:
    if not count:
        return message
    return Message(
        message.on, f"{message.text} (and {count} more messages, held back by at_most_per_hour)", message.facts
    )


def send(notification: Notification, message: Message, environment: Mapping[str, str]) -> str | None:
    """Sends one message; why it could not be sent, if it could not. No secret is in the reason."""
    try:
        if notification.command is not None:
            return _run(notification, message, environment)
        return _post(notification, message, environment)
    except subprocess.TimeoutExpired:
        return f"took longer than {notification.timeout_seconds:g} s"
    except urllib.error.HTTPError as error:
        return f"HTTP status {error.code}"
    except (OSError, ValueError) as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", None)
    text = getattr(error, "strerror", None) or getattr(inner, "strerror", None) or type(error).__name__
    return str(text)


def _run(notification: Notification, message: Message, environment: Mapping[str, str]) -> str | None:
    """Starts the command with the few variables that it needs, and no others."""
    assert notification.command is not None
    names = [*KEPT_VARIABLES, *notification.from_env]
    variables = {name: environment[name] for name in names if name in environment}
    variables |= {"DREAMPROOF_MESSAGE": message.text, "DREAMPROOF_EVENT": message.on}
    done = subprocess.run(
        notification.command,
        input=message.as_json(),
        env=variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=notification.timeout_seconds,
        check=False,
    )
    return None if done.returncode == 0 else f"exit code {done.returncode}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A message goes to the named address and to no other."""

    def redirect_request(self, *arguments: Any) -> None:
        return None


def _post(notification: Notification, message: Message, environment: Mapping[str, str]) -> str | None:
    address = notification.webhook or environment.get(notification.webhook_from_env or "", "")
    if not address.startswith(("http://", "https://")):
        return f"{notification.webhook_from_env} holds no http or https address"
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(address, message.as_json(), headers, method="POST")
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=notification.timeout_seconds):
        return None
