"""How arrays lie in memory."""

from jax import Array
from jax.experimental.layout import Layout, with_layout_constraint


def in_rows(x: Array) -> Array:
    """`x` with its last axis innermost in memory, as norms need it, whatever layout a later product prefers."""
    return with_layout_constraint(x, Layout(tuple(range(x.ndim))))
