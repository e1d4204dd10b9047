"""Actor and critics of PWM (2024): differentiable rollouts, the actor's return, the critics' targets."""

import math
from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.pwm.world_model import PwmWorldModel, joined, rematerialised, unroll
from dreamproof.agents.returns import discount_weights, lambda_returns
from dreamproof.nn.layers import ensemble
from dreamproof.nn.normed import NormedMLP, orthogonal, uniform
from dreamproof.settings.pwm import PwmBehaviorSettings


class PwmActor(eqx.Module):
    """A policy: tanh of a function of latent and noise, with one standard deviation for all states."""

    network: NormedMLP
    log_std: Array
    min_log_std: float = eqx.field(static=True)

    @property
    def std(self) -> Array:
        """Standard deviations (A,) before the tanh."""
        return jnp.exp(jnp.maximum(self.log_std, self.min_log_std))

    def __call__(self, z: Array, noise: Array) -> Array:
        """Actions (..., A) from unit normal `noise` (..., A); zeros give the deterministic ones."""
        return jnp.tanh(self.unbounded(z, noise))

    @abstractmethod
    def unbounded(self, z: Array, noise: Array) -> Array:
        """The same before the tanh."""

    def entropy(self, unbounded: Array, action_mask: Array | None = None) -> Array:
        """Entropy (...) at samples (..., A), up to a constant: mean of log σ + log tanh′ over unmasked actions."""
        slope = 2.0 * (math.log(2.0) - unbounded - jax.nn.softplus(-2.0 * unbounded))
        each = jnp.log(self.std) + slope
        return each.mean(-1) if action_mask is None else (each * action_mask).sum(-1) / action_mask.sum(-1)


class GaussianActor(PwmActor):
    """μ(z) + σ·ε."""

    def __init__(self, key: Array, latent: int, actions: int, settings: PwmBehaviorSettings) -> None:
        sizes = (latent, *settings.actor_units)
        self.network = NormedMLP(key, sizes, actions, "mish_then_norm", (uniform, uniform))
        self.log_std = jnp.full(actions, settings.init_log_std, jnp.float32)
        self.min_log_std = settings.min_log_std

    def unbounded(self, z: Array, noise: Array) -> Array:
        """A single evaluation."""
        return self.network(z) + self.std * noise


class FlowActor(PwmActor):
    """A flow u(z, a, τ) that starts in σ·ε, integrated by Heun's rule."""

    substeps: int = eqx.field(static=True)

    def __init__(self, key: Array, latent: int, actions: int, settings: PwmBehaviorSettings) -> None:
        sizes = (latent + actions + 1, *settings.actor_units)
        self.network = NormedMLP(key, sizes, actions, "mish_then_norm", (uniform, uniform))
        self.log_std = jnp.full(actions, settings.init_log_std, jnp.float32)
        self.min_log_std, self.substeps = settings.flow_min_log_std, settings.flow_substeps

    def velocity(self, z: Array, action: Array, time: float) -> Array:
        """u(z, a, τ): one evaluation."""
        times = jnp.full((*z.shape[:-1], 1), time, jnp.float32)
        return self.network(jnp.concatenate([z, action, times], -1))

    def unbounded(self, z: Array, noise: Array) -> Array:
        """Two evaluations per substep."""
        action, width = self.std * noise, 1.0 / self.substeps
        for index in range(self.substeps):
            slope = self.velocity(z, action, index * width)
            later = self.velocity(z, action + width * slope, (index + 1) * width)
            action = action + 0.5 * width * (slope + later)
        return action


def make_actor(key: Array, latent: int, actions: int, settings: PwmBehaviorSettings) -> PwmActor:
    """The policy that the settings name."""
    kind = GaussianActor if settings.policy == "gaussian" else FlowActor
    return kind(key, latent, actions, settings)


class PwmCritics(eqx.Module):
    """An ensemble of values of a latent; the minimum is used."""

    members: NormedMLP

    def __init__(self, key: Array, latent: int, settings: PwmBehaviorSettings) -> None:
        sizes = (latent, *settings.critic_units)

        def build(at: Array) -> NormedMLP:
            return NormedMLP(at, sizes, 1, "mish_then_norm", (orthogonal, orthogonal))

        members = ensemble(build, key, settings.critics)
        assert isinstance(members, NormedMLP)
        self.members = members

    def all(self, z: Array) -> Array:
        """Every member's value, (K, ...)."""
        # Each member gets its own view of z: a joint product with one z would give strided rows.
        views = jnp.broadcast_to(z, (self.members.hidden[0].norm.scale.shape[0], *z.shape))
        return eqx.filter_vmap(lambda member, view: member(view)[..., 0])(self.members, views)

    def __call__(self, z: Array) -> Array:
        """The minimum, (...)."""
        return self.all(z).min(0)


class DifferentiableRollout(NamedTuple):
    """Latents (H+1, S, L), actions (H, S, A); scaled rewards, continuation probabilities and entropies (H, S)."""

    z: Array
    action: Array
    reward: Array
    continue_prob: Array
    entropy: Array

    def with_entropy_bonus(self, entropy_coef: Array | float) -> "DifferentiableRollout":
        """The same rollout with entropies added to the rewards."""
        return self._replace(reward=self.reward + entropy_coef * self.entropy)


class LatentWindows(NamedTuple):
    """Recorded windows: latents (T+1, S, L); scaled rewards, continuations and validity (T, S) of their transitions.

    continues: 0 where the episode terminated, else 1. valid: 0 behind the last row of the episode, else 1.
    """

    z: Array
    reward: Array
    continues: Array
    valid: Array


class RolloutStart(NamedTuple):
    """Starts of imagined rollouts: latents (S, L), weights (S,), task vectors and action masks.

    Task vectors and masks are (S, ...), or without S if all starts are of one task. `recorded` are latents (S, L) and
    the actions (S, A) that were taken there, for the distance to them. `windows`: recorded ones, for the critics.
    `return_scale` weights the imagined return in the actor's loss; None: 1.
    """

    z: Array
    counts: Array
    task: Array | None = None
    action_mask: Array | None = None
    recorded: tuple[Array, Array] | None = None
    windows: LatentWindows | None = None
    return_scale: Array | None = None


def imagine_rollout(
    model: PwmWorldModel,
    actor: PwmActor,
    start: RolloutStart,
    settings: PwmBehaviorSettings,
    key: Array,
    terminates: bool | Array,
) -> DifferentiableRollout:
    """Follows the actor through the model; gradients reach the actor through its actions.

    Without `terminates` the termination head is ignored.
    """
    noise_key, model_key = jax.random.split(key)
    actions = actor.log_std.shape[0]
    noise = jax.random.normal(noise_key, (settings.horizon, start.z.shape[0], actions))

    dynamics = model.fixed_dynamics
    actor = eqx.tree_at(lambda made: made.network, actor, actor.network.for_a_loop())

    def step(z: Array, xs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        drawn, flow_key = xs
        unbounded = actor.unbounded(jax.lax.stop_gradient(z) if settings.detached else z, drawn)
        action = jnp.tanh(unbounded) if start.action_mask is None else jnp.tanh(unbounded) * start.action_mask
        following = dynamics.next(z, joined(action, start.task), flow_key)
        return following, (following, action, actor.entropy(unbounded, start.action_mask))

    xs = (noise, jax.random.split(model_key, settings.horizon))
    _, (later, action, entropy) = jax.lax.scan(
        rematerialised(step, model.settings), start.z, xs, unroll=unroll(model.settings)
    )
    z = jnp.concatenate([start.z[None], later])
    reward = model.reward(z[:-1], joined(action, start.task))
    return DifferentiableRollout(z, action, reward, continue_prob_of(model, later, terminates), entropy)


def continue_prob_of(model: PwmWorldModel, z: Array, terminates: bool | Array) -> Array:
    """Continuation probability (...) of latents (..., L); 1 without `terminates`."""
    if isinstance(terminates, bool) and not terminates:
        return jnp.ones(z.shape[:-1])
    return jnp.where(terminates, jax.nn.sigmoid(-model.termination_logit(z)), 1.0)


def cloning_loss(actor: PwmActor, z: Array, recorded: Array, action_mask: Array | None) -> Array:
    """Mean squared distance of the deterministic actions in latents (S, L) to the recorded ones (S, A)."""
    missed = jnp.square(actor(z, jnp.zeros(recorded.shape)) - recorded)
    return missed.mean() if action_mask is None else (missed * action_mask).sum(-1).mean() / action_mask.sum()


def imagined_return(
    rollout: DifferentiableRollout, last_value: Array, discount: float, last_factor: float = 1.0
) -> Array:
    """Σ_i γ^i r_i + γ^H V(z_H) · last_factor of each start (S,), weighted by the probability to get there."""
    last_value, discounts = last_factor * last_value, discount * rollout.continue_prob
    weights = discount_weights(discounts)
    return (weights * rollout.reward).sum(0) + weights[-1] * discounts[-1] * last_value


def critic_targets(rollout: DifferentiableRollout, values: Array, settings: PwmBehaviorSettings) -> tuple[Array, Array]:
    """λ-returns (H, S) from values (H+1, S), and the weight of each imagined state."""
    targets = lambda_returns(rollout.reward, values, settings.discount * rollout.continue_prob, settings.gae_lambda)
    return targets, discount_weights(rollout.continue_prob)


def recorded_targets(windows: LatentWindows, values: Array, settings: PwmBehaviorSettings) -> Array:
    """λ-returns (T, S) of recorded rewards from values (T+1, S).

    A transition that is not valid stands for the value of its first state: an episode that ends without termination
    inside the window is worth its last value there.
    """
    reward = jnp.where(windows.valid > 0, windows.reward, values[:-1])
    discounts = settings.discount * windows.continues * windows.valid
    return lambda_returns(reward, values, discounts, settings.gae_lambda)


def critic_loss(critics: PwmCritics, z: Array, targets: Array, weights: Array) -> Array:
    """Weighted squared error of every member, averaged over members and states."""
    return (weights * jnp.square(critics.all(z) - targets)).mean()


def minibatches(key: Array, states: int, settings: PwmBehaviorSettings) -> Array:
    """Numbers of the imagined states in every minibatch of all passes, (passes · batches, size)."""
    passes, batches = settings.critic_passes, settings.critic_batches
    size = states // batches
    if settings.shuffled:
        order = jax.vmap(lambda at: jax.random.permutation(at, states))(jax.random.split(key, passes))
    else:
        order = jnp.broadcast_to(jnp.arange(states), (passes, states))
    return order[:, : size * batches].reshape(-1, size)
