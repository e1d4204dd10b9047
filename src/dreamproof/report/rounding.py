"""Rounds numbers by their uncertainty, so that no digit is printed that the data do not support."""

import math
from collections.abc import Iterable

MAX_DIGITS = 15
TWO_DIGITS_BELOW = 3.55  # the rule of the Particle Data Group: 1.00 to 3.54 keep two digits, 3.55 to 9.49 one
NEXT_POWER_FROM = 9.5


def uncertain_decimals(uncertainty: float) -> int:
    """Decimals that show one or two digits of an uncertainty; negative for tens, hundreds and so on."""
    power = math.floor(math.log10(uncertainty))
    leading = uncertainty / 10.0**power
    if leading >= NEXT_POWER_FROM:
        power, leading = power + 1, 1.0
    return (1 if leading < TWO_DIGITS_BELOW else 0) - power


def same_side(shown: float, value: float, beside: Iterable[float]) -> bool:
    """Whether a value as it is shown lies below, at or above each of the others as the value itself does."""
    return all((shown > other) == (value > other) and (shown < other) == (value < other) for other in beside)


def digits_apart(larger: float, smaller: float, digits: int, form: str = "f") -> int:
    """So many digits, at least `digits`, that the larger of two numbers is also shown as the larger one."""
    for more in range(digits, MAX_DIGITS):
        if float(f"{larger:.{more}{form}}") > float(f"{smaller:.{more}{form}}"):
            return more
    return digits


def exact_text(value: float) -> str:
    """A declared number with all of its digits."""
    return f"{value:.{MAX_DIGITS}g}"


def round_by(text: str, value: float | None, uncertainty: float | None, beside: Iterable[float] = ()) -> str:
    """The text of a value with as many digits as its uncertainty allows, never more than it has; its sign is kept.

    It has more digits where it would otherwise be shown on another side of a number `beside` it.
    """
    if value is None or not uncertainty or not (math.isfinite(value) and math.isfinite(uncertainty)):
        return text
    if "e" in text:
        return _powered(text, value, uncertainty)
    most = len(text.partition(".")[2])
    decimals = min(uncertain_decimals(uncertainty), most)
    while decimals < most and not same_side(round(value, decimals), value, beside):
        decimals += 1
    shown = f"{round(value, decimals):.{max(0, decimals)}f}"
    if float(shown) == 0:
        return shown.lstrip("-")
    return ("+" if text.startswith("+") else "") + shown.replace("-", "−")


def _powered(text: str, value: float, uncertainty: float) -> str:
    """The same for a text in powers of ten: 4.9e+12 for 4.863e12 with an uncertainty of 3e11."""
    power = math.floor(math.log10(abs(value)))
    most = len(text.partition("e")[0].partition(".")[2])
    decimals = min(most, max(0, uncertain_decimals(uncertainty) + power))
    return ("+" if text.startswith("+") else "") + f"{value:.{decimals}e}".replace("-", "−")
