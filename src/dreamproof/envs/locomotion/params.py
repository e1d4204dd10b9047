"""Parameters of a body that a shift may change: fields of its MuJoCo model as data."""

from typing import NamedTuple

from jax import Array


class BodyParams(NamedTuple):
    """Model fields, K bodies, V degrees of freedom, A motors, G geoms.

    mass (K,) kg and inertia (K, 3) kg m²; damping (V,); gear (A, 6), newton metres or newtons at an action of 1;
    friction (G, 3). body_yield (K, 2) and joint_yield (V,) are the inverse weights that scale how soft contacts and
    joint limits are; they follow the mass.
    """

    mass: Array
    inertia: Array
    body_yield: Array
    joint_yield: Array
    damping: Array
    gear: Array
    friction: Array
