"""The hard stop of money: reached while what is left still pays for saving, stopping and the reports."""

from dataclasses import dataclass

from dreamproof.settings.study import Study
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.money.spending import count_money, money_per_ms

RESERVED_SHARE = 0.1
LOOP_SECONDS = 2.0
REPORT_SECONDS = 20.0
STOP_GRACE_SECONDS = 60.0
WARNED_SHARE = 0.8
MAX_REPORT_SHARE = 0.4
"""Of a budget so small that the reports would eat it up."""


@dataclass(frozen=True)
class Reserve:
    """What is kept back of a budget, so that attempts are saved and reports are made before it is exceeded."""

    grace_seconds: float = 0.0
    """How long attempts may take to save and end."""
    money: float = 0.0
    """While work is left, nothing starts or continues once this is all that is left."""


def money_reserve(study: Study, longest_grace_seconds: float = STOP_GRACE_SECONDS) -> Reserve:
    """What a supervisor of the study keeps back; nothing without a budget or a price."""
    rate = _money_per_second(study)
    if study.money.budget is None or rate == 0:
        return Reserve()
    whole_seconds = study.money.budget / rate
    grace, loop = (min(seconds, RESERVED_SHARE * whole_seconds) for seconds in (longest_grace_seconds, LOOP_SECONDS))
    reports = min(REPORT_SECONDS, MAX_REPORT_SHARE * whole_seconds) if study.backend.runs_here else 0.0
    return Reserve(grace, (grace + loop + reports) * rate)


def _money_per_second(study: Study) -> float:
    """The price of a second of all slots."""
    return 1000 * money_per_ms(study.money) * study.backend.max_parallel


class Budget:
    """What is spent: counted once from the ledger, then by a clock that cannot jump, as the machine's meter runs."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.reserve = Reserve()
        self._spent_before = 0.0
        self._began = 0.0
        self._running = 0
        self._money_per_second = _money_per_second(study)

    def begin(self, state: StudyState, now: Moment, monotonic: float, longest_grace_seconds: float) -> None:
        """Counts what earlier supervisors spent; from here on the meter runs."""
        self._began = monotonic
        if self.study.money.budget is None or self._money_per_second == 0:
            return
        self._spent_before = count_money(state, now).total_money
        self.reserve = money_reserve(self.study, longest_grace_seconds)

    def meter(self, monotonic: float, running: int) -> None:
        """On a cluster only what runs is paid for: counts the time since the last call for so many attempts."""
        if not self.study.backend.runs_here:
            share = self._running / self.study.backend.max_parallel
            self._spent_before += (monotonic - self._began) * self._money_per_second * share
            self._began, self._running = monotonic, running

    def spent(self, monotonic: float) -> float:
        """Money up to now."""
        return self._spent_before + (monotonic - self._began) * self._money_per_second

    def is_mostly_spent(self, monotonic: float) -> bool:
        """Whether so much is spent that people should know."""
        budget = self.study.money.budget
        return budget is not None and self.spent(monotonic) >= WARNED_SHARE * budget

    def is_reached(self, monotonic: float) -> bool:
        """Whether everything must stop now, so that the rest pays for stopping and for reports made on this machine."""
        budget = self.study.money.budget
        if budget is None or self._money_per_second == 0:
            return False
        return self.spent(monotonic) + self.reserve.money >= budget
