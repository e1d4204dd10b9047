"""Gradients of the PWM world model with the GPU's own kernels against XLA's: `python -m benchmarks.gradients`.

Every row is the gradient of one batch of random windows by all arrays of a 5M model. Its error is the distance from the
gradient in float32 without kernels, relative to that array's size; median and worst of all arrays. Two equal models
learn side by side, as seeds in a pack do, with and without kernels by the same code (nn/deferred.py).
"""

import argparse
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm import world_model
from dreamproof.agents.pwm.agent import PwmAgent
from dreamproof.jaxcore.kernels import can_run_kernels
from dreamproof.jaxcore.types import Spec
from dreamproof.nn import normed
from dreamproof.settings.pwm import PwmSettings
from dreamproof.settings.traced import traced_values

DYNAMICS: dict[str, dict[str, Any]] = {
    "MLP": {"kind": "mlp"},
    "flow of ends with a skip, Heun 2": {
        "kind": "flow",
        "integrator": "heun",
        "substeps": 2,
        "predicts": "end",
        "skip": True,
    },
    "flow of velocities, Heun 4": {"kind": "flow", "integrator": "heun", "substeps": 4},
}
REPLICAS = 2
SPEC = Spec("Random", observation_size=37, action_size=8, episode_agent_steps=1000, terminates=False)


def windows(steps: int, batch: int) -> Windows:
    """Random windows of one length."""
    keys = jax.random.split(jax.random.key(0), 3)
    no = jnp.zeros((steps + 1, batch))
    observation = jax.random.normal(keys[0], (steps + 1, batch, SPEC.observation_size))
    action = jax.random.uniform(keys[1], (steps + 1, batch, SPEC.action_size), minval=-1.0)
    return Windows(observation, action, jax.random.normal(keys[2], no.shape), no, no, jnp.ones(()))


def gradient(dynamics: dict[str, Any], precision: str, kernels: bool, given: Windows, size: str) -> dict[str, Array]:
    """The gradient by the names of the model's arrays; one random model for all rows of the same dynamics."""
    settings = PwmSettings.model_validate(
        {"world_model": {"size": size, "decoder": True}, "dynamics": dynamics, "precision": precision}
    )
    agent = PwmAgent(SPEC, settings)
    state = eqx.filter_jit(agent.init_state)(jax.random.key(1))
    # The last layers begin at 0, where nothing behind them has a gradient.
    model = jax.tree.map(lambda leaf: moved(leaf) if eqx.is_inexact_array(leaf) else leaf, state.model)
    scales = jax.tree.map(jnp.asarray, traced_values(settings))["world_model"] | world_model.observed_scales(given)
    models = jax.tree.map(lambda leaf: jnp.stack([leaf] * REPLICAS) if eqx.is_array(leaf) else leaf, model)
    together = eqx.filter_vmap(agent._model_gradients, in_axes=(eqx.if_array(0), None, None, None))
    with mock.patch.object(normed, "can_run_kernels", lambda: kernels):
        found = eqx.filter_jit(together)(models, given, jax.random.key(2), scales)[0]
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(found, eqx.is_array))
    return {jax.tree_util.keystr(path): np.asarray(leaf, np.float32) for path, leaf in leaves}


def moved(leaf: Array) -> Array:
    """An array with a little noise, the same every time."""
    noise = np.random.default_rng(leaf.size).normal(size=leaf.shape)
    return leaf + jnp.asarray(0.01 * noise, leaf.dtype)


def errors(found: dict[str, Array], exact: dict[str, Array]) -> list[float]:
    """Relative distance of every array, in percent, rising."""
    assert found.keys() == exact.keys()
    assert all(np.abs(value).max() > 0 for value in exact.values()), "an array without a gradient compares nothing"
    return sorted(100 * float(np.linalg.norm(found[n] - exact[n]) / np.linalg.norm(exact[n])) for n in exact)


def main() -> None:
    """Prints one line for each dynamics, precision and way; ends with 1 where float32 differs by over 2 %."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="5M")
    parser.add_argument("--dynamics", nargs="+", choices=list(DYNAMICS), default=list(DYNAMICS))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256)
    asked = parser.parse_args()
    if not can_run_kernels():
        raise SystemExit("no GPU here can run the kernels; their values are tested in tests/nn and tests/agents/pwm")
    given, is_close = windows(asked.steps, asked.batch), True
    for name, dynamics in ((name, DYNAMICS[name]) for name in asked.dynamics):
        with jax.default_matmul_precision("highest"):
            exact = gradient(dynamics, "float32", False, given, asked.size)
            rows = {"float32, kernels": gradient(dynamics, "float32", True, given, asked.size)}
        is_close &= errors(rows["float32, kernels"], exact)[-1] < 2.0
        for kernels in (False, True):
            key = "bfloat16, " + ("kernels" if kernels else "without")
            rows[key] = gradient(dynamics, "bfloat16", kernels, given, asked.size)
        for row, found in rows.items():
            wrong = errors(found, exact)
            print(f"{name}; {row}: median {np.median(wrong):.4f} %, worst {wrong[-1]:.4f} %", flush=True)
    raise SystemExit(0 if is_close else 1)


if __name__ == "__main__":
    main()
