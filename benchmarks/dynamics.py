"""Why agents with other dynamics do better or worse: `python -m benchmarks.dynamics RUN_DIR… --output FOLDER`.

Trained PWM agents of one task play episodes on validation layouts; every world model is then measured on the episodes
of all agents, none of which it learned from:

- open loop: predicted against encoded latents over 1 to 16 steps, as observations (by a linear map) and as rewards;
- gradient of the return of 1 to 16 imagined steps by the first action, against finite differences in the environment;
- spread of the latents: how many directions they use;
- milliseconds of one imagined step with its gradient.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import Array

from dreamproof.agents.pwm.agent import PwmAgent, PwmState
from dreamproof.agents.pwm.rewards import reward_scale
from dreamproof.base.commit import code_name
from dreamproof.envs.api import Env
from dreamproof.envs.episodes import episode_keys
from dreamproof.evaluate.loading import Loaded, load
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.jaxcore.keys import step_key
from dreamproof.runs.layout import RunFolder

STEPS = 16
HORIZONS = (1, 2, 4, 8, 16)
DISTANCE = 0.05
RIDGE = 1e-3
REPEATS = 5
PANELS = {
    "observation": ("missed variance of observations", "steps predicted in open loop"),
    "reward": ("explained variance of rewards", "steps predicted in open loop"),
    "cosine": ("cosine with the true gradient", "horizon"),
    "gain": ("length of the gradient / true length", "horizon"),
}


class Starts(NamedTuple):
    """S places in episodes: env states (S, ...), what followed, and whether the episode has all steps (S,)."""

    env: Any
    observation: Array  # (STEPS + 1, S, O)
    action: Array  # (STEPS, S, A)
    reward: Array  # (STEPS, S)
    counts: Array


class Found(NamedTuple):
    """One agent's world model; lists are over steps or horizons."""

    arm: str
    seed: int
    observation: list[float]
    latent: list[float]
    reward: list[float]
    cosine: list[float]
    gain: list[float]
    directions: float
    milliseconds: float


def play(loaded: Loaded, episodes: int, places: int) -> Starts:
    """Places at equal distances in episodes with the agent's exploration noise."""
    env, params = loaded.env, loaded.env.default_params()
    layout, noise = episode_keys(0, "validation", episodes)
    scalars = loaded.scalars | {"latent_swaps": jnp.zeros(())}

    def step(carry: tuple[Any, Any, Any], index: Array) -> tuple[Any, Any]:
        state, seen, memory = carry
        decided = loaded.agent.act(loaded.state, memory, seen, step_key(0, "record", index), scalars, explore=True)
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise, index)
        following, later = env.step(keys, state, decided.action, params)
        row = (state, seen.observation, decided.action, later.reward, later.terminated | later.truncated)
        return (following, later, decided.memory), row

    @eqx.filter_jit
    def roll_out() -> Any:
        state, seen = env.reset(layout, params)
        start = (state, seen, loaded.agent.init_memory(episodes))
        return jax.lax.scan(step, start, jnp.arange(env.spec.episode_agent_steps))[1]

    states, observation, action, reward, over = roll_out()
    first = np.linspace(0, env.spec.episode_agent_steps - STEPS - 1, places).astype(int)
    windows = first[None] + np.arange(STEPS + 1)[:, None]

    def followed(rows: Array, steps: int) -> Array:
        return rows[windows[:steps]].reshape(steps, -1, *rows.shape[2:])

    return Starts(
        env=jax.tree.map(lambda rows: rows[first].reshape(len(first) * episodes, *rows.shape[2:]), states),
        observation=followed(observation, STEPS + 1),
        action=followed(action, STEPS),
        reward=followed(reward, STEPS),
        counts=1.0 - followed(over, STEPS).any(0).astype(jnp.float32),
    )


def join(parts: list[Starts]) -> Starts:
    """The places of all agents."""
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(part.env for part in parts))
    later = [jnp.concatenate(fields, 1) for fields in zip(*(part[1:4] for part in parts), strict=True)]
    return Starts(stacked, *later, jnp.concatenate([part.counts for part in parts]))


def true_gradients(env: Env, starts: Starts, discount: float) -> Array:
    """Central differences of the discounted return by the first action, (horizons, S, A)."""
    params, actions = env.default_params(), env.spec.action_size
    count = starts.counts.shape[0]
    keys = jax.random.split(jax.random.key(0), count)

    def returns(first: Array) -> Array:
        """Sums of rewards (STEPS, S) with another first action."""

        def step(state: Any, xs: tuple[Array, Array]) -> tuple[Any, Array]:
            action, index = xs
            noise = jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, index)
            state, seen = env.step(noise, state, action, params)
            return state, seen.reward * discount**index

        taken = starts.action.at[0].set(first)
        return jnp.cumsum(jax.lax.scan(step, starts.env, (taken, jnp.arange(STEPS)))[1], 0)

    def along(index: Array) -> Array:
        shift = DISTANCE * jax.nn.one_hot(index, actions)
        high, low = (jnp.clip(starts.action[0] + sign * shift, -1.0, 1.0) for sign in (1.0, -1.0))
        width = (high - low)[:, index]
        return (returns(high) - returns(low)) / width

    found = jax.jit(lambda: jax.lax.map(along, jnp.arange(actions)))()
    return jnp.moveaxis(found, 0, -1)[jnp.asarray(HORIZONS) - 1]


@eqx.filter_jit
def open_loop(fixed: PwmAgent, state: PwmState, starts: Starts) -> tuple[Array, Array, Array]:
    """Encoded and predicted latents (STEPS + 1, S, L), and predicted rewards (STEPS, S)."""
    model = state.model
    encoded, dynamics = fixed.encode(model, starts.observation), model.fixed_dynamics

    def step(z: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
        action, key = xs
        z = dynamics.next(z, action, key)
        return z, z

    keys = jax.random.split(jax.random.key(0), STEPS)
    later = jax.lax.scan(step, encoded[0], (starts.action, keys))[1]
    predicted = jnp.concatenate([encoded[:1], later])
    return encoded, predicted, model.reward(predicted[:-1], starts.action)


@eqx.filter_jit
def model_gradients(fixed: PwmAgent, state: PwmState, starts: Starts, horizons: tuple[int, ...]) -> Array:
    """Gradients of the discounted imagined return by the first action, (horizons, S, A)."""
    model, discount = state.model, fixed.settings.behavior.discount
    start, dynamics = fixed.encode(model, starts.observation[0]), model.fixed_dynamics

    def returns(first: Array, horizon: int) -> Array:
        def step(z: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
            action, key = xs
            return dynamics.next(z, action, key), model.reward(z, action)

        taken = starts.action[:horizon].at[0].set(first)
        rewards = jax.lax.scan(step, start, (taken, jax.random.split(jax.random.key(0), horizon)))[1]
        return (discount ** jnp.arange(horizon)[:, None] * rewards).sum()

    return jnp.stack([jax.grad(returns)(starts.action[0], horizon) for horizon in horizons])


def missed_variance(predicted: np.ndarray, true: np.ndarray, counts: np.ndarray) -> float:
    """Squared error over the variance of what is true; rows (S, D) with weights (S,)."""
    mean = np.average(true, axis=0, weights=counts)
    error, spread = (np.average(((true - other) ** 2).sum(-1), weights=counts) for other in (predicted, mean))
    return float(error / max(spread, 1e-12))


def explained_by_line(predicted: np.ndarray, true: np.ndarray, counts: np.ndarray) -> float:
    """Squared correlation (S,): the scale of predicted rewards is the agent's own."""
    rows = counts > 0
    if predicted[rows].std() < 1e-9 or true[rows].std() < 1e-9:
        return 0.0
    return float(np.corrcoef(predicted[rows], true[rows])[0, 1] ** 2)


def linear_map(latents: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Ridge regression from latents with a constant (N, L + 1) to observations (N, O)."""
    gram = latents.T @ latents
    ridge = RIDGE * np.trace(gram) / len(gram) * np.eye(len(gram))
    solved: np.ndarray = np.linalg.solve(gram + ridge, latents.T @ observations)
    return solved


def with_constant(latents: np.ndarray) -> np.ndarray:
    """Latents (..., L) with a column of ones."""
    return np.concatenate([latents, np.ones((*latents.shape[:-1], 1), latents.dtype)], -1)


def measure(loaded: Loaded, starts: Starts, true: np.ndarray) -> Found:
    """Everything about one agent's world model."""
    agent, state = loaded.agent, loaded.state
    assert isinstance(agent, PwmAgent) and agent.task.number is None, "agents of a single task"
    encoded, predicted, reward = (np.asarray(part, np.float64) for part in open_loop(agent, state, starts))
    counts = np.asarray(starts.counts)
    seen = np.asarray(starts.observation, np.float64)
    seen = (seen - seen.mean((0, 1))) / np.maximum(seen.std((0, 1)), 1e-6)
    # The map is fitted on every second place and judged on the others.
    fitted, judged = slice(0, None, 2), slice(1, None, 2)
    mapped = linear_map(
        with_constant(encoded[:, fitted]).reshape(-1, encoded.shape[-1] + 1),
        seen[:, fitted].reshape(-1, seen.shape[-1]),
    )
    shown = with_constant(predicted[:, judged]) @ mapped
    gradients = np.asarray(model_gradients(agent, state, starts, HORIZONS), np.float64)
    unit = float(reward_scale(state.rewards, loaded.scalars["world_model"]))
    lengths, true_lengths = (np.linalg.norm(part, axis=-1) for part in (unit * gradients, true))
    cosine = (unit * gradients * true).sum(-1) / np.maximum(lengths * true_lengths, 1e-12)
    counted = (counts > 0) & (true_lengths > 1e-6)
    spread = np.linalg.eigvalsh(np.cov(encoded[0].T))
    return Found(
        arm=loaded.run.arm,
        seed=loaded.run.seed,
        observation=[missed_variance(shown[k], seen[k, judged], counts[judged]) for k in range(1, STEPS + 1)],
        latent=[missed_variance(predicted[k], encoded[k], counts) for k in range(1, STEPS + 1)],
        reward=[explained_by_line(reward[k], np.asarray(starts.reward[k]), counts) for k in range(STEPS)],
        cosine=[float(row[rows].mean()) if rows.any() else 0.0 for row, rows in zip(cosine, counted, strict=True)],
        gain=[
            float(np.median(own[rows] / other[rows])) if rows.any() else 0.0
            for own, other, rows in zip(lengths, true_lengths, counted, strict=True)
        ],
        directions=float(spread.sum() ** 2 / (spread**2).sum()),
        milliseconds=milliseconds_per_step(agent, state, starts),
    )


def milliseconds_per_step(agent: PwmAgent, state: PwmState, starts: Starts) -> float:
    """Of one imagined step of all places with its gradient: the fastest of a few."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.monotonic()
        jax.block_until_ready(model_gradients(agent, state, starts, (STEPS,)))
        times.append(1000 * (time.monotonic() - began) / STEPS)
    return min(times[1:])


def draw(found: list[Found], path: Path) -> None:
    """One panel for each question, one line for each arm with the range of its seeds."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3.4), layout="constrained")
    for axis, (name, (title, label)) in zip(axes, PANELS.items(), strict=True):
        for arm in dict.fromkeys(each.arm for each in found):
            rows = np.asarray([getattr(each, name) for each in found if each.arm == arm])
            at = HORIZONS if rows.shape[1] == len(HORIZONS) else range(1, rows.shape[1] + 1)
            (line,) = axis.plot(at, rows.mean(0), label=arm)
            axis.fill_between(at, rows.min(0), rows.max(0), alpha=0.2, color=line.get_color(), linewidth=0)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(label)
    if all(min(each.gain) > 0 for each in found):
        axes[-1].set_yscale("log")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def table(found: list[Found]) -> list[str]:
    """One line of Markdown for each arm: means over seeds."""
    heads = (
        "arm",
        "missed observations after 1, 4, 16 steps",
        "rewards explained after 1, 4, 16",
        "cosine at horizon 1, 4, 16",
        "directions of latents",
        "ms per step",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in dict.fromkeys(each.arm for each in found):
        own = [each for each in found if each.arm == arm]

        def means(name: str, places: tuple[int, ...], own: list[Found] = own) -> str:
            rows = np.asarray([getattr(each, name) for each in own]).mean(0)
            return " · ".join(f"{rows[place]:.3f}" for place in places)

        parts = [means("observation", (0, 3, 15)), means("reward", (0, 3, 15)), means("cosine", (0, 2, 4))]
        directions, cost = (np.mean([getattr(each, name) for each in own]) for name in ("directions", "milliseconds"))
        lines.append(f"| `{arm}` | {' | '.join(parts)} | {directions:.1f} | {cost:.2f} |")
    return lines


def main() -> None:
    """Plays, measures, draws and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--episodes", type=int, default=2, help="of each agent")
    parser.add_argument("--places", type=int, default=16, help="in each episode")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    use_compilation_cache()
    asked.output.mkdir(parents=True, exist_ok=True)
    agents = [agent for path in asked.run_dirs if (agent := load(RunFolder(path), "final")) is not None]
    starts = join([play(agent, asked.episodes, asked.places) for agent in agents])
    print(
        f"{len(agents)} agents, {starts.counts.shape[0]} places, {int(starts.counts.sum())} of them whole", flush=True
    )
    first = agents[0].agent
    assert isinstance(first, PwmAgent)
    true = np.asarray(true_gradients(agents[0].env, starts, first.settings.behavior.discount), np.float64)
    found = []
    with (asked.output / "dynamics.jsonl").open("w") as file:
        for agent in agents:
            found.append(measure(agent, starts, true))
            file.write(json.dumps(found[-1]._asdict() | {"commit": code_name()}) + "\n")
            file.flush()
            print(f"{found[-1].arm}/{found[-1].seed} measured", flush=True)
    draw(found, asked.output / "dynamics.png")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
