"""The method of `constraints` as one GPU kernel (Pallas, lowered to Triton).

Under `vmap` each body is a program of one warp, which keeps its problem in registers. MJX's own solver starts dozens of
kernels in every iteration.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

from dreamproof.envs.locomotion.constraints import Problem, Solution, line_search
from dreamproof.jaxcore.kernels import HAS_TRITON

if HAS_TRITON:
    from jax.experimental.pallas import triton

Vector = Sequence[Array]
"""A scalar for each degree of freedom."""


class Registers(NamedTuple):
    """A `Problem` of scalars and rows (R,)."""

    jacobian: Sequence[Array]
    stiffness: Array
    target: Array
    mass: Sequence[Vector]
    force: Vector
    damping: Vector
    guess: Vector


def solve(problem: Problem, iterations: int) -> Solution:
    """The same as `constraints.solve`."""
    count, rows = problem.jacobian.shape
    width = pl.next_power_of_2(rows)
    padded = (jnp.pad(part, [(0, 0)] * (part.ndim - 1) + [(0, width - rows)]) for part in problem[:3])
    acceleration, damped, forces = pl.pallas_call(
        functools.partial(_kernel, iterations=iterations),
        out_shape=[jax.ShapeDtypeStruct((size,), jnp.float32) for size in (count, count, width)],
        compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
        interpret=jax.default_backend() == "cpu",
        name="constraints",
    )(*padded, *problem[3:])
    return Solution(acceleration, damped, forces[:rows])


def _kernel(*refs: Any, iterations: int) -> None:
    """Reads the problem of one body, solves it and writes the solution."""
    *given, acceleration_ref, damped_ref, forces_ref = refs
    acceleration, damped, forces = _solution(_read(*given), iterations)
    for i in range(len(acceleration)):
        acceleration_ref[i] = acceleration[i]
        damped_ref[i] = damped[i]
    forces_ref[:] = forces


def _read(jacobian: Any, stiffness: Any, target: Any, mass: Any, *vectors: Any) -> Registers:
    axis = range(mass.shape[0])
    return Registers(
        [jacobian[i, :] for i in axis],
        stiffness[:],
        target[:],
        [[mass[i, j] for j in axis] for i in axis],
        *([vector[i] for i in axis] for vector in vectors),
    )


def _solution(problem: Registers, iterations: int) -> tuple[Vector, Vector, Array]:
    free = _solved(problem.mass, problem.force)
    better = _cost(problem, free, problem.guess) < _cost(problem, free, free)
    start = [jnp.where(better, a, b) for a, b in zip(problem.guess, free, strict=True)]
    found = jax.lax.fori_loop(0, iterations, lambda _, now: _step(problem, free, now), start)
    forces = -problem.stiffness * jnp.minimum(_excess(problem, found), 0.0)
    total = [own + jnp.sum(row * forces) for own, row in zip(problem.force, problem.jacobian, strict=True)]
    braked = [[*row[:i], row[i] + problem.damping[i]] for i, row in enumerate(problem.mass)]
    return found, _solved(braked, total), forces


def _excess(problem: Registers, at: Vector) -> Array:
    return _dot(at, problem.jacobian) - problem.target


def _cost(problem: Registers, free: Vector, at: Vector) -> Array:
    away = _minus(at, free)
    short = jnp.minimum(_excess(problem, at), 0.0)
    return _dot(away, _times(problem.mass, away)) + jnp.sum(problem.stiffness * short * short)


def _step(problem: Registers, free: Vector, at: Vector) -> list[Array]:
    beyond = _excess(problem, at)
    weight = jnp.where(beyond < 0.0, problem.stiffness, 0.0)
    inertia = _times(problem.mass, _minus(at, free))
    gradient = [own + jnp.sum(row * weight * beyond) for own, row in zip(inertia, problem.jacobian, strict=True)]
    weighted = [row * weight for row in problem.jacobian]
    hessian = [
        [problem.mass[i][j] + jnp.sum(weighted[i] * problem.jacobian[j]) for j in range(i + 1)] for i in range(len(at))
    ]
    way = [-each for each in _solved(hessian, gradient)]
    along, curvature = _dot(way, problem.jacobian), _dot(way, _times(problem.mass, way))
    length = line_search(problem.stiffness, beyond, along, _dot(way, gradient), curvature)
    return [a + length * b for a, b in zip(at, way, strict=True)]


def _solved(matrix: Sequence[Vector], right: Vector) -> list[Array]:
    """The solution of a symmetric positive definite system by L D Lᵀ; the matrix is read up to its diagonal."""
    lower: list[list[Array]] = []
    inverse: list[Array] = []
    half: list[Array] = []
    for i in range(len(right)):
        row: list[Array] = []
        for j in range(i):
            row.append(_less(matrix[i][j], row, lower[j]))
        lower.append([a * b for a, b in zip(row, inverse, strict=True)])
        inverse.append(1.0 / _less(matrix[i][i], row, lower[i]))
        half.append(_less(right[i], lower[i], half))
    found: list[Array] = []
    for i in reversed(range(len(right))):
        below = [row[i] for row in reversed(lower[i + 1 :])]
        found.append(_less(half[i] * inverse[i], below, found))
    return found[::-1]


def _less(start: Array, a: Vector, b: Vector) -> Array:
    """`start` minus the products of two vectors."""
    for x, y in zip(a, b, strict=True):
        start = start - x * y
    return start


def _minus(a: Vector, b: Vector) -> list[Array]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _times(matrix: Sequence[Vector], vector: Vector) -> list[Array]:
    return [_dot(row, vector) for row in matrix]


def _dot(a: Vector, b: Vector) -> Array:
    return functools.reduce(operator.add, (x * y for x, y in zip(a, b, strict=True)))
