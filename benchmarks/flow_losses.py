"""What a small world model learns with each way of training a flow: `python -m benchmarks.flow_losses`.

Everything but the loss is the same: recorded episodes of `cheetah-run` under random actions, first weights, batches. No
behaviour is learned. Rows are judged on episodes that none of them saw.
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

from dreamproof.agents.pwm.agent import MODEL_ADAM
from dreamproof.agents.pwm.world_model import Windows, WorldModel, model_gradients
from dreamproof.envs.registry import make as make_env
from dreamproof.jaxcore.devices import use_compilation_cache
from dreamproof.nn.optimiser import AdamState, adam_step, init_adam
from dreamproof.settings.pwm import Pwm
from dreamproof.settings.traced import traced_values

ENVS, STEPS, UNSEEN = 64, 400, 16
HORIZON, BATCH, JUDGED = 16, 64, 512
SMALL = {"units": [256, 256], "encoder_units": [128], "latent": 128}
V1 = {"kind": "flow", "integrator": "heun", "substeps": 2}
LOGITS = V1 | {"space": "logits"}
# Name, dynamics, and the weights of its losses.
FORK = {"source_pull": 1.0, "endpoint_scale": 0.0}
ROWS: list[tuple[str, dict[str, Any], dict[str, float]]] = [
    ("plain network", {"kind": "mlp"}, {}),
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


class Judged(NamedTuple):
    """What latents vary by, and of their and the reward's variance what is left or told after 1, 4, 8 and 16 steps."""

    spread: Array
    unexplained: Array
    reward: Array


@jax.jit
def recorded(key: Array) -> Recorded:
    """Episodes under random actions that last a few steps."""
    env = make_env("cheetah-run")
    params = env.default_params()
    first, key = jax.random.split(key)
    state, _ = env.reset(jax.random.split(first, ENVS), params)

    def step(carry: tuple[Any, Array], key: Array) -> tuple[tuple[Any, Array], Recorded]:
        state, action = carry
        action = jnp.clip(0.8 * action + 0.6 * jax.random.normal(key, action.shape), -1.0, 1.0)
        state, seen = env.step(jax.random.split(key, ENVS), state, action, params)
        return (state, action), Recorded(seen.observation, action, seen.reward)

    still = jnp.zeros((ENVS, env.spec.action_size))
    return jax.lax.scan(step, (state, still), jax.random.split(key, STEPS))[1]


def windows(rows: Recorded, key: Array, envs: tuple[int, int], count: int) -> Windows:
    """Windows (17, count, ...) of some envs."""
    start_key, env_key = jax.random.split(key)
    start = jax.random.randint(start_key, (count,), 0, STEPS - HORIZON)
    at = start + jnp.arange(HORIZON + 1)[:, None], jax.random.randint(env_key, (count,), *envs)
    none = jnp.zeros((HORIZON + 1, count))
    return Windows(rows.observation[at], rows.action[at], rows.reward[at], none, none, jnp.ones(()))


@eqx.filter_jit
def learned(
    model: WorldModel, state: AdamState, rows: Recorded, key: Array, scales: dict[str, Array]
) -> tuple[WorldModel, AdamState]:
    """One update."""
    drawn, loss_key = jax.random.split(key)
    seen = windows(rows, drawn, (0, ENVS - UNSEEN), BATCH)
    gradients, _ = model_gradients(model, seen, loss_key, scales)
    told = model.settings.world_model
    step = adam_step(model, gradients, state, told.learning_rate, told.clip, MODEL_ADAM)
    return step.model, step.state


@eqx.filter_jit
def judged(model: WorldModel, unseen: Windows) -> Judged:
    """The model in open loop on windows it never saw."""
    given, true = unseen.action[1:], unseen.reward[1:]
    z = model.encode(unseen.observation)
    reached = model.roll_out(z[0], given, jax.random.key(0))
    spread = z.var((0, 1)).mean()
    told = 1 - jnp.square(model.reward(reached[:-1], given) - true).mean(1) / true.var(1)
    return Judged(spread, jnp.square(reached - z).mean((1, 2))[1:] / spread, told)


def row(
    rows: Recorded, dynamics: dict[str, Any], losses: dict[str, float], updates: int, seed: int, name: str
) -> Judged:
    """One way of training, from the first weights on."""
    settings = Pwm.model_validate({"world_model": SMALL | losses, "dynamics": dynamics, "precision": "float32"})
    model = WorldModel(jax.random.key(seed), make_env("cheetah-run").spec, settings, jnp.float32)
    scales = jax.tree.map(jnp.asarray, traced_values(settings.world_model))
    state, batches = init_adam(model), jax.random.split(jax.random.key(seed + 1), updates)
    for key in track(batches, description=name, transient=True, console=Console(stderr=True)):
        model, state = learned(model, state, rows, key, scales)
    return judged(model, windows(rows, jax.random.key(99), (ENVS - UNSEEN, ENVS), JUDGED))


def percents(values: Array) -> str:
    """After 1, 4, 8 and 16 steps."""
    return " · ".join(f"{100 * float(value):.0f}" for value in np.asarray(values)[[0, 3, 7, 15]])


def main() -> None:
    """Prints a row of a table for every way of training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="rows whose names hold one of these")
    told = parser.parse_args()
    use_compilation_cache()
    rows = recorded(jax.random.key(told.seed))
    print("| | latents vary by | unexplained after 1, 4, 8, 16 steps, % | reward explained, % |\n|---|---:|---|---|")
    for name, dynamics, losses in ROWS:
        if told.only and not any(part in name for part in told.only):
            continue
        found = row(rows, dynamics, losses, told.updates, told.seed, name)
        print(f"| {name} | {found.spread:.4f} | {percents(found.unexplained)} | {percents(found.reward)} |", flush=True)


if __name__ == "__main__":
    main()
