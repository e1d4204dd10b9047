"""Parity with the real Safety-Gymnasium, against a recording made with its official pins."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dreamproof.envs.point.compare import OneStep, layout_statistics, one_step, our_layouts
from dreamproof.jaxcore.keys import layout_keys

pytestmark = pytest.mark.optimised

RECORDING = Path(__file__).with_name("official_rollout.npz")


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    """The recording."""
    return dict(np.load(RECORDING, allow_pickle=False))


@pytest.fixture(scope="module")
def errors(recorded: dict[str, np.ndarray]) -> OneStep:
    """One-step errors of every recorded transition."""
    return one_step(recorded)


def test_the_recording_is_of_the_official_pins_and_holds_what_matters(recorded: dict[str, np.ndarray]) -> None:
    versions = json.loads(str(recorded["versions"]))
    assert (versions["safety-gymnasium"], versions["mujoco"]) == ("1.0.0", "2.3.3")
    assert len(recorded["reward"]) >= 400
    assert (recorded["cost"] > 0).sum() >= 30
    assert (recorded["goals"] > 0).sum() >= 20
    assert RECORDING.stat().st_size < 300_000


def test_one_step_from_the_same_state_ends_within_five_micrometres(errors: OneStep) -> None:
    free = errors.free_of_vase
    assert free.sum() >= 400
    assert errors.position[free].max() <= 5e-6
    assert errors.heading[free].max() <= 5e-5
    assert errors.velocity[free].max() <= 2.4e-4
    assert errors.reward[free].max() <= 5e-6


def test_cost_and_goals_never_disagree(errors: OneStep) -> None:
    assert errors.cost_mismatches == 0
    assert errors.goal_mismatches == 0


def test_the_official_observation_is_reproduced(errors: OneStep) -> None:
    numbers = errors.numbers[errors.free_of_vase]
    # Accelerometer and gyro amplify float32 rounding through the servo's chatter.
    chaotic = [0, 1, 8]
    assert np.delete(numbers, chaotic, axis=1).max() <= 2e-4
    assert numbers[:, chaotic].mean() <= 1e-3


def test_layouts_are_drawn_from_the_official_distribution(recorded: dict[str, np.ndarray]) -> None:
    ours = layout_statistics(*our_layouts(layout_keys(3, "test", 2048, 0)))
    theirs = layout_statistics(recorded["layouts"], recorded["headings"])
    worst = {name: stats.ks_2samp(column, theirs[name]).pvalue for name, column in ours.items()}
    assert min(worst.values()) > 0.05 / len(worst), worst
