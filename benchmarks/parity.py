"""One of our Goal tasks against a recording of the real one: single steps, layouts, and two scripted policies.

Writes a table and exits 1 where the two disagree. `make parity` makes the recording first.
"""

import argparse
import json
import sys
from pathlib import Path

import jax
import numpy as np
from scipy import stats

from dreamproof.envs import registry
from dreamproof.envs.point.compare import contact_metres, layout_statistics, one_step, our_layouts
from dreamproof.envs.point.params import GoalLevel
from dreamproof.envs.point.robots import Robot
from dreamproof.envs.scripted import FLOORS
from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key

POSITION_LIMIT_METRES = 5e-6
CAR_SHARE, CAR_LIMIT_METRES = 0.99, 1e-3
"""Share of the car's steps within the limit, and a limit for all: contacts that open or close amplify rounding."""
# Nine layout tests and three numbers of each of two policies: Bonferroni's share of 5 % each.
TEST_LEVEL = 0.05 / 15
OUR_EPISODES = 1024


def step_rows(recorded: dict[str, np.ndarray], level: GoalLevel, robot: Robot) -> tuple[list[str], bool]:
    """Median, mean and largest one-step errors without vase contact."""
    errors = one_step(recorded, level, robot)
    free = errors.free_of_vase
    names = {"position": "m", "heading": "rad", "velocity": "m/s", "yaw_rate": "rad/s", "reward": ""}
    rows = [
        "| one simulator step, no vase contact | median error | mean error | 99 % below | largest error |",
        "|---|---|---|---|---|",
    ]
    for name, unit in names.items():
        error = getattr(errors, name)[free]
        figures = (np.median(error), error.mean(), np.quantile(error, 0.99), error.max())
        rows.append(f"| {name.replace('_', ' ')} {unit} | " + " | ".join(f"{figure:.1e}" for figure in figures) + " |")
    unequal = errors.costs != recorded["costs"]
    hazards, goals = int(unequal[:, 0].sum()), errors.goal_mismatches
    rows += ["", f"{hazards} mismatches of the hazards' cost and {goals} of goals in {len(free):,} steps."]
    rows += [f"Free of vases (at rest, none within {contact_metres(robot)} m): {int(free.sum()):,} steps."]
    if level.vases_cost:
        rows += vase_rows(errors.costs[:, 1], recorded["costs"][:, 1], free)
    exact = hazards == 0 and goals == 0 and not unequal[free].any()
    return rows, bool(exact and is_near(errors.position[free], robot))


def is_near(position: np.ndarray, robot: Robot) -> bool:
    """Whether position errors keep what is asked of the robot."""
    if not robot.wheels:
        return bool(position.max() <= POSITION_LIMIT_METRES)
    return bool(np.mean(position <= POSITION_LIMIT_METRES) >= CAR_SHARE and position.max() <= CAR_LIMIT_METRES)


def vase_rows(ours: np.ndarray, theirs: np.ndarray, free: np.ndarray) -> list[str]:
    """How often the cost of vases agrees after one step."""
    rows = [
        "",
        "| cost of vases after one step | steps | both | neither | real only | ours only |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in (("free of vases", free), ("near a vase, or one moves", ~free)):
        pairs = [(1, 1), (0, 0), (1, 0), (0, 1)]
        counts = [int(((theirs[part] == real) & (ours[part] == own)).sum()) for real, own in pairs]
        rows.append(f"| {name} | {int(part.sum()):,} | " + " | ".join(f"{count:,}" for count in counts) + " |")
    return rows


def layout_rows(recorded: dict[str, np.ndarray], level: GoalLevel, count: int) -> tuple[list[str], bool]:
    """Kolmogorov-Smirnov tests of nine views of the layouts."""
    ours = layout_statistics(*our_layouts(layout_keys(0, "test", count, 0), level), level.hazards)
    theirs = layout_statistics(recorded["layouts"], recorded["headings"], level.hazards)
    rows = [f"| layouts: {len(recorded['layouts']):,} real, {count:,} ours | KS distance | p |", "|---|---|---|"]
    least = 1.0
    for name, column in ours.items():
        test = stats.ks_2samp(column, theirs[name])
        least = min(least, test.pvalue)
        rows.append(f"| {name} | {test.statistic:.3f} | {test.pvalue:.2f} |")
    return rows, bool(least > TEST_LEVEL)


def our_episodes(task: str, policy_name: str, count: int) -> np.ndarray:
    """Return, cost, goals and the cost of each constraint (E, 3 + K) of whole episodes."""
    robot = registry.GOAL_TASKS[task][1]
    env = registry.make(task, {"ghost_slots": 0} | ({} if robot.wheels else {"vase": "pushed"}))
    policy, params = FLOORS[policy_name](env.spec), env.default_params()
    state, shown = jax.jit(env.reset)(layout_keys(1, "test", count, 0), params)

    @jax.jit
    def tick(state, observation, step):
        action = policy(step_key(1, "policy", step), observation)
        return env.step(noise_keys(1, "test", count, step), state, action, params)

    totals = np.zeros((count, 3 + len(env.spec.costs)))
    for step in range(env.spec.episode_agent_steps):
        state, shown = tick(state, shown.observation, step)
        totals += np.concatenate([np.stack([shown.reward, shown.cost, shown.goals], axis=1), shown.costs], axis=1)
    return totals


def policy_rows(recorded: dict[str, np.ndarray], task: str, count: int) -> tuple[list[str], bool]:
    """Means with 95 % intervals, and Welch's interval of their difference."""
    costs = registry.GOAL_TASKS[task][0].costs
    named = ["return", "cost", "goals", *(f"cost of {name}" for name in costs if len(costs) > 1)]
    rows = ["| policy | number | real | ours | ours - real | p |", "|---|---|---|---|---|---|"]
    least = 1.0
    for policy in ("go_to_goal", "random"):
        theirs, ours = recorded[f"{policy}_episodes"].astype(float), our_episodes(task, policy, count)
        for index, name in enumerate(named):
            test = stats.ttest_ind(ours[:, index], theirs[:, index], equal_var=False)
            low, high = test.confidence_interval(0.95)
            least = min(least, test.pvalue) if index < 3 else least
            difference = f"{(low + high) / 2:+.2f} [{low:+.2f}, {high:+.2f}]"
            both = f"{mean_text(theirs[:, index])} | {mean_text(ours[:, index])}"
            rows.append(f"| {policy.replace('_', ' ')} | {name} | {both} | {difference} | {test.pvalue:.2f} |")
    return rows, bool(least > TEST_LEVEL)


def mean_text(values: np.ndarray) -> str:
    """Mean ± half of the 95 % interval, and how many episodes."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():.2f} ± {half:.2f} (n={len(values)})"


def main() -> int:
    """Compares, prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--episodes", type=int, default=OUR_EPISODES)
    chosen = parser.parse_args()
    recorded = dict(np.load(chosen.recording, allow_pickle=False))
    task = str(recorded["task"])
    level, robot = registry.GOAL_TASKS[task]
    parts = [
        step_rows(recorded, level, robot),
        layout_rows(recorded, level, 8192),
        policy_rows(recorded, task, chosen.episodes),
    ]
    agrees = all(part[1] for part in parts)
    versions = ", ".join(f"{name} {number}" for name, number in json.loads(str(recorded["versions"])).items())
    verdict = "agree" if agrees else "DISAGREE"
    lines = [f"# Parity with the official {task}", "", f"Recorded with {versions}; `make parity` writes this page.", ""]
    for rows, _ in parts:
        lines += [*rows, ""]
    share = f" in {CAR_SHARE:.0%} of the steps and {CAR_LIMIT_METRES:.0e} m in all" if robot.wheels else ""
    limits = f"position error at most {POSITION_LIMIT_METRES:.0e} m{share} and no cost mismatch free of vases, "
    limits += f"none of hazards or goals anywhere, every p of layouts, returns, costs and goals above {TEST_LEVEL:.4f}"
    lines.append(f"Criterion: {limits}. The two {verdict}.")
    text = "\n".join(lines) + "\n"
    print(text)
    if chosen.output:
        chosen.output.write_text(text, encoding="utf-8")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
