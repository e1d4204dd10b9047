"""Constrained cross-entropy planning in latent space (SafeDreamer, 2024, alg. 2, with its defects mended).

`filter` ranks by predicted cost alone, ties going to the actor's own rollouts: what the released agent really does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.dreamer.behavior import Actor, Critics, clip_action
from dreamproof.agents.dreamer.risk import RiskModel, barrier_violation, uncertainty
from dreamproof.agents.dreamer.world_model import Latent, WorldModel
from dreamproof.jaxcore.devices import scan_unroll
from dreamproof.nn.heads import TwoHot
from dreamproof.nn.layers import lowered
from dreamproof.settings.dreamer import Planner as Settings

FAR = 1e4
COST_SOFTNESS = 0.02


class Networks(NamedTuple):
    """What the planner looks through."""

    model: WorldModel
    actor: Actor
    critics: Critics
    risk: RiskModel
    residual: Array
    offset: Array
    scale: Array


class Scores(NamedTuple):
    """What is known of each candidate (K, N)."""

    reward: Array
    cost: Array
    uncertainty: Array
    violation: Array
    least_barrier: Array

    def join(self, other: "Scores") -> "Scores":
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), self, other)


class Facts(NamedTuple):
    """Constants of a plan that are not settings of the planner."""

    discount: float
    episode_steps: int
    barrier_decay: float
    most_step_cost: float
    two_hot: TwoHot


class Plan(NamedTuple):
    """The chosen mean sequence (H, N, A) and what the last elites looked like (N,)."""

    mean: Array
    sigma: Array
    metrics: dict[str, Array]


def widen(start: Latent, candidates: int) -> Latent:
    """(N, ...) → (K, N, ...)."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (candidates, *x.shape)), start)


def imagine_all(model: WorldModel, state: Latent, action: Array, noise: Array) -> Latent:
    """One step for all candidates with one draw: ranking then compares actions, not luck."""
    return jax.vmap(model.imagine, in_axes=(0, 0, None))(state, action, noise)


def roll_out(model: WorldModel, start: Latent, actions: Array, noises: Array) -> Latent:
    """States (H, K, N, ...) after the action sequences (H, K, N, A)."""

    def step(state: Latent, row: tuple[Array, Array]) -> tuple[Latent, Latent]:
        following = imagine_all(model, state, *row)
        return following, following

    return jax.lax.scan(step, widen(start, actions.shape[1]), (actions, noises), unroll=scan_unroll(len(actions)))[1]


def score(networks: Networks, start: Latent, states: Latent, actions: Array, prices: dict, facts: Facts) -> Scores:
    """What trajectories of states (H, K, N, ...) that followed `actions` from `start` (N, ...) are worth."""
    horizon = actions.shape[0]
    feature, two_hot = networks.model.feature(states), facts.two_hot
    first = jnp.broadcast_to(networks.model.feature(start), (1, *feature.shape[1:]))
    before = jnp.concatenate([first, feature[:-1]])
    powers = (facts.discount ** jnp.arange(horizon))[:, None, None]
    reward = two_hot.decode(networks.model.reward(feature))
    final, final_cost = two_hot.decode(networks.critics(feature[-1]))
    cost = networks.model.step_cost(states, feature)
    doubt = uncertainty(networks.risk, before, actions, networks.residual)
    margin = networks.model.step_margin(states, feature)
    tube = prices["risk"]["tube"] * doubt.margin_sigma
    soft_hit = facts.most_step_cost * jax.nn.sigmoid((tube - margin) / COST_SOFTNESS)
    cost = jnp.where(prices["risk"]["tube"] > 0, jnp.maximum(cost, soft_hit), cost)
    later_cost = final_cost * prices["planner"]["terminal_cost"]
    barrier = networks.risk.value(jnp.concatenate([first, feature])) - networks.offset
    violation = barrier_violation(barrier, facts.barrier_decay)
    return Scores(
        (powers * reward).sum(0) + facts.discount**horizon * final,
        (cost.sum(0) + jnp.maximum(0.0, later_cost)) * (facts.episode_steps / horizon),
        (powers * doubt.epistemic).sum(0),
        (powers * violation).sum(0),
        barrier[1:].min(0),
    )


def rank(scores: Scores, networks: Networks, prices: dict, settings: Settings) -> Array:
    """Higher is better, (K, N): safe candidates by worth; where too few are safe, all by how unsafe they are."""
    risk, planner = prices["risk"], prices["planner"]
    if settings.mode == "filter":
        return -scores.cost
    penalty = risk["uncertainty_weight"] * scores.uncertainty + risk["certificate_weight"] * scores.violation
    worth = scores.reward / networks.scale - risk["price"] * penalty - planner["cost_price"] * scores.cost
    uncertified = risk["certified_only"] * jax.nn.relu(-scores.least_barrier - risk["slack"])
    safe = (scores.cost <= planner["cost_limit"]) & (uncertified <= 0)
    enough = safe.sum(0) >= settings.elites
    least_bad = -FAR / 2 - scores.cost - 1e2 * uncertified + 1e-3 * worth
    return jnp.where(enough, jnp.where(safe, worth, -FAR), least_bad)


def propose(networks: Networks, start: Latent, settings: Settings, key: Array, noises: Array) -> tuple[Latent, Array]:
    """Rollouts of the actor: states (H, P, N, ...) and clipped actions (H, P, N, A); the first follows its mean."""
    greedy = (jnp.arange(settings.proposals) == 0)[:, None, None]

    def step(state: Latent, row: tuple[Array, Array]) -> tuple[Latent, tuple[Latent, Array]]:
        act_noise, latent_noise = row
        policy = networks.actor(networks.model.feature(state))
        action = clip_action(jnp.where(greedy, policy.mean, policy.at(act_noise)))
        following = imagine_all(networks.model, state, action, latent_noise)
        return following, (following, action)

    shape = (settings.horizon, settings.proposals, *start.h.shape[:-1], networks.model.spec.action_size)
    rows = (jax.random.normal(key, shape), noises)
    return jax.lax.scan(step, widen(start, settings.proposals), rows, unroll=scan_unroll(settings.horizon))[1]


def plan(
    networks: Networks, start: Latent, mean: Array, key: Array, prices: dict, fixed: tuple[Settings, Facts]
) -> Plan:
    """Improves `mean` (H, N, A) from the latent states `start` (N, ...)."""
    settings, facts = fixed
    networks = lowered(networks)
    act_key, latent_key, sample_key = jax.random.split(key, 3)
    latent_noises = networks.model.noise(latent_key, (settings.horizon, *start.h.shape[:-1]))
    states, proposals = propose(networks, start, settings, act_key, latent_noises)
    known = score(networks, start, states, proposals, prices, facts)

    def improve(carry: tuple[Array, Array], step_key: Array) -> tuple[tuple[Array, Array], tuple[Scores, Array]]:
        centre, sigma = carry
        shape = (settings.horizon, settings.samples, *centre.shape[1:])
        sampled = clip_action(centre[:, None] + sigma[:, None] * jax.random.normal(step_key, shape))
        rolled = roll_out(networks.model, start, sampled, latent_noises)
        scores = known.join(score(networks, start, rolled, sampled, prices, facts))
        _, chosen = jax.lax.top_k(rank(scores, networks, prices, settings).T, settings.elites)
        candidates = jnp.concatenate([proposals, sampled], axis=1)
        elite = jnp.take_along_axis(candidates, chosen.T[None, :, :, None], axis=1)
        centre = settings.momentum * centre + (1 - settings.momentum) * elite.mean(1)
        sigma = jnp.maximum(elite.std(1), settings.least_sigma)
        elites = jax.tree.map(lambda x: jnp.take_along_axis(x, chosen.T, axis=0).mean(0), scores)
        return (centre, sigma), (elites, (scores.cost <= prices["planner"]["cost_limit"]).mean(0))

    spread = jnp.full_like(mean, settings.first_sigma)
    keys = jax.random.split(sample_key, settings.iterations)
    (mean, spread), (elites, safe) = jax.lax.scan(improve, (mean, spread), keys)
    return Plan(mean, spread, plan_metrics(jax.tree.map(lambda x: x[-1], elites), safe[-1], prices["risk"]))


def plan_metrics(elites: Scores, safe: Array, risk: dict[str, Array]) -> dict[str, Array]:
    """What is logged of a decision, (N,) each; shadow values are not weighted by the arm."""
    weighted = risk["uncertainty_weight"] * elites.uncertainty + risk["certificate_weight"] * elites.violation
    return {
        "plan/reward": elites.reward,
        "plan/cost": elites.cost,
        "plan/safe_fraction": safe,
        "shadow/uncertainty": elites.uncertainty,
        "shadow/violation": elites.violation,
        "risk_penalty": weighted,
    }
