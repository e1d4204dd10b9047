"""Looks now and then whether attempts would still start the code that a run was prepared with.

A run that began with nothing missing was prepared with none; its code is compared when something turns out to be lost.
"""

from dataclasses import replace

from dreamproof.base.errors import BadInput
from dreamproof.study.ledger.events import Event
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.plan.provenance import Accepted, settle_code, settle_identity, trainer_code

LOOK_SECONDS = 10.0


class CodeWatch:
    """The trainer's code while a supervisor runs; `refusal` is why nothing more is started, once it changed."""

    def __init__(self, opened: OpenStudy, now: float, accepted: Accepted) -> None:
        self._opened, self._accepted = opened, accepted
        self.next_look = now + LOOK_SECONDS
        self.refusal: str | None = None

    def look(self, now: float) -> list[Event]:
        """What to record about the code where a look is due; after a refusal there is none."""
        identity = self._opened.identity
        if self.refusal is not None or (identity is not None and now < self.next_look):
            return []
        self.next_look = now + LOOK_SECONDS
        try:
            if identity is None:
                return settle_identity(self._opened, self._accepted)[0]
            code = trainer_code(self._opened)
            events = settle_code(self._opened, code, accepted=False)[0]
        except BadInput as error:
            self.refusal = str(error)
            return []
        self._opened.identity = replace(identity, code=code)
        return events
