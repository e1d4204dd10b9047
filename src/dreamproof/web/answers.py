"""Answers of the API, kept while the study has not changed, and made no more often than their making costs."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MAX_ANSWERS = 64
MAX_BYTES = 64 << 20
REST_FACTOR = 4.0
"""An answer rests so many times as long as it took to make: one study uses at most a fifth of a core for it."""


@dataclass(frozen=True)
class Answer:
    """The body of a response, as of one version of a study."""

    body: bytes
    kind: str
    version: int
    rests_until: float
    """By a monotonic clock; until then it is given although the study changed."""

    @property
    def rests_seconds(self) -> float:
        """How long it still rests."""
        return max(0.0, self.rests_until - time.monotonic())

    def is_current(self, version: int) -> bool:
        """Whether it need not be made again."""
        return self.version == version or time.monotonic() < self.rests_until


Make = Callable[[], tuple[bytes, str]]


class Answers:
    """The answers of one study by what was asked for; each is made once, whoever asks for it meanwhile waits."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Answer] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def known(self, key: str, version: int) -> Answer | None:
        """An answer that is current, if there is one."""
        found = self._kept.get(key)
        return found if found is not None and found.is_current(version) else None

    def get(self, key: str, version: int, make: Make, rest_seconds: float = 0.0) -> Answer:
        """The current answer, made if there is none."""
        with self._maker(key):
            found = self.known(key, version)
            if found is not None:
                return found
            began = time.monotonic()
            body, kind = make()
            now = time.monotonic()
            rest = max(rest_seconds, REST_FACTOR * (now - began))
            answer = Answer(body, kind, version, now + rest)
            self._keep(key, answer)
            return answer

    def _maker(self, key: str) -> threading.Lock:
        with self._lock:
            return self._making.setdefault(key, threading.Lock())

    def _keep(self, key: str, answer: Answer) -> None:
        with self._lock:
            self._kept[key] = answer
            self._kept.move_to_end(key)
            self._forget()

    def _forget(self) -> None:
        if len(self._making) > 4 * MAX_ANSWERS:
            self._making = {key: lock for key, lock in self._making.items() if lock.locked()}
        total = sum(len(answer.body) for answer in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > MAX_ANSWERS or total > MAX_BYTES):
            _, oldest = self._kept.popitem(last=False)
            total -= len(oldest.body)
