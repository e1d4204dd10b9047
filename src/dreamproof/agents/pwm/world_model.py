"""The world model of PWM (2024): encode, roll out, predict reward and termination, and the loss on windows.

Only the dynamics are sequential; encodings, rewards, terminations and flow losses are computed for all steps at once.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Windows
from dreamproof.agents.pwm.dynamics import FlowDynamics, MLPDynamics, make_dynamics, squared_error
from dreamproof.jaxcore.devices import scan_unroll
from dreamproof.jaxcore.types import Spec
from dreamproof.nn.deferred import (
    BackwardRecord,
    ForwardRecord,
    LayerActivations,
    LayerGradients,
    RecordingTape,
    ReplayTape,
    Tape,
    buffered_scan,
)
from dreamproof.nn.heads import SquaredLogits, SymlogTwoHot, bernoulli_nll
from dreamproof.nn.normed import NormedMLP, small_normal, zeros_init
from dreamproof.nn.simplex import simnorm
from dreamproof.settings.pwm import PwmSettings

INIT_TERMINATION_LOGIT = -4.0
MIN_OBSERVATION_STD = 0.01
SUMMED = {"dynamics", "endpoint"}


class PwmWorldModel(eqx.Module):
    """z = E(o), z' = D(z, a), r = R(z, a), the probability that z is terminal, and optionally a decoder."""

    encoder: NormedMLP
    dynamics: MLPDynamics | FlowDynamics
    reward_head: NormedMLP
    termination_head: NormedMLP
    decoder: NormedMLP | None
    tasks: Array | None
    settings: PwmSettings = eqx.field(static=True)

    def __init__(self, key: Array, spec: Spec, settings: PwmSettings, dtype: Any) -> None:
        keys = jax.random.split(key, 5)
        config, widths = settings.world_model, settings.world_model.widths
        task = config.task_size if config.tasks else 0
        given = task + spec.action_size
        outputs = 1 if config.reward == "scalar" else config.bins
        self.settings = settings

        def network(at: Array, sizes: tuple[int, ...], count: int, last: Any) -> NormedMLP:
            return NormedMLP(at, sizes, count, "norm_then_mish", (small_normal, last), dtype)

        self.encoder = network(keys[0], (spec.observation_size + task, *widths.encoder), widths.latent, None)
        sizes = (widths.latent, given)
        self.dynamics = make_dynamics(keys[1], sizes, widths.units, config.group, settings.dynamics, dtype)
        self.reward_head = network(keys[2], (widths.latent + given, *widths.units), outputs, zeros_init)
        ends = network(keys[3], (widths.latent, config.termination_units), 1, zeros_init)
        bias = jnp.full(1, INIT_TERMINATION_LOGIT, jnp.float32)
        self.termination_head = eqx.tree_at(lambda made: made.last.bias, ends, bias)
        decoded = (widths.latent, *reversed(widths.encoder))
        count = spec.observation_size
        self.decoder = network(jax.random.fold_in(keys[0], 1), decoded, count, zeros_init) if config.decoder else None
        shape = (config.tasks, config.task_size)
        self.tasks = jax.random.uniform(keys[4], shape, minval=-0.02, maxval=0.02) if config.tasks else None

    def task_vector(self, task: Array | None) -> Array | None:
        """Embeddings (..., E) of tasks (...), with a norm of at most 1."""
        if self.tasks is None or task is None:
            return None
        found = self.tasks[task]
        length = jnp.sqrt((found**2).sum(-1, keepdims=True) + 1e-12)
        return found / jnp.maximum(1.0, length)

    def encode(self, observation: Array, task: Array | None = None) -> Array:
        """(..., O) and task vectors → (..., L)."""
        seen = observation if task is None else jnp.concatenate([observation, task], -1)
        return simnorm(self.encoder(seen), self.settings.world_model.group)

    def reward_output(self, z: Array, given: Array) -> Array:
        """Output of the reward head, (..., 1 or bins)."""
        return self.reward_head(jnp.concatenate([z, given], -1))

    def reward(self, z: Array, given: Array) -> Array:
        """Expected scaled reward (...)."""
        output = self.reward_output(z, given)
        return output[..., 0] if self.reward_bins is None else self.reward_bins.decode(output)

    def termination_logit(self, z: Array) -> Array:
        """(..., L) → (...)."""
        return self.termination_head(z)[..., 0]

    @property
    def reward_bins(self) -> SymlogTwoHot | SquaredLogits | None:
        """How bins encode rewards; None for scalar rewards."""
        config = self.settings.world_model
        if config.reward == "scalar":
            return None
        return (SymlogTwoHot if config.reward == "two_hot" else SquaredLogits)(config.bins, config.bin_reach)

    def roll_out(self, z: Array, given: Array, key: Array) -> Array:
        """Open-loop latents (T+1, B, L) from `z` under `given` (T, B, ...): action and task vector."""
        dynamics, keys = self.dynamics.ready(), jax.random.split(key, given.shape[0])
        if self.settings.world_model.deferred:
            return deferred_roll_out((dynamics, z, given), keys, unroll(self.settings))

        def step(now: Array, xs: tuple[Array, Array]) -> tuple[Array, Array]:
            following = dynamics.next(now, *xs)
            return following, following

        remembered = rematerialised(step, self.settings)
        _, later = jax.lax.scan(remembered, z, (given, keys), unroll=unroll(self.settings))
        return jnp.concatenate([z[None], later])

    @property
    def fixed_dynamics(self) -> MLPDynamics | FlowDynamics:
        """The dynamics with frozen weights, already in the compute dtype."""
        return fixed(self.dynamics.ready())


def fixed(dynamics: MLPDynamics | FlowDynamics) -> MLPDynamics | FlowDynamics:
    """The dynamics with frozen weights, already in the compute dtype."""
    frozen = jax.lax.stop_gradient(dynamics)
    return eqx.tree_at(lambda made: made.network, frozen, frozen.network.in_compute_dtype())


def unroll(settings: PwmSettings) -> int:
    """Agent steps per loop body; a step of a flow already has several evaluations."""
    return scan_unroll() if settings.dynamics.evaluations == 1 else 1


def rematerialised(step: Any, settings: PwmSettings) -> Any:
    """`step` of a scan under the remat policy of the settings."""
    saved = settings.world_model.remat_policy
    if saved == "everything":
        return step
    policy = jax.checkpoint_policies.dots_saveable if saved == "products" else None
    # Inside a scan, common-subexpression elimination cannot undo the recomputation.
    return jax.checkpoint(step, policy=policy, prevent_cse=False)


RolloutInputs = tuple[MLPDynamics | FlowDynamics, Array, Array]
"""Prepared dynamics, first latents (B, L), and actions with task vectors (T, B, ...)."""


@eqx.filter_custom_vjp
def deferred_roll_out(rollout_inputs: RolloutInputs, keys: Array, unroll: int) -> Array:
    """Latents (T+1, B, L); weight gradients are computed after the backward pass, for all steps at once."""
    return _recorded_roll_out(rollout_inputs, keys, unroll)[0]


def _recorded_roll_out(rollout_inputs: RolloutInputs, keys: Array, unroll: int) -> tuple[Array, ForwardRecord]:
    """Latents, and the activations of all evaluations (N, B, ...)."""
    dynamics, z, given = rollout_inputs
    frozen, evaluations = fixed(dynamics), given.shape[0] * dynamics.evaluations

    def body(carry: tuple[Array, list[LayerActivations]], xs: tuple[Any, ...], number: Array) -> tuple[Any, Any]:
        (now, activations), (given, keys) = carry, xs
        tape = RecordingTape(activations, number * given.shape[0] * dynamics.evaluations)
        latents = followed(frozen, now, list(given), keys, tape)
        inputs = None if isinstance(frozen, MLPDynamics) else jnp.stack(tape.inputs)
        return (latents[-1], tape.activations), (jnp.stack(latents), inputs)

    first = (z, frozen.network.activation_buffers(given, evaluations, z.shape[0]))
    (_, activations), (later, inputs) = buffered_scan(body, first, in_loop_bodies((given, keys), unroll))
    z = jnp.concatenate([z[None], later.reshape(-1, *z.shape)])
    if isinstance(frozen, MLPDynamics):  # its inputs follow from its latents
        inputs = frozen.inputs(z[:-1], given).astype(frozen.network.hidden[0].linear.dtype)
    return z, ForwardRecord(inputs.reshape(evaluations, z.shape[1], -1), activations)


def followed(
    dynamics: MLPDynamics | FlowDynamics,
    z: Array,
    given: list[Array],
    keys: Array,
    tape: Tape,
    known: Array | None = None,
) -> list[Array]:
    """Latents of consecutive steps, recorded on the tape, or replayed from it if they are known."""
    latents: list[Array] = []
    for place, one in enumerate(given):
        tape.known_result = None if known is None else known[place]
        z = dynamics.next(z, one, keys[place], tape)
        latents.append(z)
    return latents


def in_loop_bodies(parts: tuple[Array, ...], unroll: int) -> tuple[Array, ...]:
    """Arrays (T, ...) as (T/U, U, ...) with U steps per loop body."""
    steps = math.gcd(parts[0].shape[0], unroll)
    return tuple(part.reshape(-1, steps, *part.shape[1:]) for part in parts)


def _forward(
    perturbed: Any, rollout_inputs: RolloutInputs, keys: Array, unroll: int
) -> tuple[Array, tuple[Array, ForwardRecord]]:
    del perturbed
    z, recorded = _recorded_roll_out(rollout_inputs, keys, unroll)
    return z, (z, recorded)


def _backward(
    residuals: tuple[Array, ForwardRecord],
    gradient: Array,
    perturbed: Any,
    rollout_inputs: RolloutInputs,
    keys: Array,
    unroll: int,
) -> RolloutInputs:
    del perturbed
    (z, recorded), (dynamics, _, given) = residuals, rollout_inputs
    frozen, (evaluations, rows) = fixed(dynamics), recorded.inputs.shape[:2]

    def body(carry: tuple[Array, list[LayerGradients]], xs: tuple[Any, ...], number: Array) -> tuple[Any, Any]:
        (cotangent, gradients), (own, before, known, given, keys) = carry, xs
        index = number * given.shape[0] * dynamics.evaluations

        def replayed(before: Array, given: list[Array], gradients: list[LayerGradients], taps: list[Array]) -> Any:
            tape = ReplayTape(recorded.activations, index, gradients, taps)
            return followed(frozen, before, given, keys, tape, known), tape.gradients

        taps = frozen.network.taps(len(given) * dynamics.evaluations, rows)
        _, pull_back = jax.vjp(replayed, before[0], list(given), gradients, taps)
        earlier, at_given, gradients, at_last = pull_back(([*own[:-1], own[-1] + cotangent], gradients))
        return (earlier, gradients), (jnp.stack(at_given), jnp.stack(at_last) if at_last else None)

    xs = in_loop_bodies((gradient[1:], z[:-1], z[1:], given, keys), unroll)
    buffers = frozen.network.gradient_buffers(given, evaluations, rows)
    (first, gradients), (at_given, at_last) = buffered_scan(body, (jnp.zeros_like(z[0]), buffers), xs, reverse=True)
    last = None if at_last is None else at_last.reshape(evaluations, *at_last.shape[2:])
    network = dynamics.network.deferred(recorded, BackwardRecord(gradients, last))
    whole = eqx.tree_at(lambda made: made.network, eqx.filter(dynamics, eqx.is_inexact_array), network)
    return whole, first + gradient[0], at_given.reshape(given.shape)


deferred_roll_out.def_fwd(_forward)
deferred_roll_out.def_bwd(_backward)


def joined(action: Array, task: Array | None) -> Array:
    """Input of dynamics and reward besides the latent: task vector, then action."""
    if task is None:
        return action
    return jnp.concatenate([jnp.broadcast_to(task, (*action.shape[:-1], task.shape[-1])), action], -1)


def model_gradients(
    model: PwmWorldModel, windows: Windows, key: Array, scales: dict[str, Array]
) -> tuple[Any, dict[str, Array]]:
    """Gradient of the loss, and metrics."""
    (_, metrics), gradients = eqx.filter_value_and_grad(world_model_loss, has_aux=True)(model, windows, key, scales)
    return gradients, metrics


def world_model_loss(
    model: PwmWorldModel, windows: Windows, key: Array, scales: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """(Σ_t decay^t · latent losses + mean_t decay^t · head losses) / T along an open-loop rollout.

    Transitions after the end of an episode are masked.
    """
    roll_key, loss_key = jax.random.split(key)
    task = model.task_vector(windows.task)
    given = joined(windows.action[1:], task)
    wide = None if task is None else jnp.broadcast_to(task, (*windows.reward[1:].shape, task.shape[-1]))
    # Without the barrier, the compiler merges both encodings into one product and splits it again.
    frozen = jax.lax.optimization_barrier(jax.lax.stop_gradient(model.encoder))
    target = eqx.tree_at(lambda made: made.encoder, model, frozen).encode(windows.observation[1:], wide)
    target = jax.lax.stop_gradient(target)
    z = model.roll_out(model.encode(windows.observation[0], task), given, roll_key)
    losses = model.dynamics.losses(z, given, target, scales["source_pull"], loss_key)
    losses |= head_losses(model, z, given, windows)
    if model.decoder is not None:
        standard = (windows.observation[1:] - scales["observed_mean"]) / scales["observed_deviation"]
        losses["observation"] = squared_error(model.decoder(z[1:]), standard)
    steps = windows.reward.shape[0] - 1
    weights = windows.valid * model.settings.world_model.decay ** jnp.arange(steps)[:, None]
    # As in the paper: latent losses are summed over steps, head losses averaged.
    assert set(losses) >= SUMMED, set(losses)
    shares = {name: 1.0 if name in SUMMED else 1.0 / steps for name in losses}
    assert all(loss.shape == weights.shape for loss in losses.values()), weights.shape
    means = {name: shares[name] * (weights * loss).mean(1).sum() / steps for name, loss in losses.items()}
    total = sum((scales[f"{name}_scale"] * mean for name, mean in means.items()), start=jnp.zeros(()))
    # A small error means nothing if latents have collapsed, so their variance is logged too.
    spread = target.var((0, 1)).mean()
    unexplained = (windows.valid * losses["endpoint"]).sum() / (windows.valid.sum() * spread + 1e-12)
    logged = means | {"latent_variance": spread, "unexplained_variance": unexplained}
    return total, {f"model/{name}": jax.lax.stop_gradient(value) for name, value in logged.items()}


def head_losses(model: PwmWorldModel, z: Array, given: Array, windows: Windows) -> dict[str, Array]:
    """Losses (T, B) of reward and termination along latents (T+1, B, L)."""
    output = model.reward_output(z[:-1], given)
    scaled = windows.reward[1:] / windows.scale
    bins = model.reward_bins
    reward = jnp.square(output[..., 0] - scaled) if bins is None else bins.loss(output, scaled)
    return {"reward": reward, "termination": bernoulli_nll(model.termination_logit(z[1:]), windows.terminated[1:])}


def observed_scales(windows: Windows) -> dict[str, Array]:
    """Mean and standard deviation (O,) of observations; the deviation has a lower bound."""
    axes = tuple(range(windows.observation.ndim - 1))
    deviation = jnp.maximum(windows.observation.std(axes), MIN_OBSERVATION_STD)
    return {"observed_mean": windows.observation.mean(axes), "observed_deviation": deviation}
