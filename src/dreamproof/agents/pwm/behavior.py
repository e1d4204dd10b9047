"""Actor and critics of PWM (2024): imagined steps with gradients, the actor's return, the critics' targets."""

import math
from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.pwm.world_model import WorldModel, joined, remembering, unroll
from dreamproof.agents.returns import discount_weights, lambda_returns
from dreamproof.nn.layers import ensemble
from dreamproof.nn.normed import NormedMLP, orthogonal, uniform
from dreamproof.settings.pwm import Behavior as Settings


class Actor(eqx.Module):
    """A policy: the tanh of what its subclass makes of a latent and of noise with one σ for all states."""

    network: NormedMLP
    log_sigma: Array
    least_log_sigma: float = eqx.field(static=True)

    @property
    def sigma(self) -> Array:
        """Standard deviations (A,) before the tanh."""
        return jnp.exp(jnp.maximum(self.log_sigma, self.least_log_sigma))

    def __call__(self, z: Array, noise: Array) -> Array:
        """Actions (..., A) from unit normal `noise` (..., A); zeros give the deterministic ones."""
        return jnp.tanh(self.unbounded(z, noise))

    @abstractmethod
    def unbounded(self, z: Array, noise: Array) -> Array:
        """The same before the tanh."""

    def entropy(self, unbounded: Array, usable: Array | None = None) -> Array:
        """Entropy (...) where these (..., A) were drawn, up to a constant: mean log σ + log tanh′ of usable actions."""
        slope = 2.0 * (math.log(2.0) - unbounded - jax.nn.softplus(-2.0 * unbounded))
        each = jnp.log(self.sigma) + slope
        return each.mean(-1) if usable is None else (each * usable).sum(-1) / usable.sum(-1)


class GaussianActor(Actor):
    """μ(z) + σ·ε."""

    def __init__(self, key: Array, latent: int, actions: int, settings: Settings) -> None:
        sizes = (latent, *settings.actor_units)
        self.network = NormedMLP(key, sizes, actions, "mish_then_norm", (uniform, uniform))
        self.log_sigma = jnp.full(actions, settings.first_log_sigma, jnp.float32)
        self.least_log_sigma = settings.least_log_sigma

    def unbounded(self, z: Array, noise: Array) -> Array:
        """A single evaluation."""
        return self.network(z) + self.sigma * noise


class FlowActor(Actor):
    """A flow u(z, a, τ) that starts in σ·ε, integrated by Heun's rule."""

    substeps: int = eqx.field(static=True)

    def __init__(self, key: Array, latent: int, actions: int, settings: Settings) -> None:
        sizes = (latent + actions + 1, *settings.actor_units)
        self.network = NormedMLP(key, sizes, actions, "mish_then_norm", (uniform, uniform))
        self.log_sigma = jnp.full(actions, settings.first_log_sigma, jnp.float32)
        self.least_log_sigma, self.substeps = settings.flow_least_log_sigma, settings.flow_substeps

    def velocity(self, z: Array, action: Array, time: float) -> Array:
        """u(z, a, τ): one evaluation."""
        times = jnp.full((*z.shape[:-1], 1), time, jnp.float32)
        return self.network(jnp.concatenate([z, action, times], -1))

    def unbounded(self, z: Array, noise: Array) -> Array:
        """Two evaluations a substep."""
        action, width = self.sigma * noise, 1.0 / self.substeps
        for index in range(self.substeps):
            slope = self.velocity(z, action, index * width)
            later = self.velocity(z, action + width * slope, (index + 1) * width)
            action = action + 0.5 * width * (slope + later)
        return action


def make_actor(key: Array, latent: int, actions: int, settings: Settings) -> Actor:
    """The policy that the settings name."""
    kind = GaussianActor if settings.policy == "gaussian" else FlowActor
    return kind(key, latent, actions, settings)


class Critics(eqx.Module):
    """Independent values of a latent; the least of them counts."""

    members: NormedMLP

    def __init__(self, key: Array, latent: int, settings: Settings) -> None:
        sizes = (latent, *settings.critic_units)

        def build(at: Array) -> NormedMLP:
            return NormedMLP(at, sizes, 1, "mish_then_norm", (orthogonal, orthogonal))

        members = ensemble(build, key, settings.critics)
        assert isinstance(members, NormedMLP)
        self.members = members

    def all(self, z: Array) -> Array:
        """Every member's value, (K, ...)."""
        # Each member is given its own view of z: products of all with one z would leave their rows in stripes.
        views = jnp.broadcast_to(z, (self.members.hidden[0].norm.scale.shape[0], *z.shape))
        return eqx.filter_vmap(lambda member, view: member(view)[..., 0])(self.members, views)

    def __call__(self, z: Array) -> Array:
        """The least value, (...)."""
        return self.all(z).min(0)


class Dream(NamedTuple):
    """Imagined steps: latents (H+1, S, L) and actions (H, S, A); scaled rewards, chances to go on, entropies (H, S)."""

    z: Array
    action: Array
    reward: Array
    proceed: Array
    entropy: Array

    def paid(self, price: Array | float) -> "Dream":
        """The same with the entropies among the rewards."""
        return self._replace(reward=self.reward + price * self.entropy)


class Start(NamedTuple):
    """Where imagination starts: latents (S, L), whether a start counts (S,), and task vectors and usable actions.

    The last two are (S, ...), or without S where all starts are of one task.
    """

    z: Array
    counts: Array
    task: Array | None = None
    usable: Array | None = None


def dream(
    model: WorldModel, actor: Actor, start: Start, settings: Settings, key: Array, terminates: bool | Array
) -> Dream:
    """Follows the actor through the model; gradients reach the actor through what it does.

    Without `terminates` every imagined step goes on, whatever the termination head says.
    """
    noise_key, model_key = jax.random.split(key)
    actions = actor.log_sigma.shape[0]
    noise = jax.random.normal(noise_key, (settings.horizon, start.z.shape[0], actions))

    dynamics = model.fixed_dynamics

    def step(z: Array, told: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        drawn, flow_key = told
        unbounded = actor.unbounded(jax.lax.stop_gradient(z) if settings.detached else z, drawn)
        action = jnp.tanh(unbounded) if start.usable is None else jnp.tanh(unbounded) * start.usable
        following = dynamics.next(z, joined(action, start.task), flow_key)
        return following, (following, action, actor.entropy(unbounded, start.usable))

    told = (noise, jax.random.split(model_key, settings.horizon))
    _, (later, action, left_open) = jax.lax.scan(
        remembering(step, model.settings), start.z, told, unroll=unroll(model.settings)
    )
    z = jnp.concatenate([start.z[None], later])
    reward = model.reward(z[:-1], joined(action, start.task))
    return Dream(z, action, reward, chance_to_go_on(model, later, terminates), left_open)


def chance_to_go_on(model: WorldModel, z: Array, terminates: bool | Array) -> Array:
    """Of latents (..., L): 1 where nothing terminates, otherwise what the termination head says."""
    if isinstance(terminates, bool) and not terminates:
        return jnp.ones(z.shape[:-1])
    return jnp.where(terminates, jax.nn.sigmoid(-model.termination_logit(z)), 1.0)


def dream_return(dreamt: Dream, last_value: Array, discount: float) -> Array:
    """Σ_i γ^i r_i + γ^H V(z_H) of each start (S,), every term weighed by the chance to get there."""
    discounts = discount * dreamt.proceed
    weights = discount_weights(discounts)
    return (weights * dreamt.reward).sum(0) + weights[-1] * discounts[-1] * last_value


def critic_targets(dreamt: Dream, values: Array, settings: Settings) -> tuple[Array, Array]:
    """λ-returns (H, S) from values (H+1, S), and how much each imagined state counts."""
    targets = lambda_returns(dreamt.reward, values, settings.discount * dreamt.proceed, settings.mixing)
    return targets, discount_weights(dreamt.proceed)


def critic_loss(critics: Critics, z: Array, targets: Array, weights: Array) -> Array:
    """Weighted squared error of every member, averaged over members and states."""
    return (weights * jnp.square(critics.all(z) - targets)).mean()
