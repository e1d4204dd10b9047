"""Reads text logs of evaluations: the mean that they print, else the values that they print per episode."""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.files import read_tail
from dreamproof.settings.study import Study
from dreamproof.study.adapters.metrics import known_names

NUMBER = r"[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?|[0-9]{1,15}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
WORD = r"(?!(?:over|of|in)\b)[A-Za-z][A-Za-z0-9_/.@-]{0,40}"
# `Episode has 201 steps and return 1.7`, `mean_reward: 12.5 +/- 3`, `mean return over 20 episodes = 12.5`
LABEL = rf"(?<![A-Za-z0-9_/.@-])(?P<label>{WORD}(?: {WORD}){{0,3}}(?: ?\([A-Za-z ]{{1,20}}\))?)"
OVER = r"(?: (?:over|of|in) [0-9]{1,9} [a-z]{1,12})?"
PAIR = re.compile(rf"{LABEL}{OVER}\s{{0,4}}(?:[:=]|is|of)?\s{{0,4}}\[?\s?(?P<value>{NUMBER})(?![0-9A-Za-z/]|,[0-9])")
MEANS = frozenset(("mean", "average", "avg"))
# Values that are no result of the evaluation as a whole.
OTHERS = frozenset(("max", "min", "best", "peak", "worst", "std", "sd", "loss", "running"))
LINE_CHARACTERS = 1000
WHOLE_BYTES = 64 << 20


@dataclass(frozen=True)
class LoggedMean:
    """The mean of a metric in a log; without a number of episodes, the log gives the mean itself."""

    metric: str
    value: float
    episodes: int | None

    @property
    def text(self) -> str:
        """For people."""
        of = f" (mean of {self.episodes} episodes)" if self.episodes is not None else ""
        return f"{self.metric} {self.value:,.3f}{of}"


def read_eval_log(study: Study, path: Path) -> list[LoggedMean]:
    """The means of the metric and of the limited ones in a log, as far as it shows them."""
    wanted = [study.metric.name, *(limit.name for limit in study.limits)]
    found = [pair for line in re.split(r"[\n\r]+", read_tail(path, WHOLE_BYTES)) for pair in _pairs(line)]
    means = (_mean_of(name, found) for name in dict.fromkeys(wanted))
    return [mean for mean in means if mean is not None]


def _pairs(line: str) -> list[tuple[list[str], float]]:
    """The words before every number of a line, in lower case, and the number."""
    found = (
        (match["label"], float(match["value"].replace(",", ""))) for match in PAIR.finditer(line[:LINE_CHARACTERS])
    )
    return [(re.findall(r"[a-z0-9]+", label.lower()), value) for label, value in found]


def _mean_of(metric: str, pairs: list[tuple[list[str], float]]) -> LoggedMean | None:
    named = [(parts, value) for parts, value in pairs if _names(parts, metric) and math.isfinite(value)]
    means = [value for parts, value in named if MEANS & set(parts)]
    if means:
        return LoggedMean(metric, means[-1], None)
    values = [value for _, value in named]
    return LoggedMean(metric, sum(values) / len(values), len(values)) if values else None


def _names(parts: list[str], metric: str) -> bool:
    """Whether the last words before a number name the metric, and not its best or its spread."""
    if OTHERS & set(parts):
        return False
    plain = [part for part in parts if part not in MEANS]
    names = {tuple(re.findall(r"[a-z0-9]+", name)) for name in known_names(metric)}
    return any(tuple(ending[-len(name) :]) == name for name in names for ending in (parts, plain) if name)
