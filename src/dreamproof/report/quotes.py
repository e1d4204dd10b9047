"""Recorded texts in the reader's language: what this program wrote is translated, a trainer's own lines are quoted."""

import re
from functools import lru_cache

from dreamproof.base.text import duration_text
from dreamproof.report.language import Texts, read_texts

PREFIX = "quote."
UNITS = re.compile(r"(?<=\d )(d|h|min|s)\b")


def translated(text: str, texts: Texts) -> str:
    """A recorded text; the English catalogue has the forms in which the program writes such texts."""
    if not texts.chinese:
        return text
    for key, pattern in _patterns():
        found = pattern.fullmatch(text)
        if found is not None:
            return texts(key, **{name: _part(name, value, texts) for name, value in found.groupdict().items()})
    return text


def _part(name: str, value: str, texts: Texts) -> str:
    """A part of a recorded text: a cause by its name, a duration with its units, anything else again as a text."""
    if name == "cause":
        return texts.or_itself("cause", value)
    return local_units(value, texts) if name in ("time", "limit") else translated(value, texts)


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Key and pattern of every form, the longest first."""
    forms = {key: text for key, text in read_texts("en").entries.items() if key.startswith(PREFIX)}
    ordered = sorted(forms, key=lambda key: -len(forms[key]))
    return [(key, re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(forms[key])), re.S)) for key in ordered]


def local_units(text: str, texts: Texts) -> str:
    """2 h 5 min with the units of the language."""
    return UNITS.sub(lambda found: texts(f"unit.{found[1]}"), text)


def local_duration(seconds: float | None, texts: Texts) -> str:
    """A duration in the language of the reader."""
    return local_units(duration_text(seconds), texts)
