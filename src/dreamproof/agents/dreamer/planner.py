"""Constrained cross-entropy planning in latent space (SafeDreamer, 2024, alg. 2, with its errors fixed).

`filter` ranks by predicted cost alone, ties go to the actor's own rollouts: what the released agent does.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.dreamer.behavior import DreamerActor, DreamerCritics, clip_action
from dreamproof.agents.dreamer.risk import RiskModel, barrier_violation, uncertainty
from dreamproof.agents.dreamer.world_model import DreamerWorldModel, Latent
from dreamproof.jaxcore.devices import scan_unroll
from dreamproof.nn.heads import TwoHot
from dreamproof.nn.layers import in_compute_dtype
from dreamproof.settings.dreamer import PlannerSettings

FAR = 1e4
NEGLIGIBLE = 1e-3
"""Cost probability of a step below which it counts as 0: a sigmoid is never 0, and a limit of 0 must be reachable."""


class Networks(NamedTuple):
    """Networks and statistics of the planner; `alarm` (N,) in [0, 1]: how far observations are from predictions."""

    model: DreamerWorldModel
    actor: DreamerActor
    critics: DreamerCritics
    risk: RiskModel
    residual: Array
    offset: Array
    scale: Array
    alarm: Array


class Scores(NamedTuple):
    """Scores of each candidate (K, N); excesses: cost of each constraint beyond its own limit, if it has one.

    metres: mean of what its hazards count as larger by.
    """

    reward: Array
    cost: Array
    uncertainty: Array
    violation: Array
    min_barrier: Array
    metres: Array
    excesses: tuple[Array, ...] = ()

    def join(self, *others: "Scores") -> "Scores":
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), self, *others)

    def over_draws(self, worst: Array) -> "Scores":
        """(D, K, N) → (K, N): means; for cost and barrier the worst sample if `worst` is 1."""
        mean = jax.tree.map(lambda x: x.mean(0), self)
        return mean._replace(
            cost=mean.cost + worst * (self.cost.max(0) - mean.cost),
            min_barrier=mean.min_barrier + worst * (self.min_barrier.min(0) - mean.min_barrier),
            excesses=tuple(
                average + worst * (each.max(0) - average)
                for average, each in zip(mean.excesses, self.excesses, strict=True)
            ),
        )


class PlannerConstants(NamedTuple):
    """Constants of a plan that are not settings of the planner; limits: (which cost, its limit) of single costs."""

    discount: float
    episode_steps: int
    barrier_decay: float
    max_step_cost: float
    two_hot: TwoHot
    limits: tuple[tuple[int, float], ...] = ()


class PlannedAction(NamedTuple):
    """The action (N, A), the sequence (H, N, A) from which the next plan starts, and metrics (N,)."""

    action: Array
    mean: Array
    std: Array
    metrics: dict[str, Array]


class Candidates(NamedTuple):
    """Action sequences (H, K, N, A) and their scores (K, N)."""

    actions: Array
    scores: Scores

    def join(self, *others: "Candidates") -> "Candidates":
        actions = jnp.concatenate([self.actions, *(other.actions for other in others)], axis=1)
        return Candidates(actions, self.scores.join(*(other.scores for other in others)))

    def first(self) -> "Candidates":
        """Only the first candidate, if any: of the actor's rollouts the one that follows its mean."""
        return Candidates(self.actions[:, :1], jax.tree.map(lambda x: x[:1], self.scores))

    def pick(self, chosen: Array) -> "Candidates":
        """The candidates with indices `chosen` (C, N)."""
        actions = jnp.take_along_axis(self.actions, chosen[None, :, :, None], axis=1)
        return Candidates(actions, jax.tree.map(lambda x: jnp.take_along_axis(x, chosen, axis=0), self.scores))


def widen(start: Latent, candidates: int) -> Latent:
    """(N, ...) → (K, N, ...)."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (candidates, *x.shape)), start)


def imagine_all(model: DreamerWorldModel, state: Latent, action: Array, noise: Array) -> Latent:
    """One step of all candidates with common random numbers: ranking then compares actions only."""
    return model.imagine(state, action, noise)


def roll_out(model: DreamerWorldModel, start: Latent, actions: Array, noises: Array) -> Latent:
    """States (H, K, N, ...) after the action sequences (H, K, N, A)."""

    def step(state: Latent, row: tuple[Array, Array]) -> tuple[Latent, Latent]:
        following = imagine_all(model, state, *row)
        return following, following

    return jax.lax.scan(step, widen(start, actions.shape[1]), (actions, noises), unroll=scan_unroll(len(actions)))[1]


def score(
    networks: Networks, start: Latent, states: Latent, actions: Array, coefs: dict, constants: PlannerConstants
) -> Scores:
    """Scores of trajectories (H, K, N, ...) that followed `actions` from `start` (N, ...)."""
    feature, two_hot = networks.model.feature(states), constants.two_hot
    first = jnp.broadcast_to(networks.model.feature(start), (1, *feature.shape[1:]))
    before = jnp.concatenate([first, feature[:-1]])
    powers = (constants.discount ** jnp.arange(len(actions)))[:, None, None]
    reward = two_hot.decode(networks.model.reward(feature))
    final, *final_costs = two_hot.decode(networks.critics(feature[-1]))
    disagreement = uncertainty(networks.risk, before, actions, networks.residual)
    metres = added_radius(disagreement.margin_std, networks.alarm, coefs)
    costs = networks.model.step_costs(states, feature, metres)
    costs = jnp.where(costs < NEGLIGIBLE * constants.max_step_cost, 0.0, costs)

    def whole(which: int) -> Array:
        return episode_cost(costs[which], final_costs[which], coefs["planner"]["terminal_cost"], constants)

    barrier = networks.risk.value(jnp.concatenate([first, feature])) - networks.offset
    violation = barrier_violation(barrier, constants.barrier_decay)
    return Scores(
        (powers * reward).sum(0) + constants.discount ** len(actions) * final,
        whole(0),
        (powers * disagreement.epistemic).sum(0),
        (powers * violation).sum(0),
        barrier[1:].min(0),
        jnp.broadcast_to(metres, disagreement.margin_std.shape).mean(0),
        tuple(whole(which) - limit for which, limit in constants.limits),
    )


def added_radius(margin_std: Array, alarm: Array, coefs: dict) -> Array:
    """Metres added to hazard radii: the set margin, plus terms for disagreement (...) and innovation (N,)."""
    widened = coefs["risk"]["tube"] * margin_std + coefs["risk"]["innovation_margin"] * alarm
    return coefs["planner"]["margin"] + widened


def episode_cost(cost: Array, critic: Array, share: Array, constants: PlannerConstants) -> Array:
    """Cost of a whole episode (...) from the costs of H steps (H, ...) and the cost critic's value of the last state.

    The critic's value is a sum over 1 / (1 − γ) steps, so (1 − γ) of it is a cost per step.
    """
    planned, left = cost.sum(0), constants.episode_steps - len(cost)
    as_here = planned * (constants.episode_steps / len(cost))
    as_valued = planned + jnp.maximum(0.0, critic) * (1 - constants.discount) * left
    return (1 - share) * as_here + share * as_valued


def rank(scores: Scores, networks: Networks, coefs: dict, settings: PlannerSettings, needed: int) -> Array:
    """Higher is better, (K, N): safe candidates by value; if fewer than `needed` are safe, all by their excess cost."""
    risk, planner = coefs["risk"], coefs["planner"]
    if settings.mode == "filter":
        return -scores.cost
    penalty = risk["uncertainty_weight"] * scores.uncertainty + risk["certificate_weight"] * scores.violation
    value = scores.reward / networks.scale - risk["coef"] * penalty - planner["cost_coef"] * scores.cost
    safe = is_safe(scores, coefs)
    worst = jnp.max(jnp.stack(scores.excesses), axis=0) if scores.excesses else scores.cost
    fallback = -FAR / 2 - worst - 1e2 * uncertified(scores, risk) + 1e-3 * value
    return jnp.where(safe.sum(0) >= needed, jnp.where(safe, value, -FAR), fallback)


def is_safe(scores: Scores, coefs: dict) -> Array:
    """Whether a candidate satisfies every cost limit and, if required, the certificate, (K, N)."""
    keeps = scores.cost <= coefs["planner"]["cost_limit"]
    if scores.excesses:
        keeps = jnp.all(jnp.stack(scores.excesses) <= 0, axis=0)
    return keeps & (uncertified(scores, coefs["risk"]) <= 0)


def uncertified(scores: Scores, risk: dict) -> Array:
    """How far a candidate leaves the certified set, (K, N); 0 if no certificate is required."""
    return risk["certified_only"] * jax.nn.relu(-scores.min_barrier - risk["slack"])


def propose(
    networks: Networks, start: Latent, settings: PlannerSettings, key: Array, noises: Array
) -> tuple[Latent, Array]:
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
    networks: Networks,
    start: Latent,
    mean: Array,
    key: Array,
    coefs: dict,
    fixed: tuple[PlannerSettings, PlannerConstants],
) -> PlannedAction:
    """Improves `mean` (H, N, A) from the latents `start` (N, ...) and chooses an action."""
    settings, constants = fixed
    networks = in_compute_dtype(networks)
    act_key, latent_key, sample_key = jax.random.split(key, 3)
    envs = start.h.shape[:-1]
    noises = networks.model.noise(latent_key, (settings.draws, settings.horizon, *envs))

    def scored(actions: Array, noises: Array = noises) -> Candidates:
        def on_draw(noise: Array) -> Scores:
            return score(networks, start, roll_out(networks.model, start, actions, noise), actions, coefs, constants)

        return Candidates(actions, jax.vmap(on_draw)(noises).over_draws(coefs["planner"]["worst_draw"]))

    states, followed = propose(networks, start, settings, act_key, noises[0])
    one_draw = settings.draws == 1
    proposals = (
        Candidates(followed, score(networks, start, states, followed, coefs, constants))
        if one_draw
        else scored(followed)
    )

    def improve(carry: tuple[Array, Array], step_key: Array) -> tuple[tuple[Array, Array], tuple[Candidates, Array]]:
        centre, std = carry
        shape = (settings.horizon, settings.samples, *centre.shape[1:])
        sampled = clip_action(centre[:, None] + std[:, None] * jax.random.normal(step_key, shape))
        candidates = proposals.join(scored(sampled))
        ranked = rank(candidates.scores, networks, coefs, settings, settings.elites)
        elites = candidates.pick(jax.lax.top_k(ranked.T, settings.elites)[1].T)
        centre = settings.momentum * centre + (1 - settings.momentum) * elites.actions.mean(1)
        std = jnp.maximum(elites.actions.std(1), settings.min_std)
        return (centre, std), (elites, is_safe(candidates.scores, coefs).mean(0))

    spread = jnp.full_like(mean, settings.init_std)
    keys = jax.random.split(sample_key, settings.iterations)
    (mean, spread), found = jax.lax.scan(improve, (mean, spread), keys)
    elites, safe = jax.tree.map(lambda x: x[-1], found)
    # The mean of safe sequences need not be safe (left and right around a hazard), so it is scored too.
    choices = scored(mean[:, None]).join(elites, proposals.first())
    if settings.check_draws:
        # The best of many candidates is one whose cost the shared latent samples underestimate; new samples do not.
        fresh = jax.random.fold_in(latent_key, 1)
        noises = networks.model.noise(fresh, (settings.check_draws, settings.horizon, *envs))
        choices = scored(choices.actions, noises)
    executed = choose(choices, networks, coefs, settings)
    sequence = executed.actions[:, 0]
    metrics = plan_metrics(elites.scores, safe, coefs["risk"])
    return PlannedAction(sequence[0], sequence, spread, metrics | executed_metrics(executed.scores, coefs))


def executed_metrics(scores: Scores, coefs: dict) -> dict[str, Array]:
    """Metrics (N,) of the one candidate (1, N) that is executed: whether it is safe and certified, and its margin."""
    return {
        "plan/executed_safe": is_safe(scores, coefs)[0].astype(jnp.float32),
        "plan/certified": (scores.min_barrier[0] >= 0).astype(jnp.float32),
        "plan/margin": scores.metres[0],
    }


def choose(candidates: Candidates, networks: Networks, coefs: dict, settings: PlannerSettings) -> Candidates:
    """The elite mean (the first); the best if `execute_best` is 1, or if `execute_safe` is 1 and the mean is unsafe."""
    best = jnp.argmax(rank(candidates.scores, networks, coefs, settings, needed=1), axis=0)
    unsafe = ~is_safe(candidates.scores, coefs)[0] & (coefs["planner"]["execute_safe"] > 0)
    return candidates.pick(jnp.where((coefs["planner"]["execute_best"] > 0) | unsafe, best, 0)[None])


def plan_metrics(elites: Scores, safe: Array, risk: dict[str, Array]) -> dict[str, Array]:
    """Metrics of a decision, (N,) each; shadow/ metrics are unweighted."""
    elites = jax.tree.map(lambda x: x.mean(0), elites)
    weighted = risk["uncertainty_weight"] * elites.uncertainty + risk["certificate_weight"] * elites.violation
    return {
        "plan/reward": elites.reward,
        "plan/cost": elites.cost,
        "plan/safe_fraction": safe,
        "shadow/uncertainty": elites.uncertainty,
        "shadow/violation": elites.violation,
        "risk_penalty": weighted,
    }
