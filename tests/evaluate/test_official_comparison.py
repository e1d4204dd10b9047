"""Official against our episodes: the interval by hand, and that equal episodes differ by nothing."""

import numpy as np
import pytest
from scipy import stats

from dreamproof.evaluate.official import differences
from dreamproof.runs.records import EvaluatedCheckpoint, EvaluationRecord


def record(returns: list[float], costs: list[float]) -> EvaluationRecord:
    """A record with these episodes."""
    episodes = {"return": returns, "cost": costs, "goals": [8.0] * len(returns)}
    made = EvaluatedCheckpoint(agent_steps=10, gradient_steps=5, parameter_hash="a", episodes=episodes)
    return EvaluationRecord(condition="id", kind="in_distribution", task="t", checkpoints={"final": made})


def test_the_interval_is_welchs() -> None:
    there, here = [20.0, 22.0, 24.0, 21.0], [21.0, 25.0, 23.0]
    gap, low, high = differences(record(there, [0.0] * 4), record(here, [0.0] * 3))["return"]
    first, second = np.var(there, ddof=1) / 4, np.var(here, ddof=1) / 3
    freedom = (first + second) ** 2 / (first**2 / 3 + second**2 / 2)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(first + second)
    assert gap == pytest.approx(np.mean(there) - np.mean(here))
    assert (low, high) == (pytest.approx(gap - half), pytest.approx(gap + half))


def test_constants_differ_without_an_interval() -> None:
    found = differences(record([1.0, 2.0], [3.0, 3.0]), record([1.0, 2.0], [1.0, 1.0]))
    assert found["cost"] == (2.0, 2.0, 2.0)
    assert found["return"][0] == 0.0
