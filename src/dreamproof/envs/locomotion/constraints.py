"""Newton's method for contacts and joint limits, with an Euler step.

MuJoCo's acceleration x minimises ½ (x − s)ᵀ M (x − s) + ½ Σ D min(Jᵀ x − a, 0)². M is the mass matrix and s the
acceleration without constraints. A column of J, with its stiffness D and the acceleration a that it asks for, is a
joint limit or an edge of a friction pyramid. The cost is convex and quadratic between kinks, so Newton steps with an
exact line search reach its minimum.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve

LINE_SEARCH_STEPS = 6


class Problem(NamedTuple):
    """One simulator step of a body with V degrees of freedom and R one-sided constraints.

    jacobian (V, R), stiffness (R,), target (R,): of the constraints; mass (V, V); force (V,): of everything else;
    damping (V,): of the joints, times the length of the step; guess (V,): the accelerations of the last step.
    """

    jacobian: Array
    stiffness: Array
    target: Array
    mass: Array
    force: Array
    damping: Array
    guess: Array


class Solution(NamedTuple):
    """Accelerations (V,), those of an Euler step with damping at its end (V,), and forces of the constraints (R,)."""

    acceleration: Array
    damped: Array
    forces: Array


def solve(problem: Problem, iterations: int) -> Solution:
    """The solution after so many Newton steps from the guess, or from s if that costs less."""
    jacobian, stiffness, target, mass, force, damping, guess = problem
    free = cho_solve(cho_factor(mass), force)

    def excess(at: Array) -> Array:
        return at @ jacobian - target

    def cost(at: Array) -> Array:
        return (at - free) @ mass @ (at - free) + jnp.sum(stiffness * jnp.minimum(excess(at), 0.0) ** 2)

    def step(_: Any, at: Array) -> Array:
        beyond = excess(at)
        weight = jnp.where(beyond < 0.0, stiffness, 0.0)
        gradient = mass @ (at - free) + jacobian @ (weight * beyond)
        hessian = mass + (jacobian * weight) @ jacobian.T
        way = -cho_solve(cho_factor(hessian), gradient)
        return at + way * line_search(stiffness, beyond, way @ jacobian, way @ gradient, way @ mass @ way)

    start = jnp.where(cost(guess) < cost(free), guess, free)
    found = jax.lax.fori_loop(0, iterations, step, start)
    forces = -stiffness * jnp.minimum(excess(found), 0.0)
    damped = cho_solve(cho_factor(mass + jnp.diag(damping)), force + jacobian @ forces)
    return Solution(found, damped, forces)


def line_search(stiffness: Array, excess: Array, along: Array, slope: Array, curvature: Array) -> Array:
    """The step length at which the cost is lowest: Newton's method, or bisection where that leaves the bracket.

    excess and its derivative along the direction (R,); slope of the cost at the start; curvature without constraints.
    """
    pushed, weighted = excess < 0.0, stiffness * along

    def once(_: Any, now: tuple[Array, ...]) -> tuple[Array, ...]:
        length, low, high, best, least = now
        there = excess + length * along
        pushes = there < 0.0
        # Where a constraint pushes at both ends, the difference of the two numbers would be their rounding errors.
        change = jnp.where(pushed & pushes, length * along, jnp.minimum(there, 0.0) - jnp.minimum(excess, 0.0))
        first = slope + length * curvature + jnp.sum(weighted * change)
        second = curvature + jnp.sum(jnp.where(pushes, weighted * along, 0.0))
        best, least = jnp.where(abs(first) < least, length, best), jnp.minimum(abs(first), least)
        low, high = jnp.where(first < 0.0, length, low), jnp.where(first < 0.0, high, length)
        newton = length - first / second
        return jnp.where((newton > low) & (newton < high), newton, 0.5 * (low + high)), low, high, best, least

    one = jnp.ones_like(slope)
    return jax.lax.fori_loop(0, LINE_SEARCH_STEPS, once, (one, 0.0 * one, jnp.inf * one, one, jnp.inf * one))[3]
