"""Records steps and random episodes of the reference of MT30: what our tasks are compared with.

Run it where dm-control is installed (1.0.50 on MuJoCo 3.17.0 was recorded) and a checkout of TD-MPC2 is at hand, whose
`tdmpc2/envs/tasks` define eleven of the thirty tasks; of this project it needs the names alone (PYTHONPATH=src).
"""

import argparse
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from dreamproof.settings.task_sets import MT30

TASKS = [task.name for task in MT30]
CUSTOM_MODULES = ("cheetah", "walker", "hopper", "reacher", "ball_in_cup", "pendulum")
ACTION_REPEAT, EPISODE_STEPS = 2, 500
RESTART, HELD = 25, 3
"""Recorded agent steps between restarts, and with the same action."""
Place = Callable[[Any, np.random.Generator], None]


def load_custom_tasks(checkout: Path) -> None:
    """Adds TD-MPC2's tasks to the suite; its packages need PyTorch, the modules of the tasks do not."""
    for name in CUSTOM_MODULES:
        path = checkout / "tdmpc2" / "envs" / "tasks" / f"{name}.py"
        found = importlib.util.spec_from_file_location(f"tdmpc2_{name}", path)
        assert found is not None and found.loader is not None
        found.loader.exec_module(importlib.util.module_from_spec(found))


def load(task: str, seed: int) -> Any:
    """The reference environment of a task."""
    from dm_control import suite

    domain, name = task.split("-", 1)
    return suite.load({"cup": "ball_in_cup"}.get(domain, domain), name.replace("-", "_"), task_kwargs={"random": seed})


def place_runner(physics: Any, noise: np.random.Generator) -> None:
    """Upright at any speed; random starts lie on the ground after a short time."""
    physics.data.qpos[:] = 0.2 * noise.normal(size=physics.model.nq) * (physics.model.jnt_limited > 0)
    physics.data.qvel[:] = noise.normal(size=physics.model.nv)
    physics.data.qvel[:2] += noise.normal(size=2, scale=4.0)
    physics.data.qpos[[0, 1]] += noise.uniform(0, 0.4, 2)


def place_swing(physics: Any, noise: np.random.Generator) -> None:
    """Nearly upright and slow."""
    physics.data.qpos[:] = noise.normal(size=physics.model.nq, scale=0.1)
    physics.data.qvel[:] = noise.normal(size=physics.model.nv, scale=0.5)


def place_pendulum(physics: Any, noise: np.random.Generator) -> None:
    """Nearly upright, slow or fast."""
    physics.data.qpos[:] = noise.normal(scale=0.1)
    physics.data.qvel[:] = noise.normal(scale=noise.choice([0.5, 8.0]))


def place_arm(physics: Any, noise: np.random.Generator) -> None:
    """The target near the finger."""
    physics.named.model.geom_pos["target", :2] = physics.named.data.geom_xpos["finger", :2] + 0.03 * noise.normal(
        size=2
    )


def place_cup(physics: Any, noise: np.random.Generator) -> None:
    """The ball in the cup."""
    physics.data.qpos[:] = [0.0, 0.0, *noise.uniform([-0.01, 0.34], [0.01, 0.36])]


def place_finger(physics: Any, noise: np.random.Generator) -> None:
    """A spinner that turns."""
    physics.data.qvel[2] = noise.normal(scale=15.0)


def place_fish(physics: Any, noise: np.random.Generator) -> None:
    """The mouth near the target."""
    physics.data.qpos[:3] = physics.named.model.geom_pos["target"] + 0.1 * noise.normal(size=3)


PLACES: dict[str, Place] = {
    "walker": place_runner,
    "cheetah": place_runner,
    "hopper": place_runner,
    "cartpole": place_swing,
    "acrobot": place_swing,
    "pendulum": place_pendulum,
    "reacher": place_arm,
    "cup": place_cup,
    "finger": place_finger,
    "fish": place_fish,
}


def target_of(task: str, physics: Any) -> np.ndarray:
    """The point to reach as our tasks state it."""
    if task.startswith("reacher"):
        return np.array(physics.named.model.geom_pos["target", :2])
    if task.startswith("finger-turn"):
        return np.array(physics.target_position())
    return np.array(physics.named.model.geom_pos["target"]) if task.startswith("fish") else np.zeros(0)


def round_state(physics: Any) -> None:
    """Rounds the state to float32, in which ours begins."""
    for part in (physics.data.qpos, physics.data.qvel):
        part[:] = part.astype(np.float32)
    if physics.model.ngeom and "target" in physics.named.model.geom_pos.axes.row.names:
        place = physics.named.model.geom_pos["target"]
        physics.named.model.geom_pos["target"] = np.float32(place)
    mujoco.mj_forward(physics.model.ptr, physics.data.ptr)


def flat(observation: dict[str, Any]) -> np.ndarray:
    """The parts in their order, as TD-MPC2 joins them."""
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


def agent_step(env: Any, action: np.ndarray) -> tuple[np.ndarray, float]:
    """Observation after two control steps, and the sum of their rewards."""
    shown = [env.step(action) for _ in range(ACTION_REPEAT)]
    return flat(shown[-1].observation), float(sum(step.reward for step in shown))


def record_steps(task: str, count: int) -> dict[str, np.ndarray]:
    """Agent steps under random actions; every second start is one in which the reward varies."""
    env, noise = load(task, 0), np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for index in range(count):
        if index % RESTART == 0:
            env.reset()
            if index // RESTART % 2:
                PLACES[task.split("-")[0]](env.physics, noise)
        if index % HELD == 0:
            action = noise.uniform(-1, 1, env.action_spec().shape).astype(np.float32)
        round_state(env.physics)
        state = {"position": env.physics.data.qpos, "velocity": env.physics.data.qvel, "action": action}
        before = {name: part.astype(np.float32) for name, part in state.items()}
        target = target_of(task, env.physics).astype(np.float32)
        observation, reward = agent_step(env, action.astype(np.float64))
        rows.append(before | {"target": target, "observation": observation, "reward": np.float32(reward)})
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def spread(columns: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """So many of the rows, evenly from low to high rewards, in their order."""
    ranked = np.argsort(columns["reward"], kind="stable")
    chosen = np.sort(ranked[np.linspace(0, len(ranked) - 1, count).round().astype(int)])
    return {name: column[chosen] for name, column in columns.items()}


def first_observations(task: str, count: int) -> np.ndarray:
    """What is observed at the start of episodes."""
    env = load(task, 2)
    return np.stack([flat(env.reset().observation) for _ in range(count)])


def random_returns(task: str, episodes: int) -> np.ndarray:
    """Returns of episodes under uniform actions."""
    env, noise = load(task, 1), np.random.default_rng(1)
    returns = []
    for _ in range(episodes):
        env.reset()
        actions = noise.uniform(-1, 1, (EPISODE_STEPS, *env.action_spec().shape))
        returns.append(sum(agent_step(env, action)[1] for action in actions))
    return np.asarray(returns, np.float32)


def main() -> None:
    """Writes one compressed file with an array for each task and name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--tdmpc2", type=Path, required=True, help="checkout of TD-MPC2")
    parser.add_argument("--rows", type=int, default=1000, help="agent steps per task")
    parser.add_argument("--keep", type=int, help="keep so many of them, evenly from low to high rewards")
    parser.add_argument("--episodes", type=int, default=0, help="random episodes per task")
    parser.add_argument("--starts", type=int, default=0, help="first observations per task")
    parser.add_argument("--task", nargs="+", default=TASKS, choices=TASKS, metavar="TASK")
    chosen = parser.parse_args()
    load_custom_tasks(chosen.tdmpc2)
    arrays = {}
    for task in chosen.task:
        columns = spread(record_steps(task, chosen.rows), chosen.keep or chosen.rows)
        if chosen.episodes:
            columns["returns"] = random_returns(task, chosen.episodes)
        if chosen.starts:
            columns["starts"] = first_observations(task, chosen.starts)
        arrays |= {f"{task}/{name}": column for name, column in columns.items()}
        print(task, len(columns["reward"]), f"mean reward {columns['reward'].mean():.3f}", flush=True)
    np.savez_compressed(chosen.file, **arrays)


if __name__ == "__main__":
    main()
