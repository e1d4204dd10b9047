"""Rotations of free bodies."""

import jax.numpy as jnp
from jax import Array


def rotation_matrix(quaternion: Array) -> Array:
    """The rotation (3, 3) of a quaternion (w, x, y, z) of any non-zero length."""
    w, x, y, z = quaternion / jnp.linalg.norm(quaternion)
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
