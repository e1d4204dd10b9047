"""The body: what MuJoCo was measured to do, saturation and chatter included."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs.point.dynamics import PointBody, felt_acceleration, simulate
from dreamproof.envs.point.params import Physics

pytestmark = pytest.mark.optimised

PHYSICS = Physics.of_point()


@jax.jit
def drive(action: jax.Array) -> PointBody:
    """The body after every one of 1,000 simulator steps from rest with one command."""
    start = PointBody(*jnp.zeros(6))
    return jax.lax.scan(lambda body, _: (simulate(body, action, PHYSICS),) * 2, start, None, length=1000)[1]


def test_the_drive_saturates_at_five_percent_and_reaches_one_and_a_half_metres_a_second() -> None:
    full, barely = drive(jnp.array([1.0, 0.0])), drive(jnp.array([0.05, 0.0]))
    np.testing.assert_allclose(full.x, barely.x)
    assert full.velocity_x[-1] == pytest.approx(1.5, abs=1e-3)
    assert drive(jnp.array([0.025, 0.0])).velocity_x[-1] == pytest.approx(0.75, abs=1e-3)


@pytest.mark.parametrize(("command", "mean"), [(0.05, 0.0), (0.2, 0.49), (0.5, 1.36), (0.9, 2.81), (1.0, 3.0)])
def test_the_turn_servo_turns_as_fast_as_measured_in_mujoco(command: float, mean: float) -> None:
    heading = np.unwrap(np.asarray(drive(jnp.array([0.0, command])).heading)[200:])
    assert (heading[-1] - heading[0]) / (0.02 * (len(heading) - 1)) == pytest.approx(mean, abs=0.03)


def test_the_turn_servo_chatters_unless_it_is_saturated() -> None:
    slow, fast = (np.asarray(drive(jnp.array([0.0, command])).spin)[200:] for command in (0.05, 1.0))
    assert np.abs(slow) == pytest.approx(0.476, abs=0.002)
    assert fast == pytest.approx(3.0, abs=5e-3)


def test_the_heading_stays_within_half_a_turn() -> None:
    assert np.abs(np.asarray(drive(jnp.array([0.0, 1.0])).heading)).max() <= np.pi + 1e-5


def test_the_accelerometer_feels_the_full_force_at_rest() -> None:
    ahead, left = felt_acceleration(PointBody(*jnp.zeros(6)), jnp.array([1.0, 0.0]), PHYSICS)
    assert ahead == pytest.approx(0.015 / 5.18879e-3, rel=1e-5)
    assert left == pytest.approx(0.0, abs=1e-6)


def test_the_body_moves_along_its_heading() -> None:
    turned = simulate(PointBody(*jnp.array([0.0, 0.0, jnp.pi / 2, 0.0, 0.0, 0.0])), jnp.array([1.0, 0.0]), PHYSICS)
    assert float(turned.y) > 1e-4
    assert abs(float(turned.x)) < 1e-8
