"""Forward kinematics of a planar body in closed form: sums of levers rotated by the angles of its links.

MJX would compute its full kinematics for a height or a speed; a body in the x-z plane needs one sine per link.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array


class KinematicChain(NamedTuple):
    """A planar body with K links, the world first. NumPy constants, so that they fold into a compile.

    turns (K, Q): a link's angle about +y is `turns @ position`. levers (K, K, 2): a link's centre of mass is the root's
    place plus the sum over links k of levers[link, k] (x, z) turned by link k's angle; origins (K, K, 2) give the
    origin of the link's frame in the same way. mass (K,) kg.
    """

    turns: np.ndarray
    levers: np.ndarray
    origins: np.ndarray
    mass: np.ndarray

    def centre(self) -> np.ndarray:
        """The lever (K, 2) of the whole body's centre of mass, seen from the root's place."""
        return np.einsum("l,lkc->kc", self.mass, self.levers) / self.mass.sum()


def read_chain(model: Any) -> KinematicChain:
    """The chain of a MuJoCo model whose root slides along x and z and whose hinges turn about ±y."""
    links, joints = model.nbody, model.njnt
    assert np.allclose(model.body_quat, [1, 0, 0, 0]), "links lie along their parents' axes"
    turns = np.zeros((links, joints), np.float32)
    origins, levers = np.zeros((links, links, 2)), np.zeros((links, links, 2))
    for link in range(1, links):
        parent = model.body_parentid[link]
        turns[link], origins[link] = turns[parent], origins[parent]
        anchor = np.zeros(2)
        for joint in np.flatnonzero(model.jnt_bodyid == link):
            if model.jnt_type[joint] == _HINGE:
                turns[link, joint] = model.jnt_axis[joint, 1]
                anchor = model.jnt_pos[joint, [0, 2]]
        # The root's position is that of its slide joints; every other link is attached to its parent's frame.
        origins[link, parent] += (model.body_pos[link, [0, 2]] if parent else 0.0) + anchor
        origins[link, link] -= anchor
        levers[link] = origins[link]
        levers[link, link] += model.body_ipos[link, [0, 2]]
    return KinematicChain(*(part.astype(np.float32) for part in (turns, levers, origins, model.body_mass)))


def turned(lever: np.ndarray, angles: Array) -> tuple[Array, Array]:
    """x and z of the sum of levers (K, 2), each turned by its angle (K,) about +y."""
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    return cosine @ lever[:, 0] + sine @ lever[:, 1], cosine @ lever[:, 1] - sine @ lever[:, 0]


def turning_speed(lever: np.ndarray, angles: Array, rates: Array) -> Array:
    """How fast x of that sum changes while the angles turn at `rates` (K,)."""
    return (rates * jnp.cos(angles)) @ lever[:, 1] - (rates * jnp.sin(angles)) @ lever[:, 0]


# mujoco.mjtJoint.mjJNT_HINGE; this module does not import the package.
_HINGE = 3
