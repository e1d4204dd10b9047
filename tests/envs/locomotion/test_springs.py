"""Ground and joint limits as springs, against numbers computed by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from dreamproof.envs import registry
from dreamproof.envs.locomotion.springs import Springs, ground_force, limit_torque
from dreamproof.envs.locomotion.task import Locomotion

pytestmark = pytest.mark.optimised

ANTS = Springs(stiffness=4e4, damping=1e4, grip=3e3, limit=1e3)


def force(height: float, velocity: list[float], friction: float = 0.75) -> np.ndarray:
    """On one ball."""
    lowest, moving = jnp.array([[5.0, -3.0, height]]), jnp.array([velocity])
    return np.asarray(ground_force(ANTS, lowest, moving, jnp.array([friction])))[0]


@pytest.mark.parametrize(
    ("height", "velocity", "expected"),
    [
        pytest.param(0.01, [1.0, 1.0, -5.0], [0.0, 0.0, 0.0], id="in the air"),
        pytest.param(-0.01, [0.0, 0.0, 0.0], [0.0, 0.0, 400.0], id="a centimetre deep"),
        pytest.param(-0.01, [0.0, 0.0, -2.0], [0.0, 0.0, 600.0], id="sinking is damped"),
        pytest.param(-0.01, [0.0, 0.0, 2.0], [0.0, 0.0, 400.0], id="rising is not"),
        pytest.param(-0.01, [0.05, 0.0, 0.0], [-150.0, 0.0, 400.0], id="slow slips are held in proportion"),
        pytest.param(-0.01, [3.0, -4.0, 0.0], [-180.0, 240.0, 400.0], id="fast ones by friction"),
        pytest.param(-0.01, [3.0, -4.0, -2.0], [-180.0, 240.0, 600.0], id="and damping does not add to that"),
    ],
)
def test_the_ground_pushes_and_holds(height: float, velocity: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(force(height, velocity), expected, rtol=1e-5, atol=1e-3)


def test_half_the_friction_holds_half_as_fast_a_slip() -> None:
    np.testing.assert_allclose(force(-0.01, [6.0, 0.0, 0.0], 0.375), [-150.0, 0.0, 400.0], rtol=1e-5)


def test_limits_turn_back_what_is_beyond_them_and_nothing_else() -> None:
    lower, upper = jnp.full(3, -0.5), jnp.full(3, 0.25)
    torque = limit_torque(ANTS, jnp.array([-0.6, 0.0, 0.45]), lower, upper)
    np.testing.assert_allclose(torque, [100.0, 0.0, -200.0], rtol=1e-5)


def test_the_ant_stands_on_springs_and_the_others_on_mujocos_contacts() -> None:
    found = {}
    for task in ("Ant", "Hopper", "cheetah-run"):
        env = registry.make(task)
        assert isinstance(env, Locomotion)
        found[task] = env.body.springs
    assert found == {"Ant": ANTS, "Hopper": None, "cheetah-run": None}
