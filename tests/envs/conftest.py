"""Compiled tasks that the tests of this folder share, so that each is compiled once."""

import pytest
from tests.envs.courses import Course, compiled

from dreamproof.envs import registry


@pytest.fixture(scope="session")
def point() -> Course:
    """The coordinate task with two ghost slots."""
    return compiled(registry.make("SafetyPointGoal1"))


@pytest.fixture(scope="session")
def lidar_point() -> Course:
    """The lidar task."""
    return compiled(registry.make("SafetyPointGoal1", {"observation": "lidar"}))
