"""Latent dynamics: a plain network, or a velocity field that is integrated over one agent step.

A latent consists of groups of probabilities. A flow that predicts end points stays inside the simplex; a predicted
velocity with zero mean in every group keeps the sums; a projection at the end of a step corrects signs and rounding.
"""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.nn.deferred import Tape
from dreamproof.nn.layers import Linear
from dreamproof.nn.normed import NormedMLP, small_normal, zeros_init
from dreamproof.nn.simplex import centred, centred_logits, on_simplex, simnorm
from dreamproof.settings.pwm import DynamicsSettings

MIN_PROBABILITY = 1e-3


class LatentDynamics(Protocol):
    """What the world model requires of its dynamics. `given` is (..., A): the action, after the task vector if any."""

    network: NormedMLP

    @property
    def evaluations(self) -> int:
        """Network evaluations per step."""

    def next(self, z: Array, given: Array, key: Array | None = None, tape: Tape | None = None) -> Array:
        """The latent (..., L) one agent step later; a key is needed only if flows have source noise.

        A tape records or replays the evaluations of the network.
        """

    def ready(self) -> "LatentDynamics":
        """The same dynamics, with computations that many calls share already done."""

    def losses(self, z: Array, given: Array, target: Array, pull: Array | float, key: Array) -> dict[str, Array]:
        """Losses (T, ...) of rolled-out latents (T+1, ...) against target latents (T, ...).

        The source of a flow is part of its loss. `pull` is the fraction of the gradient that moves the source towards
        its target.
        """


def squared_error(x: Array, target: Array) -> Array:
    """Mean over the last axis."""
    return jnp.square(x - target).mean(-1)


def gradient_only(x: Array) -> Array:
    """Zero with the gradient of `x`."""
    return x - jax.lax.stop_gradient(x)


def padded(parts: list[Array], network: NormedMLP) -> Array:
    """The parts of an input concatenated, zero-padded to the input size of the network."""
    missing = network.inputs - sum(part.shape[-1] for part in parts)
    return jnp.concatenate([*parts, jnp.zeros((*parts[0].shape[:-1], missing))], -1)


class CentredLinear(Linear):
    """A linear layer whose outputs have zero mean in every group."""

    def __init__(self, linear: Any, group: int) -> None:
        self.weight, self.bias = centred(linear.weight, group), centred(linear.bias, group)
        self.dtype = linear.dtype


class MLPDynamics(eqx.Module):
    """z' = SimNorm(network(z, a)): one evaluation."""

    network: NormedMLP
    group: int = eqx.field(static=True)

    def __init__(self, key: Array, latent: int, given: int, units: tuple[int, ...], group: int, dtype: Any) -> None:
        self.group = group
        sizes = (latent + given, *units)
        self.network = NormedMLP(key, sizes, latent, "norm_then_mish", (small_normal, None), dtype)

    @property
    def evaluations(self) -> int:
        """One."""
        return 1

    def next(self, z: Array, given: Array, key: Array | None = None, tape: Tape | None = None) -> Array:
        """One evaluation of the network."""
        del key
        known = None if tape is None else tape.known_result
        return simnorm(self.network(self.inputs(z, given), tape), self.group, known)

    def inputs(self, z: Array, given: Array) -> Array:
        """Of the network: latent and `given`."""
        return padded([z, given], self.network)

    def ready(self) -> "MLPDynamics":
        """Unchanged."""
        return self

    def losses(self, z: Array, given: Array, target: Array, pull: Array | float, key: Array) -> dict[str, Array]:
        """The error of the predicted latent, counted once."""
        del given, pull, key
        error = squared_error(z[1:], target)
        return {"dynamics": error, "endpoint": jax.lax.stop_gradient(error)}


class FlowDynamics(eqx.Module):
    """dz/dτ = v(z, a, τ) over τ from 0 to 1, learned by flow matching (Lipman et al., 2023) on straight paths."""

    network: NormedMLP
    group: int = eqx.field(static=True)
    settings: DynamicsSettings = eqx.field(static=True)

    def __init__(
        self,
        key: Array,
        sizes: tuple[int, int],
        units: tuple[int, ...],
        group: int,
        settings: DynamicsSettings,
        dtype: Any,
    ) -> None:
        """`sizes`: of the latent and of `given`."""
        latent, given = sizes
        self.group, self.settings = group, settings
        # The initial velocity is 0. Small random weights would make it large in wide networks, and latents would first
        # learn to collapse.
        last = None if self._is_normed else zeros_init
        inputs = (latent + given + 1, *units)
        self.network = NormedMLP(key, inputs, latent, "norm_then_mish", (small_normal, last), dtype)

    @property
    def evaluations(self) -> int:
        """Of all substeps."""
        return self.settings.evaluations

    def predicted(self, x: Array, given: Array, time: Array, tape: Tape | None = None) -> Array:
        """One evaluation at times (..., 1): the velocity v(x, a, τ), or the end of the straight path through x."""
        raw = self.network(padded([x, time, given], self.network), tape)
        if self.settings.skip:
            # At τ = 1, where the end is x, nothing is left to learn; at τ = 0 this is the network alone.
            raw = (1 - time) * raw + time * centred_logits(x, self.group, MIN_PROBABILITY)
        return self._velocity_or_end(raw)

    def next(self, z: Array, given: Array, key: Array | None = None, tape: Tape | None = None) -> Array:
        """Integrates from the latent, in equal substeps."""
        x = self._source(z, key)
        substeps = self.settings.substeps
        width = 1.0 / substeps

        def velocity(at: Array, index: int, start: Array) -> Array:
            made = self.predicted(at, given, jnp.full((*at.shape[:-1], 1), index * width), tape)
            if not self._predicts_end:
                return made
            # At τ = 1 the denominator is 0; use the path from the start of the last substep instead.
            return (made - at) / (1.0 - index * width) if index < substeps else (made - start) / width

        for index in range(substeps):
            slope = velocity(x, index, x)
            if self.settings.integrator == "heun":
                slope = 0.5 * (slope + velocity(x + width * slope, index + 1, x))
            x = x + width * slope
        return self._latent(x, None if tape is None else tape.known_result)

    def ready(self) -> "FlowDynamics":
        """The same dynamics, with group means removed from the last weights instead of from every velocity."""
        if self._is_normed:
            return self
        return eqx.tree_at(lambda made: made.network.last, self, CentredLinear(self.network.last, self.group))

    def losses(self, z: Array, given: Array, target: Array, pull: Array | float, key: Array) -> dict[str, Array]:
        """The error of the prediction at a random time of each straight path, and of the integrated latent."""
        time_key, noise_key = jax.random.split(key)
        source, end = self._source(z[:-1], noise_key), self._coordinates(target)
        time = jax.random.uniform(time_key, (*source.shape[:-1], 1))
        predicted = self.predicted((1 - time) * source + time * end, given, time)
        if self._predicts_end:
            # This is the velocity error times 1 − τ. The source of a flow is not part of it.
            return {"dynamics": squared_error(predicted, end), "endpoint": squared_error(z[1:], target)}
        # The target velocity is end − source; through it latents also learn to be close to their successors, as the
        # first one does through every latent reached from it.
        velocity = end - source + (1 - pull) * gradient_only(source)
        return {
            "dynamics": squared_error(predicted, velocity),
            "endpoint": squared_error(z[1:] - (1 - pull) * gradient_only(z[0]), target),
        }

    @property
    def _predicts_end(self) -> bool:
        return self.settings.predicts == "end"

    @property
    def _is_normed(self) -> bool:
        """Whether the network ends in LayerNorm and SimNorm: correct for a latent, wrong for a velocity."""
        return self._predicts_end or self.settings.space == "broken"

    def _velocity_or_end(self, raw: Array) -> Array:
        if self._is_normed:
            return simnorm(raw, self.group)
        return raw if isinstance(self.network.last, CentredLinear) else centred(raw, self.group)

    def _coordinates(self, z: Array) -> Array:
        return centred_logits(z, self.group, MIN_PROBABILITY) if self.settings.space == "logits" else z

    def _latent(self, x: Array, known: Array | None) -> Array:
        """From the flow's coordinates to the latent's. With predicted end points nothing leaves the simplex."""
        if self._predicts_end:
            return x
        if self.settings.space == "simplex":
            return on_simplex(x, self.group, known)
        return simnorm(x, self.group, known) if self.settings.space == "logits" else x

    def _source(self, z: Array, key: Array | None) -> Array:
        x = self._coordinates(z)
        if self.settings.source_noise == 0:
            return x
        assert key is not None, "a flow with source noise needs a key"
        return x + self.settings.source_noise * centred(jax.random.normal(key, x.shape), self.group)


def make_dynamics(
    key: Array, sizes: tuple[int, int], units: tuple[int, ...], group: int, settings: DynamicsSettings, dtype: Any
) -> MLPDynamics | FlowDynamics:
    """The dynamics of the settings, for sizes (latent, given)."""
    if settings.kind == "mlp":
        return MLPDynamics(key, *sizes, units, group, dtype)
    return FlowDynamics(key, sizes, units, group, settings, dtype)
