"""World-model RL as a study whose decision is supported by its evidence."""

from pathlib import Path
from typing import TYPE_CHECKING

from dreamproof.version import __version__

if TYPE_CHECKING:
    from dreamproof.api import StudyResults
    from dreamproof.evaluate.policy import Policy

__all__ = ["__version__", "load", "open_policy"]


def load(place: str | Path) -> "StudyResults":
    """The results of a study, by its folder or its file: tables as pandas DataFrames, and trained policies."""
    from dreamproof.api import load  # slow to import: NumPy and SciPy

    return load(place)


def open_policy(path: str | Path) -> "Policy":
    """The trained policy of a file that `dreamproof export STUDY FILE --policy ARM/SEED` wrote; needs `train`."""
    from dreamproof.evaluate.policy import open_policy  # imports JAX

    return open_policy(Path(path))
