"""The set of entities around the robot: how each of them moves, and what the worst of them costs.

Networks of single entities have short inputs and run without norms, in float32. Without a gradient, on a GPU that can,
they run as the kernels of `entity_kernels`.
"""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.dreamer import entity_kernels
from dreamproof.agents.dreamer.entity_kernels import Shape
from dreamproof.jaxcore.kernels import can_run_kernels
from dreamproof.nn.layers import Linear, Plain, narrow_product

DANGER_CONTEXT = 8
DANGER_UNITS = 32
ENTITY_REACH = 2.0


def split_types(entities: Array, types: int) -> tuple[Array, Array]:
    """Positions (..., W − types) and types (..., types) of entities (..., W)."""
    width = entities.shape[-1] - types
    return entities[..., :width], entities[..., width:]


def placed(entities: Array, types: int = 0) -> Array:
    """(..., W) → (..., W + 1): clipped position of an entity, its distance, and its type."""
    position, kind = split_types(entities, types)
    near = jnp.clip(position, -ENTITY_REACH, ENTITY_REACH)
    return jnp.concatenate([near, jnp.sqrt(narrow_product(near, near[..., None]) + 1e-6), kind], axis=-1)


def nearer(entities: Array, metres: Array | float, types: int = 0) -> Array:
    """Entities (..., J, W) moved closer by `metres`, at most to the origin; 0 metres changes no bit."""
    position, kind = split_types(entities, types)
    distance = jnp.sqrt(narrow_product(position, position[..., None])) + 1e-6
    factor = jnp.maximum(0.0, 1.0 - jnp.asarray(metres)[..., None, None] / distance)
    return jnp.concatenate([position * factor, kind], axis=-1)


def entity_error(expected: Array, seen: Array, types: int = 0) -> Array:
    """Squared error of each entity's position (..., J), relative to its distance: a turn moves distant ones further."""
    (predicted, _), (true, _) = split_types(expected, types), split_types(seen, types)
    return ((predicted - true) ** 2).sum(-1) / (1.0 + (true**2).sum(-1))


def _backward(*given: Any) -> Any:
    """The gradient of the plain networks; what is static comes first."""
    *_, pull_back, cotangent = given
    return pull_back(cotangent)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def extreme(network: Plain, entities: Array, shared: Array | None, types: int, lowest: bool) -> Array:
    """The highest or lowest output (..., F) of a network for one of the entities (..., J, W).

    shared: inputs (..., S) that all entities of a row have in common.
    """
    if not (can_run_kernels() and entity_kernels.fits(network.layers)):
        return _extreme(network, entities, shared, types, lowest)
    added = None if shared is None else network.layers[0].trailing(shared)
    shape = Shape(entities.shape[-2], entities.shape[-1], types)
    return entity_kernels.extreme(network.layers, entities, added, shape, ENTITY_REACH, lowest)


def _extreme(network: Plain, entities: Array, shared: Array | None, types: int, lowest: bool) -> Array:
    outputs = network(placed(entities, types), None if shared is None else shared[..., None, :])
    return outputs.min(-2) if lowest else outputs.max(-2)


def _extreme_forward(
    network: Plain, entities: Array, shared: Array | None, types: int, lowest: bool
) -> tuple[Array, Callable[[Array], Any]]:
    return jax.vjp(functools.partial(_extreme, types=types, lowest=lowest), network, entities, shared)


extreme.defvjp(_extreme_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def moved(place: Linear, residual: Linear, driven: Array, entities: Array, types: int) -> Array:
    """The entities (..., J, W) after a step: one affine map for all, plus a residual of each.

    driven (..., M·(M + 1) + U): the map, then what the state adds to the hidden layer of the residuals.
    """
    shape = Shape(entities.shape[-2], entities.shape[-1], types)
    if can_run_kernels() and entity_kernels.fits([place]):
        return entity_kernels.moved(driven, place, residual, entities, shape)
    return _moved(place, residual, driven, entities, types)


def _moved(place: Linear, residual: Linear, driven: Array, entities: Array, types: int) -> Array:
    position, kind = split_types(entities, types)
    width = position.shape[-1]
    maps = width * (width + 1)
    affine = driven[..., :maps].reshape(*driven.shape[:-1], width + 1, width)
    shared = narrow_product(position, affine[..., None, :width, :]) + affine[..., width:, :]
    special = residual(jax.nn.silu(place(entities) + driven[..., None, maps:]))
    return jnp.concatenate([position + shared + special, kind], axis=-1)


def _moved_forward(
    place: Linear, residual: Linear, driven: Array, entities: Array, types: int
) -> tuple[Array, Callable[[Array], Any]]:
    return jax.vjp(functools.partial(_moved, types=types), place, residual, driven, entities)


moved.defvjp(_moved_forward, _backward)


class Entities(eqx.Module):
    """Motion, embedding, cost and margin of a set of entities; `types` of their values do not change.

    drive: an affine map of positions, and the state's part of the hidden layer of each entity's residual.
    """

    drive: Linear
    place: Linear
    residual: Linear
    embed: Plain
    speed: Linear
    danger: Plain
    nearness: Plain
    types: int = eqx.field(static=True)

    def __init__(self, key: Array, sizes: tuple[int, int], state_size: int, units: int, costs: int) -> None:
        keys = jax.random.split(key, 8)
        width, self.types = sizes
        moving = width - self.types
        maps = Linear(keys[0], state_size, moving * (moving + 1), scale=0.01)
        context = Linear(keys[1], state_size, units)
        self.drive = jax.tree.map(lambda *parts: jnp.concatenate(parts, -1), maps, context)
        self.place = Linear(keys[2], width, units)
        self.residual = Linear(keys[3], units, moving, scale=0.01)
        self.embed = Plain(keys[4], (width + 1, DANGER_UNITS, units))
        self.speed = Linear(keys[5], state_size, DANGER_CONTEXT)
        self.danger = Plain(keys[6], (width + 1 + DANGER_CONTEXT, DANGER_UNITS, DANGER_UNITS, costs))
        self.nearness = Plain(keys[7], (width + 1, DANGER_UNITS, DANGER_UNITS, 1))

    def move(self, state: Array, entities: Array) -> Array:
        """The entities (..., J, W) after a step."""
        return moved(self.place, self.residual, self.drive(state), entities, self.types)

    def pool(self, entities: Array) -> Array:
        """(..., J, W) → (..., units): max-pooled embedding of the entities."""
        return extreme(self.embed, entities, None, self.types, False)

    def cost_logits(self, state: Array, entities: Array) -> Array:
        """(..., C): logits of the costs of the worst entity in this step."""
        return extreme(self.danger, entities, self.speed(state), self.types, False)

    def margin(self, entities: Array) -> Array:
        """(...): margin to the nearest entity."""
        return extreme(self.nearness, entities, None, self.types, True)[..., 0]
