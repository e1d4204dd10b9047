"""World-model RL as a study whose decision is supported by its evidence."""

from dreamproof.version import __version__

__all__ = ["__version__"]
