"""Parity of SafetyCarGoal1 with the real one, against a recording of single steps."""

from pathlib import Path

import numpy as np
import pytest

from dreamproof.envs.point.compare import OneStep, one_step
from dreamproof.envs.point.params import LEVEL_1
from dreamproof.envs.point.robots import CAR

pytestmark = pytest.mark.optimised

RECORDING = Path(__file__).with_name("official_car.npz")


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    """The recording."""
    return dict(np.load(RECORDING, allow_pickle=False))


@pytest.fixture(scope="module")
def errors(recorded: dict[str, np.ndarray]) -> OneStep:
    """One-step errors of every recorded transition."""
    return one_step(recorded, LEVEL_1, CAR)


def test_a_step_free_of_the_vase_is_the_official_one(errors: OneStep) -> None:
    free = errors.free_of_vase
    assert free.sum() >= 350
    for part, limit in ((errors.position, 1e-3), (errors.reward, 1e-3), (errors.heading, 1e-2)):
        assert np.mean(part[free] <= 5e-6) >= 0.99
        assert part[free].max() <= limit
    assert np.quantile(errors.velocity[free], 0.99) <= 1e-4
    assert np.quantile(errors.yaw_rate[free], 0.99) <= 1e-3


def test_cost_and_goals_never_disagree(recorded: dict[str, np.ndarray], errors: OneStep) -> None:
    assert (recorded["cost"].sum() >= 20, recorded["goals"].sum() >= 10) == (True, True)
    assert (errors.cost_mismatches, errors.goal_mismatches) == (0, 0)


def test_the_robot_sees_what_it_sees_officially(errors: OneStep) -> None:
    seen = np.quantile(errors.numbers[errors.free_of_vase], 0.99, axis=0)
    # Our magnetometer does not lean with the chassis.
    assert np.delete(seen, [4, 5, 6]).max() <= 2e-3
    assert seen[[4, 5, 6]].max() <= 0.02
