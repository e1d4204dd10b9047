"""Parity of SafetyPointGoal2 with the real one, against a recording of single steps."""

from pathlib import Path

import numpy as np
import pytest

from dreamproof.envs.point.compare import OneStep, one_step
from dreamproof.envs.point.params import LEVEL_2

pytestmark = pytest.mark.optimised

RECORDING = Path(__file__).with_name("official_goal2.npz")


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    """The recording."""
    return dict(np.load(RECORDING, allow_pickle=False))


@pytest.fixture(scope="module")
def errors(recorded: dict[str, np.ndarray]) -> OneStep:
    """One-step errors of every recorded transition."""
    return one_step(recorded, LEVEL_2)


def test_a_step_free_of_vases_is_the_official_one(recorded: dict[str, np.ndarray], errors: OneStep) -> None:
    free = errors.free_of_vase
    assert free.sum() >= 300
    assert errors.position[free].max() <= 5e-6
    assert errors.reward[free].max() <= 5e-6
    np.testing.assert_array_equal(errors.costs[free], recorded["costs"][free])


def test_hazards_and_goals_never_disagree(recorded: dict[str, np.ndarray], errors: OneStep) -> None:
    np.testing.assert_array_equal(errors.costs[:, 0], recorded["costs"][:, 0])
    assert errors.goal_mismatches == 0


def test_the_cost_of_vases_hardly_ever_disagrees(recorded: dict[str, np.ndarray], errors: OneStep) -> None:
    theirs = recorded["costs"][:, 1]
    assert theirs.sum() >= 20
    assert np.mean(errors.costs[:, 1] != theirs) <= 0.03


def test_the_total_is_the_official_one_where_the_parts_agree(recorded: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(recorded["cost"], (recorded["costs"].sum(1) > 0).astype(np.float32))
