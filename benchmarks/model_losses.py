"""What a small world model learns with each kind of dynamics and of losses: `python -m benchmarks.model_losses`.

Everything else is the same: recorded episodes under random actions, first weights, batches. No behaviour is learned.
Rows are measured in open loop on episodes that none of them saw: the unexplained variance of latents, the explained
variance of rewards, and the variance of observations that a linear map from the latents reached, one per step, misses.
"""

import argparse
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.progress import track

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm.agent import MODEL_ADAM
from dreamproof.agents.pwm.world_model import PwmWorldModel, model_gradients, observed_scales
from dreamproof.envs.registry import make as make_env
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.nn.optimiser import AdamState, adam_step, init_adam
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.traced import traced_values

BATCH, JUDGED, PROBED = 64, 512, 8192
AFTER = (1, 4, 8, 16)
SMALL = {"units": [256, 256], "encoder_units": [128], "latent": 128}
V1 = {"kind": "flow", "integrator": "heun", "substeps": 2}
LOGITS = V1 | {"space": "logits"}
EULER = {"kind": "flow", "integrator": "euler", "substeps": 1}
# Name, dynamics, and the weights of its losses.
FORK = {"source_pull": 1.0, "endpoint_scale": 0.0}
ROWS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("plain network", {"kind": "mlp"}, {}),
    ("plain network, decoder", {"kind": "mlp"}, {"decoder": True}),
    ("one Euler step", EULER, {}),
    ("one Euler step, decoder", EULER, {"decoder": True}),
    ("V1, as in the fork", V1, FORK),
    ("V1, no pull", V1, FORK | {"source_pull": 0.0}),
    ("V1, end reached", V1, FORK | {"endpoint_scale": 1.0}),
    ("V1, no pull, end reached (the default)", V1, {}),
    ("V1, no pull, end alone", V1, {"dynamics_scale": 0.0}),
    ("V1 in logits, no pull, end reached", LOGITS, {}),
]


class Recorded(NamedTuple):
    """Rows (T, E, ...); an action is the one that led to its row."""

    observation: Array
    action: Array
    reward: Array


class Measured(NamedTuple):
    """Variance of latents; its unexplained share, the explained share of rewards (T,), the missed one of observations.

    Observations are measured from the encoding itself on (T+1,).
    """

    spread: Array
    unexplained: Array
    reward: Array
    missed: Array


def recorded(asked: argparse.Namespace) -> Recorded:
    """Episodes under random actions that last a few steps."""
    env = make_env(asked.task)
    params = env.default_params()
    first, key = jax.random.split(jax.random.key(asked.seed))

    def step(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Recorded]:
        state, action = carry
        action = jnp.clip(0.8 * action + 0.6 * jax.random.normal(key, action.shape), -1.0, 1.0)
        state, seen = env.step(jax.random.split(key, asked.envs), state, action, params)
        return (state, action), Recorded(seen.observation, action, seen.reward)

    @jax.jit
    def rollout(first: Array, key: Array) -> Recorded:
        state, _ = env.reset(jax.random.split(first, asked.envs), params)
        still = jnp.zeros((asked.envs, env.spec.action_size))
        return jax.lax.scan(step, (state, still), jax.random.split(key, asked.steps))[1]

    return rollout(first, key)


def split_envs(rows: Recorded) -> int:
    """The first env that is not learned from: a quarter of them is left to judge by."""
    envs = rows.reward.shape[1]
    return envs - envs // 4


def windows(rows: Recorded, key: Array, envs: tuple[int, int], shape: tuple[int, int]) -> Windows:
    """Windows (T+1, B, ...) of some envs, for a shape (T, B)."""
    start_key, env_key = jax.random.split(key)
    steps, count = shape
    start = jax.random.randint(start_key, (count,), 0, rows.reward.shape[0] - steps)
    at = start + jnp.arange(steps + 1)[:, None], jax.random.randint(env_key, (count,), *envs)
    none = jnp.zeros((steps + 1, count))
    return Windows(rows.observation[at], rows.action[at], rows.reward[at], none, none, jnp.ones(()))


@eqx.filter_jit
def learned(
    model: PwmWorldModel, state: AdamState, rows: Recorded, key: Array, plan: tuple[int, dict[str, Array]]
) -> tuple[PwmWorldModel, AdamState]:
    """One update, from windows of so many steps with losses of such scales."""
    drawn, loss_key = jax.random.split(key)
    steps, scales = plan
    seen = windows(rows, drawn, (0, split_envs(rows)), (steps, BATCH))
    gradients, _ = model_gradients(model, seen, loss_key, scales | observed_scales(seen))
    settings = model.settings.world_model
    step = adam_step(model, gradients, state, settings.learning_rate, settings.clip, MODEL_ADAM)
    return step.model, step.state


@eqx.filter_jit
def judged(model: PwmWorldModel, seen: Windows, unseen: Windows) -> Measured:
    """The model in open loop on windows it never saw; probes of what it reaches learn from those that it did see."""
    given, true = unseen.action[1:], unseen.reward[1:]
    z = model.encode(unseen.observation)
    reached = model.roll_out(z[0], given, jax.random.key(0))
    spread = z.var((0, 1)).mean()
    explained = 1 - jnp.square(model.reward(reached[:-1], given) - true).mean(1) / true.var(1)

    scales = observed_scales(seen)

    def standard(windows: Windows) -> Array:
        return (windows.observation - scales["observed_mean"]) / scales["observed_deviation"]

    def probed(learned: Array, target: Array, judged: Array) -> Array:
        known = with_one(learned)
        return with_one(judged) @ jnp.linalg.solve(known.T @ known + 1e-3 * jnp.eye(known.shape[1]), known.T @ target)

    before = model.roll_out(model.encode(seen.observation[0]), seen.action[1:], jax.random.key(1))
    missed = jnp.square(jax.vmap(probed)(before, standard(seen), reached) - standard(unseen))
    return Measured(spread, jnp.square(reached - z).mean((1, 2))[1:] / spread, explained, missed.mean((1, 2)))


def with_one(z: Array) -> Array:
    """Latents (..., L+1) with a 1 behind them."""
    return jnp.concatenate([z, jnp.ones((*z.shape[:-1], 1))], -1)


def row(rows: Recorded, asked: argparse.Namespace, named: tuple[str, dict[str, Any], dict[str, Any]]) -> Measured:
    """One way of training, from the first weights on."""
    name, dynamics, losses = named
    settings = PwmSettings.model_validate({"world_model": SMALL | losses, "dynamics": dynamics, "precision": "float32"})
    model = PwmWorldModel(jax.random.key(asked.seed), make_env(asked.task).spec, settings, jnp.float32)
    scales = jax.tree.map(jnp.asarray, traced_values(settings.world_model))
    state, batches = init_adam(model), jax.random.split(jax.random.key(asked.seed + 1), asked.updates)
    for key in track(batches, description=name, transient=True, console=Console(stderr=True)):
        model, state = learned(model, state, rows, key, (asked.window, scales))
    split, envs = split_envs(rows), rows.reward.shape[1]
    seen = windows(rows, jax.random.key(98), (0, split), (asked.window, PROBED))
    return judged(model, seen, windows(rows, jax.random.key(99), (split, envs), (asked.window, JUDGED)))


def percents(values: Array, places: list[int]) -> str:
    """The values at some places."""
    return " · ".join(f"{100 * float(value):.0f}" for value in np.asarray(values)[places])


def main() -> None:
    """Prints a row of a table for every way of training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="cheetah-run")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400, help="of every env; one that falls is not set up again")
    parser.add_argument("--window", type=int, default=16, help="steps of a window")
    parser.add_argument("--updates", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=[name for name, _, _ in ROWS], help="these rows alone")
    asked = parser.parse_args()
    if asked.envs < 4 or asked.steps <= asked.window:
        parser.error("a quarter of the envs is left to judge by, and their steps must hold a window: take more of them")
    use_compilation_cache()
    rows = recorded(asked)
    after = [step for step in AFTER if step <= asked.window]
    print(
        f"| after {', '.join(map(str, after))} steps | latents vary by | unexplained, % | reward explained, % |", end=""
    )
    print(" observations missed, % (at once first) |\n|---|---:|---|---|---|")
    for named in ROWS:
        if asked.only and named[0] not in asked.only:
            continue
        found, places = row(rows, asked, named), [step - 1 for step in after]
        cells = (
            f"{found.spread:.4f}",
            percents(found.unexplained, places),
            percents(found.reward, places),
            percents(found.missed, [0, *after]),
        )
        print(f"| {named[0]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
