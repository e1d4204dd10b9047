"""Numbers as text: durations, bytes, money; the nearest option to a misspelt one; task names."""

import difflib
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

CURRENCY_SIGNS = {"CNY": "¥", "USD": "$", "EUR": "€", "GBP": "£", "JPY": "JP¥"}
NAMED_CONDITIONS = 3
"""Conditions that a line names; more of them are counted."""


def duration_text(seconds: float | None) -> str:
    """12 s, 3 min 20 s, 2 h 5 min, 3 d 4 h; a dash if unknown."""
    if seconds is None or seconds != seconds:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def quoted(word: object) -> str:
    """A path or name as a shell takes it: in quotation marks where it has spaces or the like."""
    return shlex.quote(str(word))


def bytes_text(count: float | None) -> str:
    """512 B, 1.5 MiB, 12.0 GiB; a dash if unknown."""
    if count is None:
        return "–"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def money_text(amount: float | None, currency: str | None, decimals: int = 2) -> str:
    """¥38.20; other currencies keep their code: 38.20 CHF; a dash if the amount is unknown."""
    return "–" if amount is None else _with_currency(f"{amount:.{decimals}f}", currency)


def _with_currency(number: str, currency: str | None) -> str:
    sign = CURRENCY_SIGNS.get(currency or "")
    return f"{sign}{number}" if sign else f"{number} {currency}" if currency else number


def two_digits(value: float | None) -> str:
    """9,500, 320, 5.0, 0.42: a forecast with two digits; a dash if unknown."""
    if value is None or not math.isfinite(value):
        return "–"
    power = math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, 1 - power):,.{max(0, 1 - power)}f}"


def estimate_text(amount: float | None, currency: str | None) -> str:
    """¥9,500: money that is still to be paid, with two digits."""
    number = two_digits(amount)
    return number if amount is None else _with_currency(number, currency)


def count_text(count: int, singular: str, plural: str | None = None) -> str:
    """1 cell, 3 cells."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def split_task(task: str) -> tuple[str, str]:
    """(source, name) of a task: `FILE.py:NAME`, `package.module:NAME`, or a plain `NAME` with an empty source."""
    source, _, name = task.rpartition(":")
    return source, name


def repeated(names: Sequence[str]) -> list[str]:
    """The names that are there more than once, in alphabetical order."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def nearest_word(word: str, options: Iterable[str]) -> str | None:
    """The option nearest to `word`, if any is close."""
    found = difflib.get_close_matches(word, list(options), n=1, cutoff=0.5)
    return found[0] if found else None


def shown_conditions(names: Sequence[str]) -> Sequence[str]:
    """The names of a few conditions, or how many they are."""
    return names if len(names) <= NAMED_CONDITIONS else [f"{len(names)} conditions"]
