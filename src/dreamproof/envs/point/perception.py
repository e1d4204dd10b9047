"""Perturbation of observations by a shift: ghosts, missed hazards, noise, dropout, delay.

Reward, cost and margin are not affected.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.point.params import GHOST_CAPACITY, PARKED, Hallucination, PointParams, Sensors

LONGEST_DELAY = 2


class Perception(NamedTuple):
    """Memory of one env: ghosts (3, 2), remaining frames, missed slots (S,), earlier observations."""

    ghosts: Array
    ghost_left: Array
    ghost_slots: Array
    missed: Array
    miss_left: Array
    shown_hazards: Array
    shown: Array


class NoiseDraws(NamedTuple):
    """The random numbers of one frame: uniform ones for events, standard normal ones for errors."""

    events: Array
    drop: Array
    ghost_place: Array
    ghost_order: Array
    miss_order: Array
    place_error: Array
    goal_error: Array
    number_error: Array


def init_perception(hazard_slots: int, observation_size: int) -> Perception:
    """The initial memory."""
    return Perception(
        ghosts=jnp.zeros((GHOST_CAPACITY, 2)),
        ghost_left=jnp.zeros((), jnp.int32),
        ghost_slots=jnp.zeros(hazard_slots, jnp.int32),
        missed=jnp.zeros(hazard_slots, bool),
        miss_left=jnp.zeros((), jnp.int32),
        shown_hazards=jnp.zeros((hazard_slots, 2)),
        shown=jnp.zeros((LONGEST_DELAY, observation_size)),
    )


def is_shifted(params: PointParams, hazard_slots: int) -> Array:
    """Whether anything between state and observation differs from training, in any env."""
    sensors, hallucination = params.sensors, params.hallucination
    amounts = [sensors.noise, sensors.place_noise, sensors.dropout, sensors.delay]
    amounts += [hallucination.ghost_chance, hallucination.miss_chance]
    shifted = [jnp.any(amount > 0) for amount in amounts]
    return jnp.any(jnp.stack([*shifted, jnp.any(params.layout.hazards > hazard_slots)]))


def nearest_slots(squares: Array, slots: int) -> Array:
    """Which objects (slots,) are shown, the nearest by squared distance (O,); each keeps its own slot if possible."""
    if slots == squares.size:
        return jnp.arange(slots)
    rank = jnp.sum(squares[None] < squares[:, None], axis=1)
    is_near = rank < slots
    own, others = is_near[:slots], is_near[slots:]
    # The k-th slot whose owner is too far shows the k-th object without a slot.
    vacancy, claim = jnp.cumsum(~own), jnp.cumsum(others)
    match = (claim[None] == vacancy[:, None]) & others[None]
    return jnp.where(own, jnp.arange(slots), slots + jnp.argmax(match, axis=1))


def draw_noise(key: Array, hazard_slots: int, shown_slots: int, observation_size: int) -> NoiseDraws:
    """All random numbers of a frame from one draw; every call of a generator adds compile time."""
    sizes = (4, 1, 2 * GHOST_CAPACITY, hazard_slots, hazard_slots)
    errors = (2 * shown_slots, 2, observation_size)
    # Zero would become minus infinity as a normal variate.
    smallest = float(np.finfo(np.float32).eps)
    draw = jax.random.uniform(key, (sum(sizes) + sum(errors),), minval=smallest, maxval=1.0)
    starts = np.cumsum((*sizes, *errors))[:-1].tolist()
    events, drop, place, ghost_order, miss_order, *rest = jnp.split(draw, starts)
    normal = [jax.scipy.special.ndtri(part) for part in rest]
    return NoiseDraws(
        events=events,
        drop=drop[0],
        ghost_place=2.0 * place.reshape(GHOST_CAPACITY, 2) - 1.0,
        ghost_order=ghost_order,
        miss_order=miss_order,
        place_error=normal[0].reshape(shown_slots, 2),
        goal_error=normal[1],
        number_error=normal[2],
    )


def hallucinate(
    noise: NoiseDraws, perception: Perception, is_present: Array, place: Array, settings: Hallucination
) -> Perception:
    """Starts and ends ghosts and misses for this frame; `is_present` (S,): slots that hold a hazard."""
    ghost_left, ghost_starts = _event(
        noise.events[:2], perception.ghost_left, settings.ghost_chance, (settings.ghost_min, settings.ghost_max)
    )
    miss_left, miss_starts = _event(
        noise.events[2:], perception.miss_left, settings.miss_chance, (settings.miss_min, settings.miss_max)
    )
    drawn = place + noise.ghost_place * settings.ghost_reach
    chosen = (_ranks(noise.miss_order, is_present) < settings.misses) & is_present
    return perception._replace(
        ghosts=jnp.where(ghost_starts, drawn, perception.ghosts),
        ghost_left=ghost_left,
        ghost_slots=jnp.where(ghost_starts, _ranks(noise.ghost_order, is_present), perception.ghost_slots),
        missed=jnp.where(miss_starts, chosen, perception.missed) & (miss_left > 0),
        miss_left=miss_left,
    )


def _event(noise: Array, left: Array, chance: Array, frames: tuple[Array, Array]) -> tuple[Array, Array]:
    """Remaining frames of an event, including this one, and whether it starts here."""
    shortest, longest = frames
    running = left > 1
    starts = (~running) & (noise[0] < chance)
    length = jnp.minimum(shortest + jnp.floor(noise[1] * (longest - shortest + 1)).astype(jnp.int32), longest)
    return jnp.where(running, left - 1, jnp.where(starts, length, 0)), starts


def _ranks(noise: Array, is_present: Array) -> Array:
    """A random rank (S,) of every slot, absent ones last."""
    draw = noise + jnp.where(is_present, 0.0, 1.0)
    return jnp.sum(draw[None] < draw[:, None], axis=1).astype(jnp.int32)


def shown_hazards(
    perception: Perception, hazards: Array, ghosts_ego: Array, ghost_slots: int, settings: Hallucination
) -> Array:
    """Hazards (S + ghost slots, 2) as this frame shows them in the body frame."""
    parked = jnp.asarray(PARKED)
    original = settings.original > 0
    active = (jnp.arange(GHOST_CAPACITY) < settings.ghosts) & (perception.ghost_left > 0)
    # The original definition used (0, 0) for a miss, which in the body frame is a hazard under the robot.
    absent = jnp.where(original, 0.0, jnp.where(settings.held > 0, perception.shown_hazards, parked))
    real = jnp.where(perception.missed[:, None], absent, hazards)
    # It also wrote world coordinates into body-frame slots, over real hazards.
    taken = jnp.minimum(perception.ghost_slots, GHOST_CAPACITY - 1)
    overwritten = original & (perception.ghost_slots < GHOST_CAPACITY) & active[taken]
    real = jnp.where(overwritten[:, None], perception.ghosts[taken], real)
    extra = jnp.where((active & ~original)[:, None], ghosts_ego, parked)[:ghost_slots]
    return jnp.concatenate([real, extra])


def disturb(
    noise: NoiseDraws, perception: Perception, observation: Array, first: Array, sensors: Sensors
) -> tuple[Array, Array]:
    """The observation after noise, dropout and delay, and the queue (2, O) of earlier ones."""
    noisy = observation + sensors.noise * noise.number_error
    sensed = jnp.where((noise.drop < sensors.dropout) & ~first, perception.shown[0], noisy)
    before = jnp.where(first, sensed, perception.shown)
    line = jnp.concatenate([sensed[None], before])
    return line[sensors.delay], line[:LONGEST_DELAY]


def misplace(noise: NoiseDraws, points: Array, sensors: Sensors) -> Array:
    """Body-frame points (P, 2) with Gaussian error in metres; empty slots stay parked."""
    is_parked = jnp.all(points == jnp.asarray(PARKED), axis=-1, keepdims=True)
    return jnp.where(is_parked, points, points + sensors.place_noise * noise.place_error)
