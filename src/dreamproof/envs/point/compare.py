"""Comparison with recordings of the official task: one simulator step from identical states, and layouts."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.envs.point.dynamics import PointBody
from dreamproof.envs.point.env import PointGoal, PointState
from dreamproof.envs.point.layout import FAR, GOAL_CANDIDATES, GoalBank, InitialLayout
from dreamproof.envs.point.params import HAZARD_CAPACITY

CONTACT_METRES = 0.32


class OneStep(NamedTuple):
    """Absolute errors (T, ...) of one simulator step, and where the vase is out of reach."""

    position: np.ndarray
    heading: np.ndarray
    velocity: np.ndarray
    yaw_rate: np.ndarray
    reward: np.ndarray
    numbers: np.ndarray
    cost_mismatches: int
    goal_mismatches: int
    free_of_vase: np.ndarray


def one_step(recorded: Mapping[str, np.ndarray]) -> OneStep:
    """Steps our task from every recorded state and compares with what the official one did."""
    env = PointGoal(lidar=True, ghost_slots=3, action_repeat=1, episode_agent_steps=1000)
    columns = [recorded[name] for name in ("before", "goal", "hazards", "vase")]
    before, goal, hazards, vase = (jnp.asarray(column, jnp.float32) for column in columns)
    state = jax.vmap(lambda *row: _state(env, *row))(before, goal, hazards, vase)
    keys = jax.random.split(jax.random.key(0), len(before))
    action = jnp.asarray(recorded["action"], jnp.float32)
    stepped, shown = jax.jit(env.step)(keys, state, action, env.default_params())
    body, after = stepped.body, recorded["after"]
    turn = np.asarray(body.heading) - after[:, 2]
    met = recorded["goals"] > 0
    # A reached goal is redrawn with different random numbers; what depends on it is compared elsewhere.
    numbers = np.abs(np.asarray(shown.observation) - recorded["numbers"])
    numbers[met, 12:28] = 0.0
    return OneStep(
        position=np.hypot(np.asarray(body.x) - after[:, 0], np.asarray(body.y) - after[:, 1]),
        heading=np.abs(np.arctan2(np.sin(turn), np.cos(turn))),
        velocity=np.hypot(np.asarray(body.velocity_x) - after[:, 3], np.asarray(body.velocity_y) - after[:, 4]),
        yaw_rate=np.abs(np.asarray(body.spin) - after[:, 5]),
        reward=np.abs(np.asarray(shown.reward) - recorded["reward"]),
        numbers=numbers,
        cost_mismatches=int(np.sum(np.asarray(shown.cost) != recorded["cost"])),
        goal_mismatches=int(np.sum(np.asarray(shown.goals) != recorded["goals"])),
        free_of_vase=np.linalg.norm(before[:, :2] - vase, axis=1) > CONTACT_METRES,
    )


def _state(env: PointGoal, before: Array, goal: Array, hazards: Array, vase: Array) -> PointState:
    padded = jnp.full((HAZARD_CAPACITY, 2), FAR).at[: hazards.shape[0]].set(hazards)
    nowhere = jnp.zeros(GOAL_CANDIDATES)
    bank = GoalBank(nowhere, nowhere, nowhere, jnp.zeros((), jnp.int32))
    placement = InitialLayout(before[:2], before[2], padded, vase, jnp.zeros(()), bank)
    return env.place(placement, PointBody(*before), goal)


def our_layouts(keys: Array) -> tuple[np.ndarray, np.ndarray]:
    """Layouts (L, 11, 2) of robot, goal, eight hazards and vase, and headings (L,), as the recording orders them."""
    env = PointGoal()
    params = env.default_params()
    state = jax.jit(jax.vmap(lambda key: env.start(key, params)))(keys)
    agent = jnp.stack([state.body.x, state.body.y], axis=-1)
    vase = jnp.stack([state.vase.x, state.vase.y], axis=-1)
    places = jnp.concatenate([agent[:, None], state.goal[:, None], state.hazards[:, :8], vase[:, None]], axis=1)
    return np.asarray(places), np.asarray(state.body.heading)


def layout_statistics(places: np.ndarray, headings: np.ndarray) -> dict[str, np.ndarray]:
    """One-dimensional statistics (L,) of layouts, for two-sample tests."""
    agent, goal, hazards, vase = places[:, 0], places[:, 1], places[:, 2:10], places[:, 10]
    to_hazards = np.linalg.norm(hazards - agent[:, None], axis=2)
    between = np.linalg.norm(hazards[:, :, None] - hazards[:, None], axis=3) + 10.0 * np.eye(8)
    return {
        "robot x": agent[:, 0],
        "robot to goal": np.linalg.norm(goal - agent, axis=1),
        "goal y": goal[:, 1],
        "goal to nearest hazard": np.linalg.norm(hazards - goal[:, None], axis=2).min(axis=1),
        "robot to nearest hazard": to_hazards.min(axis=1),
        "last hazard x": hazards[:, 7, 0],
        "nearest two hazards": between.min(axis=(1, 2)),
        "robot to vase": np.linalg.norm(vase - agent, axis=1),
        "heading": np.mod(headings, 2 * np.pi),
    }
