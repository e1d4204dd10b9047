"""The world model of PWM (2024): encode, roll out, judge reward and termination, and what it learns from windows.

Only the dynamics is sequential; encodings, rewards, terminations and flow losses are made for all steps at once.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.pwm.dynamics import FlowDynamics, MLPDynamics, make_dynamics, squared_error
from dreamproof.jaxcore.devices import scan_unroll
from dreamproof.jaxcore.types import Spec
from dreamproof.nn.deferred import Arrived, Made, Notes, Recaller, Recorded, Recorder, Tape, collecting_scan
from dreamproof.nn.heads import SymlogTwoHot, bernoulli_nll
from dreamproof.nn.normed import NormedMLP, small_normal, zeros_init
from dreamproof.nn.simplex import simnorm
from dreamproof.settings.pwm import PwmSettings

INIT_TERMINATION_LOGIT = -4.0
MIN_OBSERVATION_STD = 0.01  # of what is observed
SUMMED = {"dynamics", "endpoint"}


class Windows(NamedTuple):
    """Replayed rows (T+1, B, ...). An action is the one that led to its row's observation; so are reward and ends.

    scale divides rewards; task (B,) names the task of a window where there are several.
    """

    observation: Array
    action: Array
    reward: Array
    first: Array
    terminated: Array
    scale: Array
    task: Array | None = None

    @property
    def valid(self) -> Array:
        """1 for transitions (T, B) before the first end of an episode inside the window, that end's among them."""
        return jnp.cumprod(1.0 - self.first[1:], axis=0)


class PwmWorldModel(eqx.Module):
    """z = E(o), z' = D(z, a), r = R(z, a), the chance that z is the end, and the observation of z where it is asked."""

    encoder: NormedMLP
    dynamics: MLPDynamics | FlowDynamics
    reward_head: NormedMLP
    termination_head: NormedMLP
    decoder: NormedMLP | None
    tasks: Array | None
    settings: PwmSettings = eqx.field(static=True)

    def __init__(self, key: Array, spec: Spec, settings: PwmSettings, dtype: Any) -> None:
        keys = jax.random.split(key, 5)
        told, widths = settings.world_model, settings.world_model.widths
        task = told.task_size if told.tasks else 0
        given = task + spec.action_size
        outputs = 1 if told.reward == "scalar" else told.bins
        self.settings = settings

        def network(at: Array, sizes: tuple[int, ...], count: int, last: Any) -> NormedMLP:
            return NormedMLP(at, sizes, count, "norm_then_mish", (small_normal, last), dtype)

        self.encoder = network(keys[0], (spec.observation_size + task, *widths.encoder), widths.latent, None)
        sizes = (widths.latent, given)
        self.dynamics = make_dynamics(keys[1], sizes, widths.units, told.group, settings.dynamics, dtype)
        self.reward_head = network(keys[2], (widths.latent + given, *widths.units), outputs, zeros_init)
        ends = network(keys[3], (widths.latent, told.termination_units), 1, zeros_init)
        bias = jnp.full(1, INIT_TERMINATION_LOGIT, jnp.float32)
        self.termination_head = eqx.tree_at(lambda made: made.last.bias, ends, bias)
        decoded = (widths.latent, *reversed(widths.encoder))
        count = spec.observation_size
        self.decoder = network(jax.random.fold_in(keys[0], 1), decoded, count, zeros_init) if told.decoder else None
        shape = (told.tasks, told.task_size)
        self.tasks = jax.random.uniform(keys[4], shape, minval=-0.02, maxval=0.02) if told.tasks else None

    def task_vector(self, task: Array | None) -> Array | None:
        """Embeddings (..., E) of tasks (...), shortened to length 1 where they are longer."""
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
        """What the reward head says, (..., 1 or bins)."""
        return self.reward_head(jnp.concatenate([z, given], -1))

    def reward(self, z: Array, given: Array) -> Array:
        """Expected scaled reward (...)."""
        output = self.reward_output(z, given)
        return output[..., 0] if self.two_hot is None else self.two_hot.decode(output)

    def termination_logit(self, z: Array) -> Array:
        """(..., L) → (...)."""
        return self.termination_head(z)[..., 0]

    @property
    def two_hot(self) -> SymlogTwoHot | None:
        """How rewards are told, where not as plain numbers."""
        told = self.settings.world_model
        return SymlogTwoHot(told.bins, told.bin_reach) if told.reward == "two_hot" else None

    def roll_out(self, z: Array, given: Array, key: Array) -> Array:
        """Latents (T+1, B, L) from `z` on, along what is given (T, B, ...); open loop."""
        dynamics, keys = self.dynamics.ready(), jax.random.split(key, given.shape[0])
        if self.settings.world_model.deferred:
            return deferred_roll_out((dynamics, z, given), keys, unroll(self.settings))

        def step(now: Array, told: tuple[Array, Array]) -> tuple[Array, Array]:
            following = dynamics.next(now, *told)
            return following, following

        remembered = rematerialised(step, self.settings)
        _, later = jax.lax.scan(remembered, z, (given, keys), unroll=unroll(self.settings))
        return jnp.concatenate([z[None], later])

    @property
    def fixed_dynamics(self) -> MLPDynamics | FlowDynamics:
        """The dynamics without gradients of its own, its weights in the precision of its products."""
        return fixed(self.dynamics.ready())


def fixed(dynamics: MLPDynamics | FlowDynamics) -> MLPDynamics | FlowDynamics:
    """The dynamics without gradients of its own, its weights in the precision of its products."""
    still = jax.lax.stop_gradient(dynamics)
    return eqx.tree_at(lambda made: made.network, still, still.network.lowered())


def unroll(settings: PwmSettings) -> int:
    """Agent steps in one loop body; one of a flow holds several evaluations already."""
    return scan_unroll() if settings.dynamics.evaluations == 1 else 1


def rematerialised(step: Any, settings: PwmSettings) -> Any:
    """`step` of a scan whose backward pass finds again what the settings say and computes the rest anew."""
    saved = settings.world_model.remat_policy
    if saved == "everything":
        return step
    policy = jax.checkpoint_policies.dots_saveable if saved == "products" else None
    # A scan's body cannot be merged with its own recomputation, so nothing needs to prevent it.
    return jax.checkpoint(step, policy=policy, prevent_cse=False)


Moved = tuple[MLPDynamics | FlowDynamics, Array, Array]
"""Dynamics that is ready, first latents (B, L), and what is given (T, B, ...)."""


@eqx.filter_custom_vjp
def deferred_roll_out(moved: Moved, keys: Array, unroll: int) -> Array:
    """Latents (T+1, B, L); the weights' gradients are made after the backward pass, for all steps at once."""
    return _recorded_roll_out(moved, keys, unroll)[0]


def _recorded_roll_out(moved: Moved, keys: Array, unroll: int) -> tuple[Array, Recorded]:
    """Latents, and what was recorded of all evaluations (N, B, ...)."""
    dynamics, z, given = moved
    still, evaluations = fixed(dynamics), given.shape[0] * dynamics.evaluations

    def few(carry: tuple[Array, list[Made]], told: tuple[Any, ...]) -> tuple[tuple[Array, list[Made]], Any]:
        (now, made), (given, keys, place) = carry, told
        tape = Recorder(made, place)
        latents = followed(still, now, list(given), keys, tape)
        return (latents[-1], tape.made), (jnp.stack(latents), jnp.stack(tape.given))

    first = (z, still.network.room(given, evaluations, z.shape[0]))
    (_, made), (later, seen) = collecting_scan(few, first, in_bodies((given, keys), dynamics.evaluations, unroll))
    later, seen = (part.reshape(-1, *part.shape[2:]) for part in (later, seen))
    return jnp.concatenate([z[None], later]), Recorded(seen, made)


def followed(
    dynamics: MLPDynamics | FlowDynamics,
    z: Array,
    given: list[Array],
    keys: Array,
    tape: Tape,
    known: Array | None = None,
) -> list[Array]:
    """Latents of steps one after the other, recorded on the tape, or recalled from it where they are known."""
    latents: list[Array] = []
    for place, one in enumerate(given):
        tape.reached = None if known is None else known[place]
        z = dynamics.next(z, one, keys[place], tape)
        latents.append(z)
    return latents


def in_bodies(parts: tuple[Array, ...], evaluations: int, unroll: int) -> tuple[Array, ...]:
    """Arrays (T, ...) as (T/U, U, ...) with U steps in one loop body, and where the evaluations of each body begin."""
    steps = math.gcd(parts[0].shape[0], unroll)
    cut = tuple(part.reshape(-1, steps, *part.shape[1:]) for part in parts)
    return *cut, jnp.arange(cut[0].shape[0]) * (steps * evaluations)


def _forward(perturbed: Any, moved: Moved, keys: Array, unroll: int) -> tuple[Array, tuple[Array, Recorded]]:
    del perturbed
    z, recorded = _recorded_roll_out(moved, keys, unroll)
    return z, (z, recorded)


def _backward(
    kept: tuple[Array, Recorded], gradient: Array, perturbed: Any, moved: Moved, keys: Array, unroll: int
) -> Moved:
    del perturbed
    (z, recorded), (dynamics, _, given) = kept, moved
    still, (evaluations, rows) = fixed(dynamics), recorded.given.shape[:2]

    def few(carry: tuple[Array, list[Notes]], told: tuple[Any, ...]) -> tuple[tuple[Array, list[Notes]], Any]:
        (arrived, notes), (own, before, known, given, keys, place) = carry, told

        def again(before: Array, given: list[Array], notes: list[Notes], taps: list[Array]) -> Any:
            tape = Recaller(recorded.made, place, notes, taps)
            return followed(still, before, given, keys, tape, known), tape.notes

        taps = still.network.taps(len(given) * dynamics.evaluations, rows)
        _, pull = jax.vjp(again, before[0], list(given), notes, taps)
        earlier, at_given, notes, at_last = pull(([*own[:-1], own[-1] + arrived], notes))
        return (earlier, notes), (jnp.stack(at_given), jnp.stack(at_last) if at_last else None)

    told = in_bodies((gradient[1:], z[:-1], z[1:], given, keys), dynamics.evaluations, unroll)
    room = still.network.room_for_notes(given, evaluations, rows)
    (first, notes), (at_given, at_last) = collecting_scan(few, (jnp.zeros_like(z[0]), room), told, reverse=True)
    last = None if at_last is None else at_last.reshape(evaluations, *at_last.shape[2:])
    arrived = Arrived(notes, last)
    network = dynamics.network.deferred(recorded, arrived)
    whole = eqx.tree_at(lambda made: made.network, eqx.filter(dynamics, eqx.is_inexact_array), network)
    return whole, first + gradient[0], at_given.reshape(given.shape)


deferred_roll_out.def_fwd(_forward)
deferred_roll_out.def_bwd(_backward)


def joined(action: Array, task: Array | None) -> Array:
    """What the dynamics and the reward are given beside the latent: task vector, then action."""
    if task is None:
        return action
    return jnp.concatenate([jnp.broadcast_to(task, (*action.shape[:-1], task.shape[-1])), action], -1)


def model_gradients(
    model: PwmWorldModel, windows: Windows, key: Array, scales: dict[str, Array]
) -> tuple[Any, dict[str, Array]]:
    """The gradient of the loss, and what is logged of it."""
    (_, metrics), gradients = eqx.filter_value_and_grad(world_model_loss, has_aux=True)(model, windows, key, scales)
    return gradients, metrics


def world_model_loss(
    model: PwmWorldModel, windows: Windows, key: Array, scales: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """(Σ_t decay^t · errors of the rolled-out latents + mean_t decay^t · errors of all that they tell) / T.

    Transitions after the end of an episode do not count.
    """
    roll_key, loss_key = jax.random.split(key)
    task = model.task_vector(windows.task)
    given = joined(windows.action[1:], task)
    wide = None if task is None else jnp.broadcast_to(task, (*windows.reward[1:].shape, task.shape[-1]))
    # Behind the barrier: of both encodings together the compiler would make products that it has to take apart again.
    still = jax.lax.optimization_barrier(jax.lax.stop_gradient(model.encoder))
    target = eqx.tree_at(lambda made: made.encoder, model, still).encode(windows.observation[1:], wide)
    target = jax.lax.stop_gradient(target)
    z = model.roll_out(model.encode(windows.observation[0], task), given, roll_key)
    losses = model.dynamics.losses(z, given, target, scales["source_pull"], loss_key)
    losses |= head_losses(model, z, given, windows)
    if model.decoder is not None:
        standard = (windows.observation[1:] - scales["observed_mean"]) / scales["observed_deviation"]
        losses["observation"] = squared_error(model.decoder(z[1:]), standard)
    steps = windows.reward.shape[0] - 1
    weights = windows.valid * model.settings.world_model.decay ** jnp.arange(steps)[:, None]
    # Latents sum over steps and judgements average over them, as in the paper.
    assert set(losses) >= SUMMED, set(losses)
    shares = {name: 1.0 if name in SUMMED else 1.0 / steps for name in losses}
    assert all(loss.shape == weights.shape for loss in losses.values()), weights.shape
    means = {name: shares[name] * (weights * loss).mean(1).sum() / steps for name, loss in losses.items()}
    total = sum((scales[f"{name}_scale"] * mean for name, mean in means.items()), start=jnp.zeros(()))
    # Errors say nothing where all latents are alike, so what they vary by is told too.
    spread = target.var((0, 1)).mean()
    unexplained = (windows.valid * losses["endpoint"]).sum() / (windows.valid.sum() * spread + 1e-12)
    told = means | {"spread": spread, "unexplained": unexplained}
    return total, {f"model/{name}": jax.lax.stop_gradient(value) for name, value in told.items()}


def head_losses(model: PwmWorldModel, z: Array, given: Array, windows: Windows) -> dict[str, Array]:
    """Errors (T, B) of reward and termination along latents (T+1, B, L)."""
    output = model.reward_output(z[:-1], given)
    scaled = windows.reward[1:] / windows.scale
    two_hot = model.two_hot
    reward = jnp.square(output[..., 0] - scaled) if two_hot is None else two_hot.loss(output, scaled)
    return {"reward": reward, "termination": bernoulli_nll(model.termination_logit(z[1:]), windows.terminated[1:])}


def observed_scales(windows: Windows) -> dict[str, Array]:
    """Mean and deviation (O,) of each number that is observed, the deviation never less than a little."""
    axes = tuple(range(windows.observation.ndim - 1))
    deviation = jnp.maximum(windows.observation.std(axes), MIN_OBSERVATION_STD)
    return {"observed_mean": windows.observation.mean(axes), "observed_deviation": deviation}
