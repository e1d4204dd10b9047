"""Scripted steering for NumPy and JAX arrays; the scripted policies use it."""

from typing import Any

import numpy

TURN_GAIN = 2.0
DRIVE_WITHIN_RADIANS = 1.0


def steer(ahead: Any, left: Any, arrays: Any = numpy) -> Any:
    """Actions (..., 2) towards a point in the body frame: turn to it, and drive at full force once it lies ahead."""
    bearing = arrays.arctan2(left, ahead)
    drive = arrays.where(arrays.abs(bearing) < DRIVE_WITHIN_RADIANS, 1.0, 0.0)
    turn = arrays.clip(TURN_GAIN * bearing, -1.0, 1.0)
    return arrays.stack([drive, turn], axis=-1)
