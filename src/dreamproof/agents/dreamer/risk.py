"""Two signals of risk: epistemic uncertainty of an ensemble, and a barrier value with a conformal offset.

The ensemble predicts the next symlog observation and the next margin; only the disagreement of its members is used.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Batch
from dreamproof.nn.heads import pinball_loss
from dreamproof.nn.layers import MLP, ensemble
from dreamproof.settings.dreamer import RiskSettings

RESIDUAL_FLOOR = 1e-4
DECREASE_BELOW = 0.15


class Member(eqx.Module):
    """One ensemble member: a trained network plus a fixed random prior (Osband et al., 2018)."""

    trained: MLP
    prior: MLP
    prior_scale: float = eqx.field(static=True)

    def __init__(self, key: Array, inputs: int, outputs: int, settings: RiskSettings, dtype: Any) -> None:
        first, second = jax.random.split(key)
        self.trained = MLP(first, (inputs, settings.units), outputs, dtype)
        self.prior = MLP(second, (inputs, settings.units), outputs, dtype)
        self.prior_scale = settings.prior_scale

    def __call__(self, x: Array) -> Array:
        return self.trained(x) + self.prior_scale * jax.lax.stop_gradient(self.prior)(x)


class RiskModel(eqx.Module):
    """Ensemble and barrier network."""

    members: Member
    barrier: MLP

    def __init__(
        self, key: Array, feature_size: int, sizes: tuple[int, int], settings: RiskSettings, dtype: Any
    ) -> None:
        observation_size, action_size = sizes
        first, second = jax.random.split(key)
        inputs, outputs = feature_size + action_size, observation_size + 1
        built = ensemble(lambda k: Member(k, inputs, outputs, settings, dtype), first, settings.members)
        assert isinstance(built, Member)
        self.members = built
        self.barrier = MLP(second, (feature_size, settings.units, settings.units), 1, dtype)

    def predict(self, feature: Array, action: Array) -> Array:
        """Each member's next symlog observation and margin: (K, ..., observation + 1)."""
        x = jnp.concatenate([feature, action.astype(feature.dtype)], axis=-1)
        return eqx.filter_vmap(lambda member, inputs: member(inputs), in_axes=(0, None))(self.members, x)

    def value(self, feature: Array) -> Array:
        """Barrier value in (−0.5, 0.5): discounted minimum of future margins."""
        return 0.5 * jnp.tanh(self.barrier(feature)[..., 0])


class Uncertainty(NamedTuple):
    """u (...), dimensionless, and the disagreement about the margin in metres (...)."""

    epistemic: Array
    margin_std: Array


def uncertainty(risk: RiskModel, feature: Array, action: Array, residual: Array) -> Uncertainty:
    """u = ½·ln(1 + mean_d Var_k / s_d²), s² the residual on windows the ensemble never trained on (ActSafe, 2024)."""
    predicted = risk.predict(feature, action)
    # Relative to the first member, members that agree have a variance of exactly 0: a mean of equal values rounds.
    variance = (predicted - predicted[:1]).var(axis=0)
    ratio = (variance / (residual + RESIDUAL_FLOOR)).mean(-1)
    return Uncertainty(0.5 * jnp.log1p(ratio), jnp.sqrt(variance[..., -1]))


class RiskLoss(NamedTuple):
    """Metrics, and the squared residual (observation + 1) on held-out windows."""

    metrics: dict[str, Array]
    residual: Array


def risk_loss(
    risk: RiskModel, slow: RiskModel, feature: Array, batch: Batch, extras: dict[str, Array], settings: RiskSettings
) -> tuple[Array, RiskLoss]:
    """Ensemble error on its masks, and the pinball loss of the barrier. feature (T, B, F) is detached.

    extras: `seen`, the predicted part of observations (T, B, O); `key` of the members' masks.
    """
    target = jnp.concatenate([extras["seen"], batch.margin[..., None]], axis=-1)[1:]
    error = (risk.predict(feature[:-1], batch.action[1:]) - target) ** 2
    valid = 1 - batch.first[1:]
    mask = jax.random.bernoulli(extras["key"], settings.mask_probability, (settings.members, 1, valid.shape[1]))
    weight = mask * valid * (1 - batch.held_out)
    ensemble_loss = (error.mean(-1) * weight).mean()
    held_out = valid * batch.held_out
    residual = (error.mean(0) * held_out[..., None]).sum((0, 1)) / jnp.maximum(1.0, held_out.sum())
    later = slow.value(feature[1:])
    goal = barrier_target(batch.margin[:-1], later, settings.barrier_discount)
    value = risk.value(feature[:-1])
    barrier_loss = (pinball_loss(value, goal, settings.barrier_quantile) * valid).mean()
    metrics = {
        "risk/ensemble": ensemble_loss,
        "risk/barrier": barrier_loss,
        "risk/value": value.mean(),
        "risk/residual": residual.mean(),
    }
    return ensemble_loss + barrier_loss, RiskLoss(metrics, jax.lax.stop_gradient(residual))


def barrier_target(margin: Array, later: Array, discount: float) -> Array:
    """(1−γ)·l + γ·min(l, V') (discounted safety, Fisac et al., 2019)."""
    return jax.lax.stop_gradient((1 - discount) * margin + discount * jnp.minimum(margin, later))


def barrier_violation(values: Array, decay: float) -> Array:
    """How far lower barrier values (H+1, ...) leave the safe set or decrease too fast near its edge, (H, ...)."""
    before, now = values[:-1], values[1:]
    outside = jax.nn.relu(-now)
    too_fast = (now < DECREASE_BELOW) * jax.nn.relu((1 - decay) * before - now)
    return outside + too_fast
