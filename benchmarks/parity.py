"""Our SafetyPointGoal1 against a recording of the real one: single steps, layouts, and two scripted policies.

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
from dreamproof.envs.point.compare import layout_statistics, one_step, our_layouts
from dreamproof.envs.scripted import FLOORS
from dreamproof.jaxcore.keys import layout_keys, noise_keys, step_key

TASK = "SafetyPointGoal1"
POSITION_LIMIT_METRES = 5e-6
# Nine layout tests and six of the policies: Bonferroni's share of 5 % each.
TEST_LEVEL = 0.05 / 15
OUR_EPISODES = 1024


def step_rows(recorded: dict[str, np.ndarray]) -> tuple[list[str], bool]:
    """Mean and largest one-step errors without vase contact."""
    errors = one_step(recorded)
    free = errors.free_of_vase
    names = {"position": "m", "heading": "rad", "velocity": "m/s", "yaw_rate": "rad/s", "reward": ""}
    rows = ["| one simulator step, no vase contact | mean error | largest error |", "|---|---|---|"]
    for name, unit in names.items():
        error = getattr(errors, name)[free]
        rows.append(f"| {name.replace('_', ' ')} {unit} | {error.mean():.1e} | {error.max():.1e} |")
    counts = f"{errors.cost_mismatches} cost and {errors.goal_mismatches} goal mismatches"
    rows += ["", f"{counts} in {len(free):,} steps ({int(free.sum()):,} out of the vase's reach)."]
    exact = errors.cost_mismatches == 0 and errors.goal_mismatches == 0
    return rows, bool(exact and errors.position[free].max() <= POSITION_LIMIT_METRES)


def layout_rows(recorded: dict[str, np.ndarray], count: int) -> tuple[list[str], bool]:
    """Kolmogorov-Smirnov tests of nine views of the layouts."""
    ours = layout_statistics(*our_layouts(layout_keys(0, "test", count, 0)))
    theirs = layout_statistics(recorded["layouts"], recorded["headings"])
    rows = [f"| layouts: {len(recorded['layouts']):,} real, {count:,} ours | KS distance | p |", "|---|---|---|"]
    least = 1.0
    for name, column in ours.items():
        test = stats.ks_2samp(column, theirs[name])
        least = min(least, test.pvalue)
        rows.append(f"| {name} | {test.statistic:.3f} | {test.pvalue:.2f} |")
    return rows, bool(least > TEST_LEVEL)


def our_episodes(policy_name: str, count: int) -> np.ndarray:
    """Return, cost and goals (E, 3) of whole episodes."""
    env = registry.make(TASK, {"ghost_slots": 0, "vase": "pushed"})
    policy, params = FLOORS[policy_name](env.spec), env.default_params()
    state, shown = jax.jit(env.reset)(layout_keys(1, "test", count, 0), params)

    @jax.jit
    def tick(state, observation, step):
        action = policy(step_key(1, "policy", step), observation)
        return env.step(noise_keys(1, "test", count, step), state, action, params)

    totals = np.zeros((count, 3))
    for step in range(env.spec.episode_agent_steps):
        state, shown = tick(state, shown.observation, step)
        totals += np.stack([shown.reward, shown.cost, shown.goals], axis=1)
    return totals


def policy_rows(recorded: dict[str, np.ndarray], count: int) -> tuple[list[str], bool]:
    """Means with 95 % intervals, and Welch's interval of their difference."""
    rows = ["| policy | number | real | ours | ours - real | p |", "|---|---|---|---|---|---|"]
    least = 1.0
    for policy in ("go_to_goal", "random"):
        theirs, ours = recorded[f"{policy}_episodes"].astype(float), our_episodes(policy, count)
        for index, name in enumerate(("return", "cost", "goals")):
            test = stats.ttest_ind(ours[:, index], theirs[:, index], equal_var=False)
            low, high = test.confidence_interval(0.95)
            least = min(least, test.pvalue)
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
    parts = [step_rows(recorded), layout_rows(recorded, 8192), policy_rows(recorded, chosen.episodes)]
    agrees = all(part[1] for part in parts)
    versions = ", ".join(f"{name} {number}" for name, number in json.loads(str(recorded["versions"])).items())
    verdict = "agree" if agrees else "DISAGREE"
    lines = ["# Parity with the official SafetyPointGoal1", "", f"Recorded with {versions}.", ""]
    for rows, _ in parts:
        lines += [*rows, ""]
    limits = f"position error at most {POSITION_LIMIT_METRES:.0e} m, no mismatch, every p above {TEST_LEVEL:.4f}"
    lines.append(f"Asked: {limits}. The two {verdict}.")
    text = "\n".join(lines) + "\n"
    print(text)
    if chosen.output:
        chosen.output.write_text(text, encoding="utf-8")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
