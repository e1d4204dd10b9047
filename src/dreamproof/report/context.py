"""What every document of a report is written from."""

from dataclasses import dataclass

from dreamproof.base.text import estimate_text, money_text, two_digits
from dreamproof.report.analysis import Analysis
from dreamproof.report.data import TRAIN
from dreamproof.report.language import Texts
from dreamproof.report.numbers import Numbers, number_text

LISTED_CONDITIONS = 3
"""Conditions that decide together are named one by one up to this number, and counted beyond it."""


@dataclass(frozen=True)
class ReportContext:
    """Analysis, numbers and texts that every document is written from."""

    analysis: Analysis
    numbers: Numbers
    texts: Texts

    @property
    def reference(self) -> str:
        return self.analysis.evidence.study.reference

    def condition(self, name: str, metric: str | None = None) -> str:
        """A condition's name; the training log and the mean over several conditions have a text of their own.

        A metric that is taken over fewer tasks than the deciding one has to be named.
        """
        evidence = self.analysis.evidence
        other = evidence.other_score
        joined, decides = evidence.deciding_conditions, evidence.study.decides
        if len(joined) > 1 and name == evidence.primary_condition:
            over = decides.over if decides is not None else "mean"
            if evidence.study.tasks is not None:
                tasks = other.tasks if other is not None and metric == other.metric else joined
                return tasks[0] if len(tasks) == 1 else self.texts(f"condition.tasks_{over}", count=len(tasks))
            if len(joined) > LISTED_CONDITIONS:
                return self.texts(f"condition.many_{over}", count=len(joined))
            return self.texts(f"condition.joint_{over}", conditions=self.listing(joined))
        return self.texts("condition.train") if name == TRAIN else name

    @property
    def deciding(self) -> str:
        """What decides; conditions that were only counted are named in brackets, tasks are not."""
        evidence = self.analysis.evidence
        shown = self.condition(evidence.primary_condition)
        if len(evidence.deciding_conditions) <= LISTED_CONDITIONS or evidence.study.tasks is not None:
            return shown
        return shown + self.in_brackets(self.listing(evidence.deciding_conditions))

    def money(self, amount: float | None) -> str:
        return money_text(amount, self.analysis.spending.currency)

    def gpu_hours(self, seconds: float | None) -> str:
        """Seconds of slots as GPU hours with two decimals."""
        return number_text(self._gpu_hours(seconds), 2)

    def listing(self, items: list[str]) -> str:
        """Items joined by the language's comma."""
        return self.texts("list.comma").join(items)

    def in_brackets(self, text: str) -> str:
        """A text in the language's brackets, with a space before them where it has one."""
        return self.texts("list.brackets", text=text)

    def both(self, items: list[str]) -> str:
        """Items joined by commas, and by the language's *and* before the last."""
        return self.texts("list.last").join([self.listing(items[:-1]), items[-1]] if len(items) > 1 else items)

    def price(self, amount: float | None) -> str:
        """An amount of money that is still to be paid, with two digits; a forecast has no more."""
        if not self.analysis.spending.price_per_hour:
            return self.texts("money.unpriced")
        return estimate_text(amount, self.analysis.spending.currency)

    def planned_hours(self, seconds: float | None) -> str:
        """GPU hours that are still to be used, with two digits."""
        return two_digits(self._gpu_hours(seconds))

    def _gpu_hours(self, seconds: float | None) -> float | None:
        gpus = self.analysis.evidence.study.money.gpus_per_attempt
        return None if seconds is None else seconds * gpus / 3600
