"""What a trained world model predicts, and whether its gradients are true: the measures of `benchmarks.dynamics`."""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.pwm.agent import PwmAgent, PwmState
from dreamproof.agents.pwm.rewards import reward_divisor
from dreamproof.base.errors import BadInput
from dreamproof.envs.api import Env
from dreamproof.envs.episodes import episode_keys
from dreamproof.jaxcore.keys import step_key

STEPS = 16
HORIZONS = (2, 4, 8, 16)
DISTANCE = 0.05
RIDGE = 1e-3
REPEATS = 5
PREDICTED = "steps predicted in open loop"
PANELS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "observation": ("missed variance of observations", PREDICTED, tuple(range(1, STEPS + 1))),
    "reward": ("explained variance of rewards", f"{PREDICTED} (0: reward head alone)", tuple(range(STEPS + 1))),
    "cosine": ("cosine with the true gradient", "horizon", HORIZONS),
    "gain": ("length of the gradient / true length", "horizon", HORIZONS),
}
"""Title, axis and places of each list of `Measures`."""
COLUMNS: dict[str, tuple[str, tuple[int, ...]]] = {
    "observation": ("missed observations after 1, 4, 16 steps", (1, 4, 16)),
    "reward": ("rewards explained by the reward head alone, after 4, 16 steps", (0, 4, 16)),
    "cosine": ("cosine of the gradient at horizon 2, 4, 16", (2, 4, 16)),
}
EPISODES_OF = {"own": "own episodes", "others": "others' episodes"}


class TrainedAgent(NamedTuple):
    """An agent of one task, and what it acts with."""

    arm: str
    seed: int
    task: str
    agent: PwmAgent
    env: Env
    state: PwmState
    scalars: Any

    @property
    def name(self) -> str:
        return f"{self.arm}/{self.seed}"


class Starts(NamedTuple):
    """S places in episodes: env states (S, ...), what followed, and whether the episode has all steps (S,)."""

    env: Any
    observation: Array  # (STEPS + 1, S, O)
    action: Array  # (STEPS + 1, S, A)
    reward: Array  # (STEPS + 1, S)
    counts: Array


class Measures(NamedTuple):
    """Of one world model on some episodes; lists are over steps or horizons, and NaN where nothing can be measured."""

    observation: list[float]
    latent: list[float]
    reward: list[float]
    cosine: list[float]
    gain: list[float]


class ModelMeasures(NamedTuple):
    """One agent's world model, on its own agent's episodes and, if there are any, on those of the others."""

    arm: str
    seed: int
    own: Measures
    others: Measures | None
    directions: float
    milliseconds: float


def play(trained: TrainedAgent, episodes: int, places: int) -> Starts:
    """Places at equal distances in episodes with the agent's exploration noise."""
    env, params = trained.env, trained.env.default_params()
    layout, noise = episode_keys(0, "validation", episodes)
    scalars = trained.scalars | {"latent_swaps": jnp.zeros(())}

    def step(carry: tuple[Any, Any, Any], index: Array) -> tuple[Any, Any]:
        state, seen, memory = carry
        decided = trained.agent.act(trained.state, memory, seen, step_key(0, "record", index), scalars, explore=True)
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(noise, index)
        following, later = env.step(keys, state, decided.action, params)
        row = (state, seen.observation, decided.action, later.reward, later.terminated | later.truncated)
        return (following, later, decided.memory), row

    @eqx.filter_jit
    def roll_out() -> Any:
        state, seen = env.reset(layout, params)
        start = (state, seen, trained.agent.init_memory(episodes))
        return jax.lax.scan(step, start, jnp.arange(env.spec.episode_agent_steps))[1]

    states, observation, action, reward, over = roll_out()
    first = np.linspace(0, env.spec.episode_agent_steps - STEPS - 1, places).astype(int)
    windows = first[None] + np.arange(STEPS + 1)[:, None]

    def followed(rows: Array, steps: int) -> Array:
        return rows[windows[:steps]].reshape(steps, -1, *rows.shape[2:])

    return Starts(
        env=jax.tree.map(lambda rows: rows[first].reshape(len(first) * episodes, *rows.shape[2:]), states),
        observation=followed(observation, STEPS + 1),
        action=followed(action, STEPS + 1),
        reward=followed(reward, STEPS + 1),
        counts=1.0 - followed(over, STEPS).any(0).astype(jnp.float32),
    )


def join(parts: list[Starts]) -> Starts:
    """The places of all agents."""
    stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(part.env for part in parts))
    observation, action, reward = (
        jnp.concatenate(fields, 1) for fields in zip(*(part[1:4] for part in parts), strict=True)
    )
    return Starts(stacked, observation, action, reward, jnp.concatenate([part.counts for part in parts]))


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
        return jnp.cumsum(jax.lax.scan(step, starts.env, (taken[:STEPS], jnp.arange(STEPS)))[1], 0)

    def along(index: Array) -> Array:
        shift = DISTANCE * jax.nn.one_hot(index, actions)
        high, low = (jnp.clip(starts.action[0] + sign * shift, -1.0, 1.0) for sign in (1.0, -1.0))
        width = (high - low)[:, index]
        return (returns(high) - returns(low)) / width

    found = jax.jit(lambda: jax.lax.map(along, jnp.arange(actions)))()
    return jnp.moveaxis(found, 0, -1)[jnp.asarray(HORIZONS) - 1]


@eqx.filter_jit
def open_loop(fixed: PwmAgent, state: PwmState, starts: Starts) -> tuple[Array, Array, Array]:
    """Encoded and predicted latents (STEPS + 1, S, L), and predicted rewards (STEPS + 1, S)."""
    model = state.model
    encoded, dynamics = fixed.encode(model, starts.observation), model.fixed_dynamics

    def step(z: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
        action, key = xs
        z = dynamics.next(z, action, key)
        return z, z

    keys = jax.random.split(jax.random.key(0), STEPS)
    later = jax.lax.scan(step, encoded[0], (starts.action[:STEPS], keys))[1]
    predicted = jnp.concatenate([encoded[:1], later])
    return encoded, predicted, model.reward(predicted, starts.action)


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
    if not counts.any():
        return float("nan")
    mean = np.average(true, axis=0, weights=counts)
    error, spread = (np.average(((true - other) ** 2).sum(-1), weights=counts) for other in (predicted, mean))
    return float(error / max(spread, 1e-12))


def explained_by_line(predicted: np.ndarray, true: np.ndarray, counts: np.ndarray) -> float:
    """Squared correlation (S,): the scale of predicted rewards is the agent's own."""
    rows = counts > 0
    if not rows.any():
        return float("nan")
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


def check_same_task(agents: list[TrainedAgent]) -> None:
    """Refuses agents whose returns, and so whose true gradients, are not those of the first one."""

    def facts(trained: TrainedAgent) -> dict[str, Any]:
        discount = trained.agent.settings.behavior.discount
        return {"task": trained.task, "discount": discount, "spec": trained.env.spec}

    first = agents[0]
    for trained in agents[1:]:
        for key, value in facts(trained).items():
            if value != facts(first)[key]:
                raise BadInput(
                    f"{trained.name} has another {key} than {first.name}: {value}, not {facts(first)[key]}",
                    "measure agents of one task and one discount at a time",
                )


def measure(trained: TrainedAgent, starts: Starts, true: np.ndarray, is_own: np.ndarray) -> ModelMeasures:
    """Everything about one agent's world model; `is_own` (S,) marks places of its own agent's episodes."""
    agent, state = trained.agent, trained.state
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
    unit = float(reward_divisor(state.rewards, trained.scalars["world_model"], agent.settings.world_model))
    lengths, true_lengths = (np.linalg.norm(part, axis=-1) for part in (unit * gradients, true))
    cosine = (unit * gradients * true).sum(-1) / np.maximum(lengths * true_lengths, 1e-12)
    rewards = np.asarray(starts.reward)

    def on(places: np.ndarray) -> Measures:
        """On some of the places (S,)."""
        weights = counts * places
        counted = (weights > 0) & (true_lengths > 1e-6)
        return Measures(
            observation=[missed_variance(shown[k], seen[k, judged], weights[judged]) for k in range(1, STEPS + 1)],
            latent=[missed_variance(predicted[k], encoded[k], weights) for k in range(1, STEPS + 1)],
            reward=[explained_by_line(reward[k], rewards[k], weights) for k in range(STEPS + 1)],
            cosine=[float(row[at].mean()) if at.any() else np.nan for row, at in zip(cosine, counted, strict=True)],
            gain=[
                float(np.median(own[at] / other[at])) if at.any() else np.nan
                for own, other, at in zip(lengths, true_lengths, counted, strict=True)
            ],
        )

    spread = np.linalg.eigvalsh(np.cov(encoded[0].T))
    return ModelMeasures(
        arm=trained.arm,
        seed=trained.seed,
        own=on(is_own),
        others=None if is_own.all() else on(~is_own),
        directions=float(spread.sum() ** 2 / (spread**2).sum()),
        milliseconds=milliseconds_per_step(agent, state, starts),
    )


def milliseconds_per_step(agent: PwmAgent, state: PwmState, starts: Starts) -> float:
    """Of one imagined step of all places with its gradient: the fastest of a few."""
    times = []
    for _ in range(REPEATS + 1):
        began = time.monotonic()
        model_gradients(agent, state, starts, (STEPS,)).block_until_ready()
        times.append(1000 * (time.monotonic() - began) / STEPS)
    return min(times[1:])


def lists(found: list[ModelMeasures], arm: str, episodes: str, name: str) -> np.ndarray:
    """One measure of an arm's seeds (seeds, places), on own or others' episodes."""
    parts = [getattr(each, episodes) for each in found if each.arm == arm]
    return np.asarray([getattr(part, name) for part in parts if part is not None])


def table(found: list[ModelMeasures]) -> list[str]:
    """Lines of Markdown, means over seeds: each arm on own and on others' episodes."""
    heads = ["arm", "episodes", *(head for head, _ in COLUMNS.values()), "directions of latents", "ms per step"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in dict.fromkeys(each.arm for each in found):
        own = [each for each in found if each.arm == arm]
        rest = [
            f"{np.mean([each.directions for each in own]):.1f}",
            f"{np.mean([each.milliseconds for each in own]):.2f}",
        ]
        for episodes, label in EPISODES_OF.items():
            parts = []
            for name, (_, places) in COLUMNS.items():
                rows = lists(found, arm, episodes, name)
                columns = [PANELS[name][2].index(place) for place in places]
                parts.append(" · ".join(f"{value:.3f}" for value in rows.mean(0)[columns]) if len(rows) else "–")
            lines.append(f"| {' | '.join([f'`{arm}`', label, *parts, *rest])} |")
            rest = ["", ""]
    return lines


def as_row(found: ModelMeasures) -> dict[str, Any]:
    """What is stored of one agent."""
    others = None if found.others is None else found.others._asdict()
    return found._asdict() | {"own": found.own._asdict(), "others": others}


def from_row(row: dict[str, Any]) -> ModelMeasures:
    """What was stored of one agent; whatever else the row holds is left out."""
    parts = {part: None if row[part] is None else Measures(**row[part]) for part in EPISODES_OF}
    return ModelMeasures(**{name: row[name] for name in ModelMeasures._fields} | parts)
