"""Comparison with recordings of the official task: one simulator step from identical states, and layouts."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.car.dynamics import CarBody
from dreamproof.envs.point.dynamics import PointBody
from dreamproof.envs.point.env import PointGoal, PointState
from dreamproof.envs.point.layout import FAR, GOAL_CANDIDATES, GoalBank, InitialLayout
from dreamproof.envs.point.params import HAZARD_CAPACITY, LEVEL_1, GoalLevel
from dreamproof.envs.point.robots import POINT, Robot
from dreamproof.envs.point.vase import REST_SPEED, Vase

CONTACT_METRES, CAR_CONTACT_METRES = 0.32, 0.36


class OneStep(NamedTuple):
    """Absolute errors (T, ...) of one simulator step, and where all vases are at rest and out of reach.

    costs (T, K): our cost of each constraint.
    """

    position: np.ndarray
    heading: np.ndarray
    velocity: np.ndarray
    yaw_rate: np.ndarray
    reward: np.ndarray
    numbers: np.ndarray
    cost_mismatches: int
    goal_mismatches: int
    free_of_vase: np.ndarray
    costs: np.ndarray


def one_step(recorded: Mapping[str, np.ndarray], level: GoalLevel = LEVEL_1, robot: Robot = POINT) -> OneStep:
    """Steps our task from every recorded state and compares with what the official one did."""
    env = _single_stepper(level, robot)
    columns = [recorded[name] for name in ("before", "goal", "hazards")]
    before, goal, hazards = (jnp.asarray(column, jnp.float32) for column in columns)
    vases = _recorded_vases(recorded)
    state = jax.vmap(lambda *row: _state(env, *row))(before, goal, hazards, vases)
    keys = jax.random.split(jax.random.key(0), len(before))
    action = jnp.asarray(recorded["action"], jnp.float32)
    stepped, shown = jax.jit(env.step)(keys, state, action, env.default_params())
    ours, theirs = _planar(stepped.body), _planar(_body(jnp.asarray(recorded["after"].T)))
    turn = ours[2] - theirs[2]
    # A reached goal is redrawn with different random numbers; what depends on it is compared elsewhere.
    numbers = np.abs(np.asarray(shown.observation) - recorded["shown" if robot.wheels else "numbers"])
    numbers[recorded["goals"] > 0, slice(7, 9) if robot.wheels else slice(12, 28)] = 0.0
    return OneStep(
        position=np.hypot(*(ours - theirs)[:2]),
        heading=np.abs(np.arctan2(np.sin(turn), np.cos(turn))),
        velocity=np.hypot(*(ours - theirs)[3:5]),
        yaw_rate=np.abs(ours - theirs)[5],
        reward=np.abs(np.asarray(shown.reward) - recorded["reward"]),
        numbers=numbers,
        cost_mismatches=int(np.sum(np.asarray(shown.cost) != recorded["cost"])),
        goal_mismatches=int(np.sum(np.asarray(shown.goals) != recorded["goals"])),
        free_of_vase=_free_of_vases(before, vases, contact_metres(robot)),
        costs=np.asarray(shown.costs),
    )


def contact_metres(robot: Robot) -> float:
    """Between the centres of a robot and a vase that may touch."""
    return CAR_CONTACT_METRES if robot.wheels else CONTACT_METRES


def _single_stepper(level: GoalLevel, robot: Robot) -> PointGoal:
    """The task whose agent steps are simulator steps, with the observation that is recorded."""
    return PointGoal(
        level=level,
        robot=robot,
        lidar=not robot.wheels,
        ghost_slots=0 if robot.wheels else 3,
        action_repeat=1,
        episode_agent_steps=1000,
        vases_are_pushed=level.vases_cost,
    )


def _body(columns: Array) -> PointBody | CarBody:
    """The body from the columns (6, ...) or (18, ...) of a recording."""
    if len(columns) == len(PointBody._fields):
        return PointBody(*columns)
    parts = jnp.split(jnp.moveaxis(columns, 0, -1), [3, 7, 10, 13], axis=-1)
    return CarBody(*parts)


def _planar(body: PointBody | CarBody) -> np.ndarray:
    """x, y, heading, velocity and yaw rate, (6, T)."""
    if isinstance(body, PointBody):
        return np.asarray(jnp.stack(body))
    x_velocity, y_velocity, _ = jnp.moveaxis(body.velocity, -1, 0)
    return np.asarray(jnp.stack([body.x, body.y, body.heading, x_velocity, y_velocity, body.turning[..., 2]]))


def _recorded_vases(recorded: Mapping[str, np.ndarray]) -> Array:
    """Motions (T, V, 7) of the vases; a recording of level 1 has the place of its vase only."""
    if "vases" in recorded:
        return jnp.asarray(recorded["vases"], jnp.float32)
    places = jnp.asarray(recorded["vase"], jnp.float32)[:, None]
    return jnp.pad(places, ((0, 0), (0, 0), (0, len(Vase._fields) - 2)))


def _free_of_vases(before: Array, vases: Array, metres: float) -> np.ndarray:
    distances = jnp.linalg.norm(before[:, None, :2] - vases[..., :2], axis=-1)
    speeds = jnp.linalg.norm(vases[..., jnp.array([3, 4, 6])], axis=-1)
    return np.asarray(jnp.all((distances > metres) & (speeds < REST_SPEED), axis=1))


def _state(env: PointGoal, before: Array, goal: Array, hazards: Array, vases: Array) -> PointState:
    padded = jnp.full((HAZARD_CAPACITY, 2), FAR).at[: hazards.shape[0]].set(hazards)
    nowhere = jnp.zeros(GOAL_CANDIDATES)
    bank = GoalBank(nowhere, nowhere, nowhere, jnp.zeros((), jnp.int32))
    placement = InitialLayout(before[:2], before[2], padded, vases[:, :2], vases[:, 2], bank)
    return env.place(placement, _body(before), goal)._replace(vases=Vase(*vases.T))


def our_layouts(keys: Array, level: GoalLevel = LEVEL_1) -> tuple[np.ndarray, np.ndarray]:
    """Layouts (L, 2 + hazards + vases, 2), the robot first, then the goal, and headings (L,), as recordings have it."""
    env = PointGoal(level=level)
    params = env.default_params()
    state = jax.jit(jax.vmap(lambda key: env.start(key, params)))(keys)
    agent = jnp.stack([state.body.x, state.body.y], axis=-1)
    vases = jnp.stack([state.vases.x, state.vases.y], axis=-1)
    hazards = state.hazards[:, : level.hazards]
    places = jnp.concatenate([agent[:, None], state.goal[:, None], hazards, vases], axis=1)
    return np.asarray(places), np.asarray(state.body.heading)


def layout_statistics(places: np.ndarray, headings: np.ndarray, hazard_count: int = 8) -> dict[str, np.ndarray]:
    """One-dimensional statistics (L,) of layouts, for two-sample tests."""
    agent, goal, hazards, vase = places[:, 0], places[:, 1], places[:, 2 : 2 + hazard_count], places[:, -1]
    to_hazards = np.linalg.norm(hazards - agent[:, None], axis=2)
    between = np.linalg.norm(hazards[:, :, None] - hazards[:, None], axis=3) + 10.0 * np.eye(hazard_count)
    return {
        "robot x": agent[:, 0],
        "robot to goal": np.linalg.norm(goal - agent, axis=1),
        "goal y": goal[:, 1],
        "goal to nearest hazard": np.linalg.norm(hazards - goal[:, None], axis=2).min(axis=1),
        "robot to nearest hazard": to_hazards.min(axis=1),
        "last hazard x": hazards[:, -1, 0],
        "nearest two hazards": between.min(axis=(1, 2)),
        "robot to last vase": np.linalg.norm(vase - agent, axis=1),
        "heading": np.mod(headings, 2 * np.pi),
    }
