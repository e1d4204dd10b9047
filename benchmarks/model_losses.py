"""What a small world model learns with each kind of dynamics and of losses: `python -m benchmarks.model_losses`.

Everything else is the same: recorded episodes under random actions, first weights, batches. No behaviour is learned.
Several seeds of first weights and batches learn in one program. All is measured on episodes that no model saw:

- open loop: the unexplained variance of latents, the explained variance of rewards, and the variance of observations
  that a linear map from the latents reached, one per step, misses;
- gradient of the predicted return of a few steps by the first action, against finite differences in the environment;
- of a flow also: the same with its network in one Euler step, the error of the end predicted at a time of the straight
  path to the true end, and how much another action changes that prediction.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.progress import track

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm.agent import MODEL_ADAM, PwmAgent
from dreamproof.agents.pwm.dynamics import FlowDynamics, make_dynamics
from dreamproof.agents.pwm.world_model import PwmWorldModel, observed_scales
from dreamproof.agents.pwm.world_model import model_gradients as loss_gradients
from dreamproof.base.commit import code_name
from dreamproof.envs.api import Env
from dreamproof.envs.registry import make as make_env
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.nn.optimiser import AdamState, adam_step, init_adam
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.traced import traced_values
from dreamproof.testing.model_measures import HORIZONS, STEPS, Starts, model_gradients, true_gradients

JUDGED, PROBED = 512, 1024
EVERY = 25
"""Agent steps between two recorded env states."""
CHUNK = 50
"""Updates of one call."""
AFTER = (1, 4, 16)
GRADED = (2, 4, 8)
TIMES = (0.0, 0.25, 0.5, 0.75, 1.0)
V1 = {"kind": "flow", "integrator": "heun", "substeps": 2}
V2, V3 = V1 | {"substeps": 4}, {"kind": "flow", "integrator": "euler", "substeps": 8}
LOGITS = V1 | {"space": "logits"}
EULER = {"kind": "flow", "integrator": "euler", "substeps": 1}
END = {"predicts": "end"}
SKIP = END | {"skip": True}
# Name, dynamics, and the weights of its losses.
FORK = {"source_pull": 1.0, "endpoint_scale": 0.0}
ROWS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("MLP", {"kind": "mlp"}, {}),
    ("MLP, dynamics_scale 2", {"kind": "mlp"}, {"dynamics_scale": 2.0}),
    ("MLP, decoder", {"kind": "mlp"}, {"decoder": True}),
    ("Euler 1, end", EULER | END, {}),
    ("V1, end", V1 | END, {}),
    ("V1, end, dynamics_scale 0", V1 | END, {"dynamics_scale": 0.0}),
    ("V2, end", V2 | END, {}),
    ("V3, end", V3 | END, {}),
    ("V1, end, skip", V1 | SKIP, {}),
    ("V2, end, skip", V2 | SKIP, {}),
    ("V3, end, skip", V3 | SKIP, {}),
    ("Euler 1, velocity", EULER, {}),
    ("Euler 1, velocity, decoder", EULER, {"decoder": True}),
    ("V1, velocity (the default)", V1, {}),
    ("V2, velocity", V2, {}),
    ("V1, velocity, as in the fork", V1, FORK),
    ("V1, velocity, no pull", V1, FORK | {"source_pull": 0.0}),
    ("V1, velocity, end reached", V1, FORK | {"endpoint_scale": 1.0}),
    ("V1, velocity, dynamics_scale 0", V1, {"dynamics_scale": 0.0}),
    ("V1 in logits", LOGITS, {}),
]


class Recorded(NamedTuple):
    """Rows (T, E, ...); an action is the one that led to its row."""

    observation: Array
    action: Array
    reward: Array


class Plan(NamedTuple):
    """Windows of one update: their steps and their number."""

    window: int
    batch: int


class OpenLoop(NamedTuple):
    """Over the steps: unexplained share of latents, explained one of rewards, missed one of observations (T+1,).

    Observations are measured from the encoding itself on.
    """

    spread: Array
    unexplained: Array
    reward: Array
    missed: Array


class PathErrors(NamedTuple):
    """Of the end predicted at every one of TIMES: error, and change by another action, as shares of the variance."""

    error: Array
    action: Array


def recorded(env: Env, asked: argparse.Namespace) -> tuple[Recorded, Any]:
    """Episodes under random actions that last a few steps, and env states (T/EVERY, E, ...) after every EVERY steps."""
    params = env.default_params()
    first, key = jax.random.split(jax.random.key(asked.seed))

    def step(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Recorded]:
        state, action = carry
        action = jnp.clip(0.8 * action + 0.6 * jax.random.normal(key, action.shape), -1.0, 1.0)
        state, seen = env.step(jax.random.split(key, asked.envs), state, action, params)
        return (state, action), Recorded(seen.observation, action, seen.reward)

    def block(carry: tuple[Any, Array], keys: Array) -> tuple[tuple[Any, Array], tuple[Recorded, Any]]:
        carry, rows = jax.lax.scan(step, carry, keys)
        return carry, (rows, carry[0])

    @jax.jit
    def rollout(first: Array, key: Array) -> tuple[Recorded, Any]:
        state, _ = env.reset(jax.random.split(first, asked.envs), params)
        still = jnp.zeros((asked.envs, env.spec.action_size))
        keys = jax.random.split(key, asked.steps).reshape(-1, EVERY)
        rows, states = jax.lax.scan(block, (state, still), keys)[1]
        return jax.tree.map(lambda part: part.reshape(asked.steps, *part.shape[2:]), rows), states

    return rollout(first, key)


def split_envs(rows: Recorded) -> int:
    """The first env that is not learned from: a quarter of them is left to judge by."""
    envs = rows.reward.shape[1]
    return envs - envs // 4


def held_out_starts(rows: Recorded, states: Any) -> Starts:
    """Recorded env states of unseen episodes, and the STEPS steps that followed each."""
    envs = slice(split_envs(rows), None)
    places = np.arange(EVERY, rows.reward.shape[0] - STEPS + 1, EVERY)
    after = places[None] + np.arange(STEPS)[:, None]
    count = len(places) * (rows.reward.shape[1] - envs.start)

    def joined(part: Array) -> Array:
        return part.reshape(part.shape[0], count, *part.shape[3:])

    return Starts(
        env=jax.tree.map(lambda part: joined(part[None, : len(places), envs])[0], states),
        observation=joined(rows.observation[np.concatenate([places[None] - 1, after])][:, :, envs]),
        action=joined(rows.action[after][:, :, envs]),
        reward=joined(rows.reward[after][:, :, envs]),
        counts=jnp.ones(count),
    )


def windows(rows: Recorded, key: Array, envs: tuple[int, int], plan: Plan) -> Windows:
    """Windows (T+1, B, ...) of some envs."""
    start_key, env_key = jax.random.split(key)
    steps, count = plan
    start = jax.random.randint(start_key, (count,), 0, rows.reward.shape[0] - steps)
    at = start + jnp.arange(steps + 1)[:, None], jax.random.randint(env_key, (count,), *envs)
    none = jnp.zeros((steps + 1, count))
    return Windows(rows.observation[at], rows.action[at], rows.reward[at], none, none, jnp.ones(()))


@eqx.filter_jit
def learned(
    models: PwmWorldModel, states: AdamState, rows: Recorded, keys: Array, plan: tuple[Plan, dict[str, Array]]
) -> tuple[PwmWorldModel, AdamState]:
    """Updates of all seeds S with keys (S, updates), from such windows with losses of such scales."""
    shape, scales = plan
    arrays, static = eqx.partition(models, eqx.is_array)
    settings = models.settings.world_model

    def update(carry: tuple[Any, AdamState], key: Array) -> tuple[tuple[Any, AdamState], None]:
        model, state = eqx.combine(carry[0], static), carry[1]
        drawn, loss_key = jax.random.split(key)
        seen = windows(rows, drawn, (0, split_envs(rows)), shape)
        gradients, _ = loss_gradients(model, seen, loss_key, scales | observed_scales(seen))
        step = adam_step(model, gradients, state, settings.learning_rate, settings.clip, MODEL_ADAM)
        return (eqx.filter(step.model, eqx.is_array), step.state), None

    def one(arrays: Any, state: AdamState, keys: Array) -> tuple[Any, AdamState]:
        return jax.lax.scan(update, (arrays, state), keys)[0]

    arrays, states = jax.vmap(one)(arrays, states, keys)
    return eqx.combine(arrays, static), states


def rolled_out(model: PwmWorldModel, z: Array, given: Array) -> Array:
    """Latents (T+1, B, L) in open loop."""
    return model.roll_out(z, given, jax.random.key(0))


@eqx.filter_jit
def open_loop(model: PwmWorldModel, seen: Windows, unseen: Windows) -> OpenLoop:
    """The model in open loop on windows it never saw; probes of what it reaches learn from those that it did see."""
    given, true = unseen.action[1:], unseen.reward[1:]
    z = model.encode(unseen.observation)
    reached = rolled_out(model, z[0], given)
    spread = z.var((0, 1)).mean()
    explained = 1 - jnp.square(model.reward(reached[:-1], given) - true).mean(1) / true.var(1)

    scales = observed_scales(seen)

    def standard(windows: Windows) -> Array:
        return (windows.observation - scales["observed_mean"]) / scales["observed_deviation"]

    def probed(learned: Array, target: Array, judged: Array) -> Array:
        known = with_one(learned)
        return with_one(judged) @ jnp.linalg.solve(known.T @ known + 1e-3 * jnp.eye(known.shape[1]), known.T @ target)

    before = rolled_out(model, model.encode(seen.observation[0]), seen.action[1:])
    missed = jnp.square(jax.vmap(probed)(before, standard(seen), reached) - standard(unseen))
    return OpenLoop(spread, jnp.square(reached - z).mean((1, 2))[1:] / spread, explained, missed.mean((1, 2)))


def with_one(z: Array) -> Array:
    """Latents (..., L+1) with a 1 behind them."""
    return jnp.concatenate([z, jnp.ones((*z.shape[:-1], 1))], -1)


@eqx.filter_jit
def along_the_path(model: PwmWorldModel, unseen: Windows) -> PathErrors:
    """The end that a flow predicts from points of the straight path between true latents."""
    flow = model.dynamics
    assert isinstance(flow, FlowDynamics)
    z, given = model.encode(unseen.observation), unseen.action[1:]
    source, end, spread = z[:-1], z[1:], z.var((0, 1)).mean()

    def predicted(given: Array, at: float) -> Array:
        x, times = (1 - at) * source + at * end, jnp.full((*source.shape[:-1], 1), at)
        made = flow.predicted(x, given, times)
        return made if flow.settings.predicts == "end" else x + (1 - at) * made

    def measured(at: float) -> tuple[Array, Array]:
        own, other = predicted(given, at), predicted(jnp.roll(given, 1, axis=1), at)
        return jnp.square(own - end).mean() / spread, jnp.square(own - other).mean() / spread

    errors, changes = zip(*(measured(at) for at in TIMES), strict=True)
    return PathErrors(jnp.stack(errors), jnp.stack(changes))


def in_one_step(model: PwmWorldModel) -> PwmWorldModel:
    """The same networks; the flow takes one Euler step."""
    flow, widths = model.dynamics, model.settings.world_model.widths
    assert isinstance(flow, FlowDynamics)
    settings = flow.settings.model_copy(update={"integrator": "euler", "substeps": 1})
    sizes = (widths.latent, model.reward_head.inputs - widths.latent)
    made = make_dynamics(jax.random.key(0), sizes, widths.units, flow.group, settings, jnp.float32)
    return eqx.tree_at(lambda model: model.dynamics, model, eqx.tree_at(lambda flow: flow.network, made, flow.network))


def graded(agent: PwmAgent, model: PwmWorldModel, starts: Starts, true: np.ndarray) -> dict[str, list[float]]:
    """Mean cosine with the true gradients and median ratio of lengths at the horizons GRADED, where these are not 0."""
    state = agent.init_state(jax.random.key(0))._replace(model=model)
    own = np.asarray(model_gradients(agent, state, starts, GRADED), np.float64)
    lengths, true_lengths = (np.linalg.norm(part, axis=-1) for part in (own, true))
    counted = true_lengths > 1e-6  # where the reward is clipped, the true gradient is 0
    cosine = (own * true).sum(-1) / np.maximum(lengths * true_lengths, 1e-12)
    rows = list(zip(cosine, lengths, true_lengths, counted, strict=True))
    return {
        "cosine": [float(each[kept].mean()) for each, _, _, kept in rows],
        "gain": [float(np.median(one[kept] / other[kept])) for _, one, other, kept in rows],
    }


class Judge(NamedTuple):
    """What models are measured on."""

    env: Env
    rows: Recorded
    starts: Starts
    true: dict[float, np.ndarray]
    """Discount → gradients (H, S, A) in the environment."""

    def measure(self, agent: PwmAgent, model: PwmWorldModel) -> dict[str, Any]:
        """Everything about one model."""
        split, envs = split_envs(self.rows), self.rows.reward.shape[1]
        seen = windows(self.rows, jax.random.key(98), (0, split), Plan(STEPS, PROBED))
        unseen = windows(self.rows, jax.random.key(99), (split, envs), Plan(STEPS, JUDGED))
        true = self.true_gradients(agent.settings.behavior.discount)
        found: dict[str, Any] = open_loop(model, seen, unseen)._asdict() | graded(agent, model, self.starts, true)
        if isinstance(model.dynamics, FlowDynamics):
            once = in_one_step(model)
            found |= {f"path_{name}": value for name, value in along_the_path(model, unseen)._asdict().items()}
            single = open_loop(once, seen, unseen)._asdict() | graded(agent, once, self.starts, true)
            found |= {f"once_{name}": value for name, value in single.items()}
        return {name: np.asarray(value).tolist() for name, value in found.items()}

    def true_gradients(self, discount: float) -> np.ndarray:
        """At the horizons GRADED."""
        if discount not in self.true:
            whole = true_gradients(self.env, self.starts, discount)
            self.true[discount] = np.asarray(whole, np.float64)[[HORIZONS.index(horizon) for horizon in GRADED]]
        return self.true[discount]


def sizes(width: int) -> dict[str, Any]:
    """Of a small world model."""
    return {"units": [width, width], "encoder_units": [width // 2], "latent": width // 2}


def row(judge: Judge, asked: argparse.Namespace, named: tuple[str, dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """One way of training, from the first weights on; measurements have one value per seed."""
    name, dynamics, losses = named
    model_settings = sizes(asked.width) | {"learning_rate": asked.learning_rate} | losses
    settings = PwmSettings.model_validate({"world_model": model_settings, "dynamics": dynamics, "precision": "float32"})
    agent = PwmAgent(judge.env.spec, settings)
    seeds = range(asked.seed, asked.seed + asked.seeds)
    models = eqx.filter_vmap(lambda key: PwmWorldModel(key, judge.env.spec, settings, jnp.float32))(
        jnp.stack([jax.random.key(seed) for seed in seeds])
    )
    states = eqx.filter_vmap(init_adam)(models)
    keys = jnp.stack([jax.random.split(jax.random.key(seed + 1), asked.updates) for seed in seeds])
    plan = (Plan(asked.window, asked.batch), jax.tree.map(jnp.asarray, traced_values(settings.world_model)))
    began, seconds = time.monotonic(), []
    for first in track(range(0, asked.updates, CHUNK), description=name, transient=True, console=Console(stderr=True)):
        models, states = learned(models, states, judge.rows, keys[:, first : first + CHUNK], plan)
        jax.block_until_ready(states)
        seconds.append(time.monotonic() - began)
        began = time.monotonic()
    arrays, static = eqx.partition(models, eqx.is_array)
    each = [eqx.combine(jax.tree.map(lambda part, at=at: part[at], arrays), static) for at in range(asked.seeds)]
    found = [judge.measure(agent, model) for model in each]
    parameters = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(each[0].dynamics, eqx.is_array)))
    return {
        "row": name,
        "parameters": parameters,
        "milliseconds": 1000 * float(np.median(seconds[-5:])) / CHUNK / asked.seeds,
        **{key: [one[key] for one in found] for key in found[0]},
    }


def cell(values: Any, places: list[int], factor: float = 100.0) -> str:
    """Mean (least–most) over seeds of values (S, …) at some places."""
    rows = np.asarray(values)[:, places] * factor
    digits = 0 if factor > 1 else 2
    return " · ".join(
        f"{column.mean():.{digits}f} ({column.min():.{digits}f}–{column.max():.{digits}f})" for column in rows.T
    )


def lines_of(found: dict[str, Any]) -> tuple[str, str | None]:
    """A row of the first table, and of the one about flows."""
    steps, horizons, times = [step - 1 for step in AFTER], list(range(len(GRADED))), [0, TIMES.index(0.5), -1]
    cells = [
        cell(found["unexplained"], steps),
        cell(found["reward"], steps),
        cell(found["missed"], [0, *AFTER]),
        cell(found["cosine"], horizons, 1.0),
        cell(found["gain"], horizons, 1.0),
        f"{np.mean(found['spread']):.4f}",
        f"{found['parameters']:,}",
        f"{found['milliseconds']:.1f}",
    ]
    whole = f"| {found['row']} | {' | '.join(cells)} |"
    if "once_cosine" not in found:
        return whole, None
    cells = [
        cell(found["once_unexplained"], steps),
        cell(found["once_cosine"], horizons, 1.0),
        cell(found["path_error"], times),
        cell(found["path_action"], times),
    ]
    return whole, f"| {found['row']} | {' | '.join(cells)} |"


def header(heads: list[str]) -> str:
    """The first two lines of a table."""
    return f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|"


def parsed() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cheetah-run")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400, help="of every env; one that falls is not set up again")
    parser.add_argument("--window", type=int, default=16, help="steps of a window that is learned from")
    parser.add_argument("--batch", type=int, default=64, help="windows per update")
    parser.add_argument("--updates", type=int, default=1600)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--width", type=int, default=256, help="hidden units; latents and encoder have half as many")
    parser.add_argument("--seed", type=int, default=0, help="first seed, and that of the episodes")
    parser.add_argument("--seeds", type=int, default=1, help="of first weights and batches")
    parser.add_argument("--only", nargs="*", choices=[name for name, _, _ in ROWS], help="these rows alone")
    parser.add_argument("--output", type=Path, help="file to which every row is appended as JSON")
    asked = parser.parse_args()
    if asked.envs < 4 or asked.steps % EVERY or asked.steps < max(EVERY + STEPS, asked.window + 1):
        parser.error(
            f"a quarter of the envs is left to judge by: at least 4. --steps is a multiple of {EVERY}, and at least "
            f"{EVERY + STEPS} and longer than a window"
        )
    return asked


def main() -> None:
    """Prints a row of two tables for every way of training."""
    asked = parsed()
    use_compilation_cache()
    env = make_env(asked.task)
    rows, states = recorded(env, asked)
    judge = Judge(env, rows, held_out_starts(rows, states), {})
    after, horizons = (", ".join(map(str, steps)) for steps in (AFTER, GRADED))
    of_flows = []
    heads = [
        "mean (range) of seeds",
        f"unexplained after {after} steps, %",
        f"reward explained after {after}, %",
        f"observations missed after 0, {after}, %",
        f"cosine of the gradient, horizons {horizons}",
        "its length / true length",
        "variance of latents",
        "parameters of the dynamics",
        "ms per update and seed",
    ]
    print(header(heads), flush=True)
    by_name = {named[0]: named for named in ROWS}
    for name in asked.only or by_name:
        found = row(judge, asked, by_name[name])
        if asked.output is not None:
            shown = {key: value for key, value in vars(asked).items() if key not in ("only", "output")}
            with asked.output.open("a") as file:
                file.write(json.dumps(found | {"commit": code_name(), "asked": shown}) + "\n")
        whole, flow = lines_of(found)
        print(whole, flush=True)
        of_flows += [flow] if flow else []
    heads = [
        "flows",
        f"in one Euler step: unexplained after {after}, %",
        f"cosine, horizons {horizons}",
        "error of the end predicted at times 0, ½, 1, %",
        "its change by another action, %",
    ]
    print("\n" + "\n".join([header(heads), *of_flows]))


if __name__ == "__main__":
    main()
