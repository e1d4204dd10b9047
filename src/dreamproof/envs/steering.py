"""Scripted steering for NumPy and JAX arrays; the scripted policies use it."""

from typing import Any

import numpy

TURN_GAIN = 2.0
DRIVE_WITHIN_RADIANS = 1.0
WHEEL_COMMAND = 0.02


def steer(ahead: Any, left: Any, arrays: Any = numpy) -> Any:
    """Actions (..., 2) towards a point in the body frame: turn to it, and drive at full force once it lies ahead."""
    bearing = arrays.arctan2(left, ahead)
    drive = arrays.where(arrays.abs(bearing) < DRIVE_WITHIN_RADIANS, 1.0, 0.0)
    turn = arrays.clip(TURN_GAIN * bearing, -1.0, 1.0)
    return arrays.stack([drive, turn], axis=-1)


def steer_wheels(ahead: Any, left: Any, arrays: Any = numpy) -> Any:
    """The same for a car: commands (..., 2) of its wheels, the one on the right first; they saturate at 2 %."""
    wanted = steer(ahead, left, arrays)
    drive, turn = wanted[..., 0], wanted[..., 1]
    return WHEEL_COMMAND * arrays.stack([drive + turn, drive - turn], axis=-1)
