"""Records a real Goal task: single transitions, layouts, and episodes of two scripted policies.

Run it where safety-gymnasium is installed; it needs no JAX, so the official version pins will do.
"""

import argparse
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

from dreamproof.envs.official import TASKS, OfficialPointGoal
from dreamproof.envs.steering import WHEEL_COMMAND, steer, steer_wheels
from dreamproof.settings.env import EnvSettings

FIRST_SEED = {"transitions": 1_000, "layouts": 100_000, "go_to_goal": 200_000, "random": 300_000}
Policy = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def go_to_goal(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Drives at the goal whatever lies between."""
    del generator
    return steer(observation[7], observation[8])


def roll_to_goal(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The same of a car."""
    del generator
    return steer_wheels(observation[7], observation[8])


def seeking(task: str) -> Policy:
    """The policy of a task's robot that drives at the goal."""
    return roll_to_goal if TASKS[task][0] == "Car" else go_to_goal


def random_action(observation: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Uniform."""
    del observation
    return generator.uniform(-1.0, 1.0, 2)


def record_transitions(task: str, episodes: int, every: int) -> dict[str, np.ndarray]:
    """Self-contained simulator steps: every so-many-th one, and all at which a goal was met or the cost changed."""
    env = OfficialPointGoal(EnvSettings(action_repeat=1, ghost_slots=0), task)
    rows: dict[str, list[np.ndarray]] = {}
    seek = seeking(task)
    spread = 0.3 * (WHEEL_COMMAND if seek is roll_to_goal else 1.0)
    for episode in range(episodes):
        generator = np.random.default_rng(episode)
        observation, _ = env.reset(seed=FIRST_SEED["transitions"] + episode)
        action, last_cost = np.zeros(2), 0.0
        for step in range(1000):
            # Three habits, so that stiff, held and goal-seeking commands all occur.
            if episode % 3 == 0 or (episode % 3 == 1 and step % 20 == 0):
                action = random_action(observation, generator)
            elif episode % 3 == 2:
                action = np.clip(seek(observation, generator) + generator.normal(0, spread, 2), -1, 1)
            before = env.facts()
            observation, reward, cost, _, _, info = env.step(action)
            if step % every == every - 1 or info["goals"] or cost != last_cost:
                after = env.facts()
                keep(rows, before=before.body, after=after.body, action=action, goal=before.goal)
                keep(rows, next_goal=after.goal, hazards=before.hazards, vases=before.vases)
                keep(rows, next_vases=after.vases, numbers=env.numbers(), shown=observation, costs=info["costs"])
                keep(rows, reward=reward, cost=cost, goals=info["goals"])
            last_cost = cost
    exact = {"before", "after", "action", "goal", "next_goal"}
    return {name: np.array(row, np.float64 if name in exact else np.float32) for name, row in rows.items()}


def keep(rows: dict[str, list[np.ndarray]], **values: np.ndarray | float) -> None:
    """Adds one row to every named column."""
    for name, value in values.items():
        rows.setdefault(name, []).append(np.asarray(value))


def record_layouts(task: str, count: int) -> dict[str, np.ndarray]:
    """Layouts (L, objects, 2) of robot, goal, hazards and vases, and the headings (L,)."""
    env = OfficialPointGoal(EnvSettings(ghost_slots=0), task)
    places, headings = [], []
    for index in range(count):
        env.reset(seed=FIRST_SEED["layouts"] + index)
        facts = env.facts()
        places.append(np.vstack([facts.place, facts.goal, facts.hazards, facts.vases[:, :2]]))
        headings.append(facts.heading)
    return {"layouts": np.array(places, np.float32), "headings": np.array(headings, np.float32)}


def record_episodes(task: str, name: str, policy: Policy, count: int) -> dict[str, np.ndarray]:
    """Returns, costs, goals and the cost of each constraint (E,) of whole episodes at action repeat 5."""
    env = OfficialPointGoal(EnvSettings(ghost_slots=0), task)
    rows = []
    for index in range(count):
        generator = np.random.default_rng(index)
        observation, _ = env.reset(seed=FIRST_SEED[name] + index)
        totals, done = 0.0, False
        while not done:
            observation, reward, cost, terminated, truncated, info = env.step(policy(observation, generator))
            totals = totals + np.array([reward, cost, info["goals"], *info["costs"]])
            done = terminated or truncated
        rows.append(totals)
    return {f"{name}_episodes": np.array(rows, np.float32)}


def main() -> None:
    """Writes one compressed file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--task", default="SafetyPointGoal1", choices=list(TASKS))
    parser.add_argument("--transition-episodes", type=int, default=9)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--layouts", type=int, default=400)
    parser.add_argument("--policy-episodes", type=int, default=100)
    chosen = parser.parse_args()
    task = chosen.task
    columns = record_transitions(task, chosen.transition_episodes, chosen.every)
    columns |= record_layouts(task, chosen.layouts)
    columns |= record_episodes(task, "go_to_goal", seeking(task), chosen.policy_episodes)
    columns |= record_episodes(task, "random", random_action, chosen.policy_episodes)
    names = ("safety-gymnasium", "mujoco", "gymnasium", "numpy")
    versions = {"python": sys.version.split()[0]} | {name: version(name) for name in names}
    np.savez_compressed(chosen.output, versions=np.array(json.dumps(versions)), task=np.array(task), **columns)
    print(f"{chosen.output}: {len(columns['reward'])} transitions, {chosen.output.stat().st_size:,} bytes, {versions}")


if __name__ == "__main__":
    main()
