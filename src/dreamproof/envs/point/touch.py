"""How far the point robot is from a vase: a sphere and a cube against an upright box, seen from above.

For NumPy and JAX arrays; `vase` has x, y and heading, `body` as well, and they broadcast.
"""

from typing import Any, NamedTuple

HALF_SIZE = 0.1
SPHERE_RADIUS = 0.1
CUBE_HALF_SIZE = 0.05
CUBE_AHEAD = 0.1


class Overlap(NamedTuple):
    """How deep (m) the robot is in a vase, negative for a gap; the push's world direction, and where it acts."""

    depth: Any
    normal_x: Any
    normal_y: Any
    at_x: Any
    at_y: Any


def gap(vase: Any, body: Any, arrays: Any) -> Any:
    """Metres between robot and vase, negative for an overlap; of two corners a lower bound."""
    return -arrays.maximum(sphere_overlap(vase, body, arrays).depth, cube_overlap(vase, body, arrays).depth)


def sphere_overlap(vase: Any, body: Any, arrays: Any) -> Overlap:
    """Of the robot's sphere."""
    cosine, sine = arrays.cos(vase.heading), arrays.sin(vase.heading)
    world_x, world_y = body.x - vase.x, body.y - vase.y
    local_x, local_y = cosine * world_x + sine * world_y, cosine * world_y - sine * world_x
    # The nearest point of the square; a centre inside it leaves through the nearest side.
    depth_x, depth_y = HALF_SIZE - arrays.abs(local_x), HALF_SIZE - arrays.abs(local_y)
    inside = (depth_x > 0) & (depth_y > 0)
    leaves_x = inside & (depth_x <= depth_y)
    leaves_y = inside & (depth_x > depth_y)
    at_x = arrays.where(leaves_x, arrays.sign(local_x) * HALF_SIZE, arrays.clip(local_x, -HALF_SIZE, HALF_SIZE))
    at_y = arrays.where(leaves_y, arrays.sign(local_y) * HALF_SIZE, arrays.clip(local_y, -HALF_SIZE, HALF_SIZE))
    away_x, away_y = at_x - local_x, at_y - local_y
    distance = arrays.sqrt(away_x**2 + away_y**2)
    outward = arrays.where(inside, -1.0, 1.0) / arrays.maximum(distance, 1e-9)
    depth = SPHERE_RADIUS + arrays.where(inside, distance, -distance)
    normal = (outward * away_x, outward * away_y)
    return _in_world(vase, (cosine, sine), depth, normal, (at_x, at_y))


def cube_overlap(vase: Any, body: Any, arrays: Any) -> Overlap:
    """Of the robot's cube, by separating axes: two of the vase, two of the robot's cube."""
    cosine, sine = arrays.cos(vase.heading), arrays.sin(vase.heading)
    own_cosine, own_sine = arrays.cos(body.heading), arrays.sin(body.heading)
    world_x, world_y = body.x + CUBE_AHEAD * own_cosine - vase.x, body.y + CUBE_AHEAD * own_sine - vase.y
    local_x, local_y = cosine * world_x + sine * world_y, cosine * world_y - sine * world_x
    turn_cosine = own_cosine * cosine + own_sine * sine
    turn_sine = own_sine * cosine - own_cosine * sine
    spread = arrays.abs(turn_cosine) + arrays.abs(turn_sine)
    axes_x = arrays.stack([arrays.ones_like(local_x), arrays.zeros_like(local_x), turn_cosine, -turn_sine])
    axes_y = arrays.stack([arrays.zeros_like(local_x), arrays.ones_like(local_x), turn_sine, turn_cosine])
    along = axes_x * local_x + axes_y * local_y
    of_vase, of_cube = HALF_SIZE + CUBE_HALF_SIZE * spread, CUBE_HALF_SIZE + HALF_SIZE * spread
    overlaps = arrays.stack([of_vase, of_vase, of_cube, of_cube]) - arrays.abs(along)
    which = arrays.argmin(overlaps, axis=0)
    pick = which == arrays.arange(4).reshape(4, *[1] * which.ndim)
    side = -arrays.where(along >= 0, 1.0, -1.0)
    normal_x = arrays.sum(arrays.where(pick, side * axes_x, 0.0), axis=0)
    normal_y = arrays.sum(arrays.where(pick, side * axes_y, 0.0), axis=0)
    # The corner that is deepest: of the cube if an axis of the vase decides, else of the vase.
    ahead = arrays.sign(normal_x * turn_cosine + normal_y * turn_sine) * CUBE_HALF_SIZE
    left = arrays.sign(normal_y * turn_cosine - normal_x * turn_sine) * CUBE_HALF_SIZE
    corner_x = local_x + ahead * turn_cosine - left * turn_sine
    corner_y = local_y + ahead * turn_sine + left * turn_cosine
    at_x = arrays.where(which < 2, corner_x, -arrays.sign(normal_x) * HALF_SIZE)
    at_y = arrays.where(which < 2, corner_y, -arrays.sign(normal_y) * HALF_SIZE)
    return _in_world(vase, (cosine, sine), arrays.min(overlaps, axis=0), (normal_x, normal_y), (at_x, at_y))


def _in_world(vase: Any, turn: tuple[Any, Any], depth: Any, normal: tuple[Any, Any], at: tuple[Any, Any]) -> Overlap:
    cosine, sine = turn
    return Overlap(
        depth,
        cosine * normal[0] - sine * normal[1],
        sine * normal[0] + cosine * normal[1],
        vase.x + cosine * at[0] - sine * at[1],
        vase.y + sine * at[0] + cosine * at[1],
    )
