"""Placement of robot, goals, hazards and vases: rejection sampling by keep-out distances, as in the official task."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from dreamproof.envs.point.params import HAZARD_CAPACITY, Layout

TRIES = 64
GOAL_CANDIDATES = 128
FAR = 100.0


class GoalBank(NamedTuple):
    """Candidate goals (G,) of one episode in metres, their clearance to hazards (G,), and the index of the next one.

    Hazards do not move, so one bank drawn at reset replaces random draws in every step: taking the first candidate
    that also clears robot and vases is the same rejection sampling.
    """

    x: Array
    y: Array
    clearance: Array
    following: Array


class InitialLayout(NamedTuple):
    """A drawn layout of one env; hazards (16, 2), the absent ones far away; vases (V, 2) and their headings (V,)."""

    agent: Array
    heading: Array
    hazards: Array
    vases: Array
    vase_headings: Array
    bank: GoalBank


def distance(first: Array, second: Array) -> Array:
    """Euclidean distance over the last axis."""
    difference = first - second
    return jnp.sqrt(difference[..., 0] ** 2 + difference[..., 1] ** 2)


def draw_placement(key: Array, layout: Layout, vases: int) -> InitialLayout:
    """Places robot, a temporary goal that is redrawn at once, hazards and vases, in the official order."""
    present = jnp.arange(HAZARD_CAPACITY) < layout.hazards
    hazard_keepouts = jnp.full(HAZARD_CAPACITY, layout.hazard_keepout)
    first_keepouts = jnp.stack([layout.agent_keepout, layout.goal_keepout])
    keepouts = jnp.concatenate([first_keepouts, hazard_keepouts, jnp.full(vases, layout.vase_keepout)])
    wanted = jnp.concatenate([jnp.ones(2, bool), present, jnp.ones(vases, bool)])
    tries, goals = keepouts.size * 2 * TRIES, 2 * GOAL_CANDIDATES
    units = jax.random.uniform(key, (tries + goals + 1 + vases,), minval=-1.0, maxval=1.0)
    candidates = units[:tries].reshape(keepouts.size, 2, TRIES) * (layout.extent - keepouts)[:, None, None]
    places = _place_in_order(candidates, keepouts, wanted)
    hazards = places[2 : 2 + HAZARD_CAPACITY]
    bank = _make_bank(units[tries : tries + goals].reshape(2, GOAL_CANDIDATES), hazards, layout)
    angles = units[tries + goals :] * jnp.pi
    return InitialLayout(places[0], angles[0], hazards, places[-vases:], angles[1:], bank)


def _place_in_order(candidates: Array, keepouts: Array, wanted: Array) -> Array:
    """Puts every object at its first candidate that is clear of all earlier ones; at the best one if none is."""
    # Objects not placed yet are far away, so the comparison has a fixed size.
    start = jnp.full((2, keepouts.size), FAR)

    def put(places: Array, stage: tuple[Array, ...]) -> tuple[Array, Array]:
        tried, keepout, is_wanted, index = stage
        clearance = _clearance(tried[0], tried[1], places, keepouts + keepout)
        chosen = jnp.where(is_wanted, tried[:, _first_clear(clearance)], FAR)
        return places.at[:, index].set(chosen), chosen

    _, places = lax.scan(put, start, (candidates, keepouts, wanted, jnp.arange(keepouts.size)))
    return places


def _clearance(x: Array, y: Array, places: Array, keepouts: Array) -> Array:
    """How far points (P,) clear their keep-outs (K,) around places (2, K), in metres; negative where violated."""
    # Points are on the last axis, which a CPU vectorises.
    squares = (x[None] - places[0][:, None]) ** 2 + (y[None] - places[1][:, None]) ** 2
    return jnp.min(jnp.sqrt(squares) - keepouts[:, None], axis=0)


def _first_clear(clearance: Array, turn: Array | None = None) -> Array:
    """The index whose turn (its own index if left out) is first among the clear ones, else the smallest violation."""
    # Integer minima, because an argmax does not vectorise on a CPU.
    index = jnp.arange(clearance.size, dtype=jnp.int32)
    last = jnp.int32(clearance.size)
    soonest = jnp.min(jnp.where(clearance >= 0, index if turn is None else turn, last))
    best = jnp.min(jnp.where(clearance == jnp.max(clearance), index, last - 1))
    found = soonest if turn is None else jnp.min(jnp.where(turn == soonest, index, last - 1))
    return jnp.where(soonest < last, found, best)


def _make_bank(units: Array, hazards: Array, layout: Layout) -> GoalBank:
    place = units * (layout.extent - layout.goal_keepout)
    keepouts = jnp.full(HAZARD_CAPACITY, layout.goal_keepout + layout.hazard_keepout)
    clearance = _clearance(place[0], place[1], hazards.T, keepouts)
    return GoalBank(place[0], place[1], clearance, jnp.zeros((), jnp.int32))


def take_goal(bank: GoalBank, agent: Array, vases: Array, layout: Layout) -> tuple[Array, GoalBank]:
    """The next goal (2,) that clears hazards, robot and vases (V, 2); the bank is cyclic."""
    of_vases = jnp.full(len(vases), layout.vase_keepout)
    keepouts = layout.goal_keepout + jnp.concatenate([layout.agent_keepout[None], of_vases])
    nearby = _clearance(bank.x, bank.y, jnp.concatenate([agent[None], vases]).T, keepouts)
    turn = (jnp.arange(GOAL_CANDIDATES, dtype=jnp.int32) - bank.following) % GOAL_CANDIDATES
    chosen = _first_clear(jnp.minimum(bank.clearance, nearby), turn)
    goal = jnp.stack([bank.x[chosen], bank.y[chosen]])
    return goal, bank._replace(following=(chosen + 1) % GOAL_CANDIDATES)
