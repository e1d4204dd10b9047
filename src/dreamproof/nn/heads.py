"""Output heads: two-hot values, bounded normals, straight-through categoricals, Bernoullis."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LOG_2PI = 1.8378770664093453


def symlog(x: Array) -> Array:
    """sign(x)·ln(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """The inverse of symlog."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


class TwoHot(NamedTuple):
    """A value as a distribution over bins symexp(linspace(−reach, reach)) (DreamerV3, 2023, eq. 9-10)."""

    bins: np.ndarray

    @classmethod
    def make(cls, count: int, reach: float) -> "TwoHot":
        """An odd `count` of bins, zero among them."""
        assert count % 2 == 1, count
        # Computed by NumPy: a compiler's result may differ in the last bit between processes.
        half = -np.expm1(np.linspace(reach, 0.0, count // 2 + 1)).astype(np.float32)
        return cls(np.concatenate([half, -half[:-1][::-1]]))

    def encode(self, value: Array) -> Array:
        """(...) numbers → (..., bins) weights that sum to 1 on the two nearest bins."""
        # Position of the value between each two neighbours: 1 for pairs below it, 0 above. No search, so it fuses.
        risen = jnp.clip((value[..., None] - self.bins[:-1]) / np.diff(self.bins), 0.0, 1.0)
        ends = [(0, 0)] * value.ndim
        return jnp.pad(risen, [*ends, (1, 0)], constant_values=1.0) - jnp.pad(risen, [*ends, (0, 1)])

    def decode(self, logits: Array) -> Array:
        """(..., bins) logits → (...) expected values; mirrored bins are summed first, so equal logits give 0."""
        weights = jax.nn.softmax(logits, axis=-1) * self.bins
        middle = len(self.bins) // 2
        pairs = weights[..., :middle] + weights[..., :middle:-1]
        return pairs.sum(-1) + weights[..., middle]

    def loss(self, logits: Array, target: Array) -> Array:
        """Cross-entropy to the two-hot target, (...)."""
        return -(self.encode(target) * jax.nn.log_softmax(logits, axis=-1)).sum(-1)


class SymlogTwoHot(NamedTuple):
    """A value as a distribution over equal bins of its symlog, linspace(−reach, reach) (TD-MPC2, 2024)."""

    bins: int
    reach: float

    def encode(self, value: Array) -> Array:
        """(...) numbers → (..., bins) weights that sum to 1 on the two nearest bins."""
        width = 2 * self.reach / (self.bins - 1)
        place = (jnp.clip(symlog(value), -self.reach, self.reach) + self.reach) / width
        return jnp.maximum(0.0, 1.0 - jnp.abs(place[..., None] - jnp.arange(self.bins)))

    def decode(self, logits: Array) -> Array:
        """(..., bins) logits → (...) numbers: the symexp of the expected symlog."""
        symlogs = jnp.linspace(-self.reach, self.reach, self.bins)
        return symexp((jax.nn.softmax(logits, axis=-1) * symlogs).sum(-1))

    def loss(self, logits: Array, target: Array) -> Array:
        """Cross-entropy to the two-hot target, (...)."""
        return -(self.encode(target) * jax.nn.log_softmax(logits, axis=-1)).sum(-1)


class SquaredLogits(NamedTuple):
    """The fork's reward head: every logit learns the value itself, so the expectation over the bins is always 0."""

    bins: int
    reach: float

    def decode(self, logits: Array) -> Array:
        """(..., bins) logits → (...) expected values of linspace(−reach, reach)."""
        return (jax.nn.softmax(logits, axis=-1) * jnp.linspace(-self.reach, self.reach, self.bins)).sum(-1)

    def loss(self, logits: Array, target: Array) -> Array:
        """Mean squared error of all logits, (...)."""
        return jnp.square(logits - target[..., None]).mean(-1)


class Normal(NamedTuple):
    """Independent normals over the last axis."""

    mean: Array
    std: Array

    def sample(self, key: Array) -> Array:
        return self.at(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def at(self, noise: Array) -> Array:
        """The sample for unit normal noise."""
        return self.mean + self.std * noise

    def log_probability(self, value: Array) -> Array:
        """Summed over the last axis."""
        scaled = (value - self.mean) / self.std
        return (-0.5 * scaled**2 - jnp.log(self.std) - 0.5 * LOG_2PI).sum(-1)

    def entropy(self) -> Array:
        """Summed over the last axis."""
        return (jnp.log(self.std) + 0.5 * (1 + LOG_2PI)).sum(-1)

    def kl(self, other: "Normal") -> Array:
        """KL[self ‖ other], summed over the last axis."""
        ratio = (self.std / other.std) ** 2
        distance = ((self.mean - other.mean) / other.std) ** 2
        return 0.5 * (ratio + distance - 1 - jnp.log(ratio)).sum(-1)


def bounded_normal(output: Array, min_std: float, max_std: float) -> Normal:
    """Policy head: mean tanh(μ) in [−1, 1], sigma between the two bounds."""
    mean, raw = jnp.split(output, 2, axis=-1)
    return Normal(jnp.tanh(mean), min_std + (max_std - min_std) * jax.nn.sigmoid(raw + 2.0))


class Categoricals(NamedTuple):
    """Independent categoricals: log-probabilities (..., groups, classes)."""

    log_probabilities: Array

    @classmethod
    def make(cls, logits: Array, groups: int, uniform_mix: float) -> "Categoricals":
        """Softmax mixed with a uniform distribution, so that no probability is 0."""
        shaped = logits.reshape(*logits.shape[:-1], groups, -1)
        probabilities = (1 - uniform_mix) * jax.nn.softmax(shaped, axis=-1) + uniform_mix / shaped.shape[-1]
        return cls(jnp.log(probabilities))

    def sample(self, key: Array) -> Array:
        """One-hot (..., groups, classes); gradients pass straight to the probabilities."""
        return self.at(jax.random.gumbel(key, self.log_probabilities.shape))

    def at(self, noise: Array) -> Array:
        """The sample for standard Gumbel noise."""
        chosen = jnp.argmax(self.log_probabilities + noise, axis=-1)
        hard = jax.nn.one_hot(chosen, self.log_probabilities.shape[-1])
        soft = jnp.exp(self.log_probabilities)
        return hard + soft - jax.lax.stop_gradient(soft)

    def kl(self, other: "Categoricals") -> Array:
        """KL[self ‖ other], summed over groups."""
        difference = self.log_probabilities - other.log_probabilities
        return (jnp.exp(self.log_probabilities) * difference).sum((-2, -1))


def bernoulli_nll(logit: Array, target: Array) -> Array:
    """Negative log-likelihood of a Bernoulli, (...)."""
    return jnp.maximum(logit, 0) - logit * target + jnp.log1p(jnp.exp(-jnp.abs(logit)))


def pinball_loss(prediction: Array, target: Array, quantile: float) -> Array:
    """Minimal if `prediction` is the `quantile` of the targets, (...)."""
    error = target - prediction
    return jnp.maximum(quantile * error, (quantile - 1) * error)
