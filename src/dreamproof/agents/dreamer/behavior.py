"""Actor and critics: imagined rollouts, returns of reward and cost, losses, and the Lagrange multiplier of the cost."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Batch
from dreamproof.agents.dreamer.world_model import DreamerWorldModel, Latent, costs_of
from dreamproof.agents.normalisation import Spread
from dreamproof.agents.returns import discount_weights, lambda_returns
from dreamproof.jaxcore.devices import scan_unroll
from dreamproof.nn.heads import Normal, TwoHot, bounded_normal
from dreamproof.nn.layers import MLP, ensemble, in_compute_dtype
from dreamproof.settings.dreamer import DreamerBehaviorSettings

MAX_MULTIPLIER_RATE = 1.0
"""Bound of the growing step size of the multiplier, as in the released SafeDreamer."""


class DreamerActor(eqx.Module):
    """π(a | feature): a bounded normal."""

    network: MLP
    min_std: float = eqx.field(static=True)
    max_std: float = eqx.field(static=True)

    def __init__(
        self, key: Array, sizes: tuple[int, ...], actions: int, settings: DreamerBehaviorSettings, dtype: Any
    ) -> None:
        self.network = MLP(key, sizes, 2 * actions, dtype, scale=0.01)
        self.min_std, self.max_std = settings.min_std, settings.max_std

    def __call__(self, feature: Array) -> Normal:
        return bounded_normal(self.network(feature), self.min_std, self.max_std)


class DreamerCritics(eqx.Module):
    """Values of reward (minus the risk penalty) and of every cost, as two-hot logits."""

    both: MLP

    def __init__(self, key: Array, sizes: tuple[int, ...], bins: int, dtype: Any, costs: int = 1) -> None:
        built = ensemble(lambda k: MLP(k, sizes, bins, dtype, scale=0.0), key, 1 + costs)
        assert isinstance(built, MLP)
        self.both = built

    def __call__(self, feature: Array) -> Array:
        """(..., F) → (1 + C, ..., bins): reward, then costs, the total first."""
        return eqx.filter_vmap(lambda network, x: network(x), in_axes=(0, None))(self.both, feature)


class ImaginedRollout(NamedTuple):
    """An imagined rollout: features (H+1, S, F), unclipped actions (H, S, A), costs (C, H, S)."""

    feature: Array
    actions: Array
    costs: Array


def clip_action(action: Array) -> Array:
    """Actions as the task and the model see them."""
    return jnp.clip(action, -1.0, 1.0)


def imagine_rollout(
    model: DreamerWorldModel, actor: DreamerActor, start: Latent, horizon: int, key: Array
) -> ImaginedRollout:
    """Follows the actor through the prior for `horizon` steps; without gradients."""
    act_key, model_key = jax.random.split(key)
    shape = (horizon, *start.h.shape[:-1])
    fixed, policy_network = in_compute_dtype((model, actor))

    def step(state: Latent, noise: tuple[Array, Array]) -> tuple[Latent, tuple[Latent, Array, Array]]:
        feature = fixed.feature(state)
        action = policy_network(feature).at(noise[0])
        following = fixed.imagine(state, clip_action(action), noise[1])
        return following, (following, feature, action)

    noises = (jax.random.normal(act_key, (*shape, model.spec.action_size)), model.noise(model_key, shape))
    last, (states, features, actions) = jax.lax.scan(step, start, noises, unroll=scan_unroll(horizon))
    feature = jnp.concatenate([features, model.feature(last)[None]])
    return jax.lax.stop_gradient(ImaginedRollout(feature, actions, model.step_costs(states, feature[1:])))


class JoinedStates(NamedTuple):
    """Imagined states (H + 1, S) and replayed ones (T, B), whose features (M, F) networks evaluate as one array."""

    feature: Array
    imagined: tuple[int, int]
    replayed: tuple[int, int]

    @classmethod
    def make(cls, imagined: Array, replayed: Array) -> "JoinedStates":
        """From features (H + 1, S, F) and (T, B, F)."""
        (steps, starts, width), (window, batch, _) = imagined.shape, replayed.shape
        joined = jnp.concatenate([imagined.reshape(-1, width), replayed.reshape(-1, width)])
        return cls(joined, (steps, starts), (window, batch))

    def split(self, values: Array) -> tuple[Array, Array]:
        """(..., M) → (..., H + 1, S) and (..., T, B)."""
        count, others = math.prod(self.imagined), values.shape[:-1]
        imagined = values[..., :count].reshape(*others, *self.imagined)
        return imagined, values[..., count:].reshape(*others, *self.replayed)


def of_states(steps: Array, axis: int = 0) -> Array:
    """Values (..., H, S, ...) of steps as those of the states before them, (..., (H + 1)·S, ...); 0 for the last."""
    padding = [(0, 0)] * steps.ndim
    padding[axis] = (0, 1)
    padded = jnp.pad(steps, padding)
    return padded.reshape(*steps.shape[:axis], -1, *steps.shape[axis + 2 :])


class ImaginedReturns(NamedTuple):
    """Returns (H, S) of an imagined rollout, and the values that are their baselines.

    costs (C, H, S): returns of every cost, the total first.
    """

    reward: Array
    costs: Array
    reward_value: Array
    cost_value: Array
    weights: Array
    step_cost: Array

    @property
    def cost(self) -> Array:
        """Returns (H, S) of the total cost."""
        return self.costs[0]


def imagined_returns(
    model: DreamerWorldModel, values: Array, rollout: ImaginedRollout, penalty: Array, settings: DreamerBehaviorSettings
) -> ImaginedReturns:
    """λ-returns of reward minus `penalty` (H, S) and of cost on values (1 + C, H + 1, S), with soft continuation."""
    following = rollout.feature[1:]
    reward = model.two_hot.decode(model.reward(following)) - penalty
    discounts = settings.discount * jax.nn.sigmoid(model.continue_head(following)[..., 0])
    reward_value, *cost_values = values
    costs = [
        lambda_returns(cost, value, discounts, settings.gae_lambda)
        for cost, value in zip(rollout.costs, cost_values, strict=True)
    ]
    return ImaginedReturns(
        lambda_returns(reward, reward_value, discounts, settings.gae_lambda),
        jnp.stack(costs),
        reward_value[:-1],
        cost_values[0][:-1],
        discount_weights(discounts),
        rollout.costs[0],
    )


def actor_loss(
    actor: DreamerActor, rollout: ImaginedRollout, returns: ImaginedReturns, spread: Spread, coefs: dict[str, Array]
) -> tuple[Array, dict[str, Array]]:
    """REINFORCE on the advantage of reward minus the multiplier times the advantage of cost, plus entropy."""
    policy = actor(rollout.feature[:-1])
    advantage = (returns.reward - returns.reward_value) - coefs["multiplier"] * (returns.cost - returns.cost_value)
    entropy = policy.entropy()
    gain = policy.log_probability(rollout.actions) * jax.lax.stop_gradient(advantage / spread.scale)
    loss = -(returns.weights * (gain + coefs["entropy"] * entropy)).mean()
    return loss, {
        "actor/entropy": entropy.mean(),
        "actor/std": policy.std.mean(),
        "actor/advantage": jnp.abs(advantage / spread.scale).mean(),
    }


def critic_weights(imagined: Array, replayed: Array, rates: dict[str, Array], costs: int = 1) -> Array:
    """Weights of states (1 + C, M): imagined ones first, then replayed ones; for reward, then for every cost.

    The planner chooses the executed actions, so costs imagined with the actor are not those of what is executed: the
    cost critics learn from replay, and from imagination with the weight `imagined_cost_scale`.
    """
    reward = jnp.concatenate([imagined, rates["replay_value_scale"] * replayed])
    cost = jnp.concatenate([rates["imagined_cost_scale"] * imagined, replayed])
    return jnp.stack([reward] + [cost] * costs)


def critic_loss(logits: Array, goals: tuple[Array, Array], weights: Array, fixed: tuple[TwoHot, float]) -> Array:
    """Cross-entropy of M states to returns (1 + C, M) and to the slow critics' values, for reward and cost."""
    (targets, slow_targets), (two_hot, slow_scale) = goals, fixed
    return (weights * (two_hot.loss(logits, targets) + slow_scale * two_hot.loss(logits, slow_targets))).sum()


def replay_returns(
    values: Array, batch: Batch, penalty: Array, settings: DreamerBehaviorSettings
) -> tuple[Array, Array]:
    """λ-returns of replayed reward minus `penalty` (T−1, B) and of costs, (1 + C, T−1, B), on values (1 + C, T, B).

    Also their mask (T−1, B): returns do not cross the end of an episode inside a window.
    """
    cut = batch.first[1:]
    discounts = settings.discount * (1 - batch.terminated[1:]) * (1 - cut)

    def returns(gained: Array, value: Array) -> Array:
        return lambda_returns(jnp.where(cut > 0, value[:-1], gained), value, discounts, settings.gae_lambda)

    costs = costs_of(batch, len(values) - 1)[:, 1:]
    return jax.vmap(returns)(jnp.concatenate([(batch.reward[1:] - penalty)[None], costs]), values), 1 - cut


def update_multiplier(
    raised: Array, step_cost: Array, episode_steps: int, limits: dict[str, Array], updates: Array
) -> Array:
    """Updates the multiplier by the excess of the imagined episode cost over its limit.

    λ ← max(0, λ + c·g) with a rate c that grows to at most 1: the gradient of the augmented Lagrangian (Nocedal &
    Wright, 2006, eq. 17.65) is the gradient of the cost times this λ. As published, g is not below minus the limit, so
    λ falls slowly; `multiplier_max` bounds it.
    """
    excess = step_cost.mean() * episode_steps - limits["cost_limit"]
    grown = limits["multiplier_rate"] * jnp.exp(limits["multiplier_growth"] * updates)
    rate = jnp.minimum(grown, MAX_MULTIPLIER_RATE)
    highest = limits["multiplier_max"] - limits["multiplier_start"]
    return jnp.clip(raised + rate * excess, -limits["multiplier_start"], jnp.maximum(0.0, highest))
