"""The trail of one evaluated episode, for tasks that can be rendered."""

from typing import Any

import jax
import numpy as np
from jax import Array

from dreamproof.envs.api import Env
from dreamproof.jaxcore.types import TimeStep
from dreamproof.runs.records import Trail

DECIMALS = 3
NEEDED = ("agent", "goal", "goal_radius", "hazards", "hazard_radius")
OPTIONAL = ("vases", "vase_size")


def places_of_first(env: Env, state: Any, seen: TimeStep, params: Any, episodes: int) -> dict[str, Array]:
    """Positions in the first env of each replica (R, ...), and the cost of the step into them.

    Empty if the task cannot be rendered.
    """
    places = env.render_state(state, params)
    if not set(NEEDED) <= set(places):
        return {}
    shown = {name: places[name] for name in (*NEEDED, *OPTIONAL) if name in places}
    return jax.tree.map(lambda x: x[::episodes], shown | {"cost": seen.cost})


def as_trail(places: dict[str, Array]) -> Trail | None:
    """The record of positions (T, ...); hazards do not move, absent ones are left out."""
    if not places:
        return None
    found = {name: np.round(np.asarray(value, np.float64), DECIMALS) for name, value in places.items()}
    hazards, vases = found["hazards"][0], found.get("vases")
    return Trail(
        agent=_pairs(found["agent"]),
        goal=_pairs(found["goal"]),
        goal_radius=float(found["goal_radius"][0]),
        hazards=_pairs(hazards[np.isfinite(hazards).all(-1)]),
        hazard_radius=float(found["hazard_radius"][0]),
        vases=[] if vases is None else [_moves(way) for way in vases.swapaxes(0, 1)],
        vase_size=float(found["vase_size"][0]) if vases is not None and vases.shape[1] else 0.0,
        cost=[float(value) for value in found["cost"]],
    )


def _moves(way: np.ndarray) -> list[tuple[int, float, float]]:
    """The first place of a way (T, 2), and each that differs from the one before it, with its step."""
    new = np.flatnonzero((way[1:] != way[:-1]).any(-1)) + 1
    return [(int(step), float(way[step, 0]), float(way[step, 1])) for step in (0, *new)]


def _pairs(places: np.ndarray) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in places]
