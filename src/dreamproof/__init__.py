"""World-model RL as a study whose decision is supported by its evidence."""

__version__ = "0.1.0"
