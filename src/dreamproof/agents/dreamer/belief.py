"""The belief about each env: one filter per hypothesis about the delay of actions, and a memory of entities.

Under the hypothesis "delay k" an observation follows from the action of k decisions ago. The hypothesis with the least
accumulated surprise is used, and planning starts from the latent after its pending actions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.dreamer.entities import ENTITY_REACH, entity_error, split_types
from dreamproof.agents.dreamer.world_model import DreamerWorldModel, Latent

SURPRISE_DECAY = 0.98
"""A delay is fixed within an episode; evidence has a time constant of about 50 steps."""
MAX_SURPRISE = 20.0
"""Nats per step: a single jump must not outweigh many normal steps."""
DELAY_PENALTY = 2.0
"""Nats by which a longer delay must explain better: if all are equal, no delay is assumed."""
ALARM_RATE = 0.1
ALARM_FROM, ALARM_FULL = 1.0, 5.0
"""Standard deviations of innovation, averaged over about 10 steps. Over the 1,250 test episodes per condition of
gallery/safedreamer_v2 an episode's mean is −0.2 without a shift (below 0.1 in 99 % of episodes), 8.5 with half the
damping and 10.1 with twice the mass."""
MAX_INNOVATION = 10.0


class Belief(NamedTuple):
    """K hypotheses over N envs: states (K, N, ...), evidence for each entity (K, N, J), surprise so far (K, N).

    actions (K, N, A) are the last ones, newest first; innovation (N,) is a running mean for the selected hypothesis.
    """

    latent: Latent
    trust: Array
    surprise: Array
    actions: Array
    innovation: Array


class BeliefUpdate(NamedTuple):
    """A new belief and, of the selected hypothesis: delay (N,), latent (N, ...) and surprise (N,)."""

    belief: Belief
    delay: Array
    latent: Latent
    surprise: Array


def init_belief(latent: Latent, action_size: int) -> Belief:
    """The belief before the first observation, without previous actions."""
    count, envs = latent.h.shape[:2]
    return Belief(
        latent,
        jnp.zeros(latent.e.shape[:-1]),
        jnp.zeros((count, envs)),
        jnp.zeros((count, envs, action_size)),
        jnp.zeros(envs),
    )


def observe(
    model: DreamerWorldModel,
    before: Belief,
    shown: tuple[Array, Array],
    first: Array,
    noise: Array,
    scalars: dict[str, Any],
) -> BeliefUpdate:
    """Updates every hypothesis with an observation: embedding (N, U) and entities (N, J, W)."""
    keep = 1.0 - first

    def one(latent: Latent, action: Array, trust: Array) -> tuple[Latent, Array, Array]:
        now, posterior = model.observe(latent, action * keep[:, None], shown, first, noise)
        surprise = model.surprise(latent, now, posterior) * keep
        expected = model.moved(now.h, latent.e)
        places = (latent.e, expected, now.e)
        entities, trust = remember(places, trust * keep[:, None], scalars, model.spec.entity_types)
        return now._replace(e=entities), surprise, trust

    latent, surprise, trust = jax.vmap(one)(before.latent, before.actions, before.trust)
    total = SURPRISE_DECAY * before.surprise * keep + jnp.minimum(surprise, MAX_SURPRISE)
    delays = jnp.arange(len(total))[:, None]
    delay = jnp.argmin(jnp.where(delays <= scalars["max_delay"], total + DELAY_PENALTY * delays, jnp.inf), axis=0)
    belief = Belief(latent, trust, total, before.actions * keep[:, None], before.innovation * keep)
    return BeliefUpdate(belief, delay, of_selected(latent, delay), of_selected(surprise, delay))


def of_selected(tree: Any, delay: Array) -> Any:
    """(K, N, ...) → (N, ...): the entry of each env's selected hypothesis."""
    return jax.tree.map(lambda x: x[delay, jnp.arange(x.shape[1])], tree)


def remember(
    places: tuple[Array, Array, Array], trust: Array, scalars: dict[str, Any], types: int = 0
) -> tuple[Array, Array]:
    """Filtered positions of entities (N, J, W), and the evidence for them (N, J).

    places: their positions before the step, as predicted after it, and as observed. Evidence grows by 1 per step up to
    `patience` while an entity is observed where it was predicted, and falls by 1 otherwise; until it is used up the
    predicted position is kept. With a patience of 0 every observation is used.

    Two changes are no faults of perception. An empty slot shows the same distant place wherever the robot turns. And if
    there are more entities than slots, a slot changes to one that is nearer; to ignore that one would be dangerous.
    """
    before, expected, seen = places
    if not seen.shape[-1]:
        return seen, trust
    distance_expected, distance_seen = (
        jnp.sqrt((split_types(entities, types)[0] ** 2).sum(-1)) for entities in (expected, seen)
    )
    is_empty = (distance_seen > ENTITY_REACH) & (before == seen).all(-1)
    consistent = (entity_error(expected, seen, types) < scalars["gate"] ** 2) | is_empty
    is_nearer = (distance_seen < distance_expected) & (distance_expected < ENTITY_REACH)
    raised, lowered = jnp.minimum(trust + 1.0, scalars["patience"]), trust - 1.0
    keeps_prediction = ~consistent & (lowered > 0) & ~is_nearer
    # The observation itself at a gain of 1: a sum with the prediction would round.
    follows = (scalars["gain"] < 1) & ~is_empty
    smoothed = jnp.where(follows[..., None], expected + scalars["gain"] * (seen - expected), seen)
    place = jnp.where(keeps_prediction[..., None], expected, jnp.where(consistent[..., None], smoothed, seen))
    fresh = jnp.minimum(1.0, scalars["patience"])
    return place, jnp.where(consistent, raised, jnp.where(keeps_prediction, lowered, fresh))


def through_pending(model: DreamerWorldModel, latent: Latent, delay: Array, actions: Array, noises: Array) -> Latent:
    """Latents (N, ...) after the pending actions; noises (K − 1, N, ...)."""
    for late in reversed(range(len(actions) - 1)):
        moved = model.imagine(latent, actions[late], noises[late])
        latent = jax.tree.map(lambda new, old, is_due=delay > late: _choose(is_due, new, old), moved, latent)
    return latent


def _choose(which: Array, new: Array, old: Array) -> Array:
    return jnp.where(which.reshape(-1, *[1] * (old.ndim - 1)), new, old)


def with_innovation(belief: Belief, innovation: Array) -> Belief:
    """The belief with an innovation (N,), in standard deviations, added to its running mean."""
    bounded = jnp.clip(innovation, -1.0, MAX_INNOVATION)
    return belief._replace(innovation=belief.innovation + ALARM_RATE * (bounded - belief.innovation))


def alarm(belief: Belief) -> Array:
    """0 if observations are as predicted, 1 if they are far from it, (N,)."""
    return jnp.clip((belief.innovation - ALARM_FROM) / (ALARM_FULL - ALARM_FROM), 0.0, 1.0)


def with_action(belief: Belief, action: Array) -> Belief:
    """The belief after an action (N, A)."""
    return belief._replace(actions=jnp.concatenate([action[None], belief.actions[:-1]]))
