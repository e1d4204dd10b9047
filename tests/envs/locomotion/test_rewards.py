"""What is seen and paid in known states of every locomotion task, by hand or by MuJoCo in C."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.envs.locomotion.rollouts import motion_of, wild_states

from dreamproof.envs import registry
from dreamproof.envs.locomotion.physics import Motion
from dreamproof.envs.locomotion.tolerance import tolerance

pytestmark = pytest.mark.optimised

INFINITY = float("inf")
ZERO = jnp.zeros(())


def motion(position: list[float], velocity: list[float]) -> Motion:
    """One env's motion, feeling nothing."""
    return Motion(jnp.asarray(position), jnp.asarray(velocity), jnp.zeros(len(velocity)), jnp.zeros(2))


@pytest.mark.parametrize(
    ("value", "bounds", "margin", "shape", "at_margin", "paid"),
    [
        (1.5, (1.2, INFINITY), 0.6, "gaussian", 0.1, 1.0),
        (0.6, (1.2, INFINITY), 0.6, "gaussian", 0.1, 0.1),
        (0.9, (1.2, INFINITY), 0.6, "gaussian", 0.1, 0.1**0.25),
        (7.0, (10.0, INFINITY), 10.0, "linear", 0.0, 0.7),
        (-3.0, (10.0, INFINITY), 10.0, "linear", 0.0, 0.0),
        (0.5, (1.0, INFINITY), 0.5, "linear", 0.5, 0.5),
        (0.0, (1.0, INFINITY), 0.5, "linear", 0.5, 0.0),
        (-0.5, (0.0, 0.0), 1.0, "quadratic", 0.0, 0.75),
        (3.0, (0.0, 0.0), 1.0, "quadratic", 0.0, 0.0),
        (0.6, (0.6, 2.0), 0.0, "gaussian", 0.1, 1.0),
        (2.1, (0.6, 2.0), 0.0, "gaussian", 0.1, 0.0),
    ],
)
def test_tolerance_has_its_known_values(value, bounds, margin, shape, at_margin, paid) -> None:
    assert float(tolerance(jnp.asarray(value), bounds, margin, shape, at_margin)) == pytest.approx(paid, abs=1e-6)


def test_the_ant_sees_a_y_up_world() -> None:
    env = registry.make("Ant")
    # Turned by 90 degrees to the left about z: the body's x axis is the world's y axis.
    half = math.sqrt(0.5)
    joints = [0.1 * number for number in range(8)]
    turned = motion([3.0, 4.0, 0.5, half, 0.0, 0.0, half, *joints], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, *range(8)])
    seen = np.asarray(env.observe(turned, jnp.full(8, 0.25)))
    part = {name: seen[start:stop] for name, start, stop in env.spec.slots}
    assert seen.shape == (37,)
    np.testing.assert_allclose(part["height"], [0.5])
    # A quarter turn back about x, then the turn about what was z and is y: (x, y, z, w).
    np.testing.assert_allclose(part["rotation"], [-0.5, 0.5, 0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(part["velocity"], [1.0, 3.0, -2.0])
    # The body's rates (4, 5, 6) are (-5, 4, 6) in the world.
    np.testing.assert_allclose(part["angular_velocity"], [-5.0, 6.0, -4.0], atol=1e-5)
    np.testing.assert_allclose(part["joints"], joints, rtol=1e-6)
    np.testing.assert_allclose(part["joint_speeds"], np.arange(8) * 0.1, rtol=1e-6)
    np.testing.assert_allclose(part["up"], [1.0], atol=1e-6)
    np.testing.assert_allclose(part["heading"], [-4.0 / math.hypot(9997.0, 4.0)], atol=1e-6)
    np.testing.assert_allclose(part["last_action"], np.full(8, 0.25))


def test_the_ant_is_paid_for_speed_uprightness_heading_and_height_before_the_step() -> None:
    env = registry.make("Ant")
    upright = motion([0, 0, 0.5, 1, 0, 0, 0, *[0] * 8], [2.0, *[0] * 13])
    # Rolled by 60 degrees about x: still facing ahead, up is cos 60.
    rolled = motion([0, 0, 0.3, math.cos(math.pi / 6), math.sin(math.pi / 6), 0, 0, *[0] * 8], [-1.0, *[0] * 13])
    for before, paid in ((upright, 2.0 + 0.1 + 1.0 + 0.23), (rolled, -1.0 + 0.05 + 1.0 + 0.03)):
        assert float(env.reward(before, upright, jnp.ones(8))) == pytest.approx(paid, abs=1e-5)


def test_the_ant_has_fallen_below_27_centimetres() -> None:
    env = registry.make("Ant")
    heights = {height: motion([0, 0, height, 1, 0, 0, 0, *[0] * 8], [0] * 14) for height in (0.269, 0.271)}
    assert [bool(env.has_fallen(state)) for state in heights.values()] == [True, False]


@pytest.mark.parametrize(
    ("height", "pitch", "paid"),
    [
        (0.1, 0.0, 0.3 + 1.0),
        (-0.2, math.pi / 6, 0.1 + 0.0),
        (-0.4, 0.0, -200 * 0.01 + 1.0),
        (-2.0, 0.0, -200.0 + 1.0),
    ],
)
def test_the_hopper_is_paid_for_speed_height_and_angle(height: float, pitch: float, paid: float) -> None:
    env = registry.make("Hopper")
    before = motion([7.0, height, pitch, 0, 0, 0], [1.5, 0, 0, 0, 0, 0])
    action = jnp.asarray([1.0, -1.0, 0.5])
    assert float(env.reward(before, before, action)) == pytest.approx(1.5 + paid - 0.225, abs=1e-4)
    assert bool(env.has_fallen(before)) == (height < -0.45)
    np.testing.assert_allclose(env.observe(before, action), [height, pitch, 0, 0, 0, 1.5, 0, 0, 0, 0, 0], rtol=1e-6)


def test_the_swing_up_is_paid_for_a_still_upright_central_pole() -> None:
    env = registry.make("cartpole-swingup")
    aloft, hanging = motion([0, 0], [0, 0]), motion([0, math.pi], [0, 0])
    assert float(env.reward(hanging, aloft, jnp.zeros(1))) == pytest.approx(1.0)
    assert float(env.reward(aloft, hanging, jnp.zeros(1))) == pytest.approx(0.0, abs=1e-6)
    assert float(env.reward(hanging, aloft, jnp.ones(1))) == pytest.approx(0.8)
    assert float(env.reward(hanging, motion([2, 0], [0, 0]), jnp.zeros(1))) == pytest.approx(0.55)
    assert float(env.reward(hanging, motion([0, 0], [3, 5]), jnp.zeros(1))) == pytest.approx(0.55)
    tilted = env.observe(motion([0.5, 0.1], [3, 5]), jnp.zeros(1))
    np.testing.assert_allclose(tilted, [0.5, math.cos(0.1), math.sin(0.1), 3, 5], rtol=1e-6)


@pytest.mark.parametrize("task", ["cheetah-run", "walker-walk", "hopper-hop"])
def test_the_speed_is_that_of_the_centre_of_mass(task: str) -> None:
    env = registry.make(task)
    for data in wild_states(env, 4):
        np.testing.assert_allclose(env.speed(motion_of(data)), data.subtree_linvel[1, 0], atol=2e-5)


def test_a_shift_of_all_masses_leaves_the_centre_of_mass_where_it_was() -> None:
    env = registry.make("walker-walk")
    heavy = env.conditions()["mass_x1.5"].change(env.default_params())
    np.testing.assert_allclose(env.chain._replace(mass=np.asarray(heavy.mass)).centre(), env.chain.centre(), atol=1e-6)


def test_the_cheetah_sees_all_but_its_way_and_is_paid_a_tenth_of_its_speed() -> None:
    env = registry.make("cheetah-run")
    for speed, paid in ((5.0, 0.5), (12.0, 1.0), (-1.0, 0.0)):
        running = motion([100.0, *[0] * 8], [speed, *[0] * 8])
        assert float(env.reward(running, running, jnp.zeros(6))) == pytest.approx(paid)
    np.testing.assert_array_equal(env.observe(running, jnp.zeros(6)), [*[0] * 8, -1.0, *[0] * 8])


def test_the_walker_sees_orientations_height_and_velocity() -> None:
    env = registry.make("walker-walk")
    for data in wild_states(env, 3):
        seen = np.asarray(env.observe(motion_of(data), jnp.zeros(6)))
        rows = data.xmat.reshape(-1, 3, 3)[1:]
        np.testing.assert_allclose(seen[:14].reshape(7, 2), rows[:, 0, [0, 2]], atol=1e-5)
        np.testing.assert_allclose(seen[14], data.xpos[1, 2], atol=1e-5)
        np.testing.assert_allclose(seen[15:], data.qvel, rtol=1e-5, atol=1e-6)


def test_the_walker_is_paid_for_standing_and_walking() -> None:
    env = registry.make("walker-walk")
    still, at_half, walking = (motion([0.0] * 9, [0, speed, *[0] * 7]) for speed in (0.0, 0.5, 1.0))
    assert float(env.reward(still, still, ZERO)) == pytest.approx(1 / 6)
    assert float(env.reward(still, at_half, ZERO)) == pytest.approx((2.5 + 1) / 6)
    assert float(env.reward(still, walking, ZERO)) == pytest.approx(1.0)
    # Upside down at 0.7 m: neither upright nor high.
    flat = motion([-0.6, 0, math.pi, *[0.0] * 6], [0.0] * 9)
    high = 0.1 ** ((0.5 / 0.6) ** 2)
    assert float(env.reward(still, flat, ZERO)) == pytest.approx(0.75 * high / 6, rel=1e-4)


def test_the_suite_hopper_is_paid_for_speed_only_while_it_stands() -> None:
    env = registry.make("hopper-hop")
    straight, fast = motion([0.0] * 7, [0.0] * 7), motion([0.0] * 7, [1.0, *[0.0] * 6])
    assert float(env.reward(straight, straight, ZERO)) == 0.0
    assert float(env.reward(straight, fast, ZERO)) == pytest.approx(0.5)
    assert float(env.reward(straight, motion([0.0] * 7, [2.0, *[0.0] * 6]), ZERO)) == pytest.approx(1.0)
    on_its_head = motion([0, 0, math.pi, 0, 0, 0, 0], [2.0, *[0.0] * 6])
    assert float(env.reward(straight, on_its_head, ZERO)) == 0.0


def test_the_suite_hopper_measures_its_height_from_the_foot_and_feels_in_logarithms() -> None:
    env = registry.make("hopper-hop")
    for data in wild_states(env, 4):
        here = motion_of(data)
        np.testing.assert_allclose(env.height_over_foot(here), data.xipos[1, 2] - data.xipos[5, 2], atol=1e-5)
        np.testing.assert_allclose(env.observe(here, ZERO)[13:], np.log1p(data.sensordata), rtol=1e-5)


def test_the_cheetah_starts_settled_on_its_feet() -> None:
    env = registry.make("cheetah-run")
    positions, velocities = jax.vmap(env.start)(jax.random.split(jax.random.key(0), 16))
    assert float(jnp.abs(velocities).max()) < 1.0
    assert len(np.unique(np.asarray(positions), axis=0)) > 8
