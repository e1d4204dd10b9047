"""World-model RL as a study whose decision is supported by its evidence."""

from pathlib import Path
from typing import TYPE_CHECKING

from dreamproof.version import __version__

if TYPE_CHECKING:
    from dreamproof.api import StudyResults

__all__ = ["__version__", "load"]


def load(place: str | Path) -> "StudyResults":
    """The results of a study, by its folder or its file: tables as pandas DataFrames, and trained policies."""
    from dreamproof.api import load  # slow to import: NumPy and SciPy

    return load(place)
