"""Rounds numbers by their uncertainty, so that no digit is printed that the data do not support."""

import math

TWO_DIGITS_BELOW = 3.55  # the rule of the Particle Data Group: 1.00 to 3.54 keep two digits, 3.55 to 9.49 one
NEXT_POWER_FROM = 9.5


def uncertain_decimals(uncertainty: float) -> int:
    """Decimals that show one or two digits of an uncertainty; negative for tens, hundreds and so on."""
    power = math.floor(math.log10(uncertainty))
    leading = uncertainty / 10.0**power
    if leading >= NEXT_POWER_FROM:
        power, leading = power + 1, 1.0
    return (1 if leading < TWO_DIGITS_BELOW else 0) - power


def round_by(text: str, value: float | None, uncertainty: float | None) -> str:
    """The text of a value with as many digits as its uncertainty allows, never more than it has; its sign is kept."""
    if value is None or not uncertainty or not (math.isfinite(value) and math.isfinite(uncertainty)):
        return text
    if "e" in text:
        return _powered(text, value, uncertainty)
    decimals = min(uncertain_decimals(uncertainty), len(text.partition(".")[2]))
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
