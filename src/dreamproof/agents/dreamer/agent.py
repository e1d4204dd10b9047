"""The Dreamer-style safe agent: one learning state, and how it acts and updates."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Decision
from dreamproof.agents.dreamer.behavior import (
    Actor,
    Critics,
    Dream,
    DreamReturns,
    actor_loss,
    clip_action,
    critic_loss,
    dream,
    dream_returns,
    replay_returns,
    update_multiplier,
)
from dreamproof.agents.dreamer.feedback import (
    Feedback,
    after_episodes,
    after_surprise,
    init_feedback,
    innovation,
    planner_price,
)
from dreamproof.agents.dreamer.planner import Facts, Networks, plan
from dreamproof.agents.dreamer.risk import RiskModel, barrier_violation, risk_loss, uncertainty
from dreamproof.agents.dreamer.world_model import (
    Batch,
    Latent,
    WorldModel,
    entity_shape,
    swap_latents,
    world_model_loss,
)
from dreamproof.agents.normalisation import Spread, init_spread, update_spread
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.nn.heads import TwoHot, symlog
from dreamproof.nn.optimiser import AdamState, adam_step, follow, init_adam
from dreamproof.settings.dreamer import Dreamer as Settings

OFFSET_RATE = 0.005
RESIDUAL_RATE = 0.01


def ramped(progress: Array, begin: Array | float, end: Array | float) -> Array:
    """0 before `begin`, 1 from `end` on, straight between."""
    return jnp.clip((progress - begin) / jnp.maximum(end - begin, 1e-6), 0.0, 1.0)


class DreamerState(NamedTuple):
    """Everything that learning changes."""

    model: WorldModel
    actor: Actor
    critics: Critics
    slow_critics: Critics
    risk: RiskModel
    slow_risk: RiskModel
    optimisers: dict[str, AdamState]
    spread: Spread
    multiplier_raised: Array
    residual: Array
    offset: Array
    feedback: Feedback
    risk_share: Array
    gradient_steps: Array
    finite: Array


class Memory(NamedTuple):
    """What acting remembers of each env (N, ...)."""

    latent: Latent
    action: Array
    mean: Array
    barrier: Array


class DreamerAgent:
    """Static facts of one agent; all changing things live in DreamerState and Memory."""

    def __init__(self, spec: Spec, settings: Settings) -> None:
        self.spec, self.settings = spec, settings
        self.dtype = jnp.bfloat16 if settings.precision == "bfloat16" else jnp.float32
        model = settings.world_model
        self.two_hot = TwoHot.make(model.bins, model.bin_reach)
        self.facts = Facts(
            settings.behavior.discount,
            spec.episode_agent_steps,
            settings.risk.barrier_decay,
            spec.most_step_cost,
            self.two_hot,
        )

    def init_state(self, key: Array) -> DreamerState:
        """Fresh networks; slow copies equal the fast ones."""
        keys = jax.random.split(key, 4)
        units = [self.settings.world_model.units] * self.settings.world_model.head_layers
        spec, behavior = self.spec, self.settings.behavior
        model = WorldModel(keys[0], spec, self.settings.world_model, self.dtype)
        sizes = (model.feature_size, *units)
        actor = Actor(keys[1], sizes, spec.action_size, behavior, self.dtype)
        critics = Critics(keys[2], sizes, self.settings.world_model.bins, self.dtype)
        shape = (len(model.rest_slots), spec.action_size)
        risk = RiskModel(keys[3], model.feature_size, shape, self.settings.risk, self.dtype)
        parts = {"model": model, "actor": actor, "critics": critics, "risk": risk}
        return DreamerState(
            model=model,
            actor=actor,
            critics=critics,
            slow_critics=critics,
            risk=risk,
            slow_risk=risk,
            optimisers={name: init_adam(part) for name, part in parts.items()},
            spread=init_spread(),
            multiplier_raised=jnp.zeros(()),
            residual=jnp.ones(len(model.rest_slots) + 1),
            offset=jnp.zeros(()),
            feedback=init_feedback(),
            risk_share=jnp.zeros(()),
            gradient_steps=jnp.zeros((), jnp.int32),
            finite=jnp.asarray(True),
        )

    def init_memory(self, envs: int) -> Memory:
        """Nothing seen, nothing planned."""
        sizes = self.settings.world_model
        count, width = entity_shape(self.spec, sizes)
        shapes = ((sizes.deterministic,), (sizes.latent_size,), (count, width))
        state = Latent(*(jnp.zeros((envs, *shape)) for shape in shapes))
        actions = self.spec.action_size
        horizon = self.settings.planner.horizon
        return Memory(state, jnp.zeros((envs, actions)), jnp.zeros((horizon, envs, actions)), jnp.zeros(envs))

    def act(
        self, state: DreamerState, memory: Memory, seen: TimeStep, key: Array, scalars: dict[str, Any], explore: bool
    ) -> Decision:
        """Observes, plans (or follows the actor where planning is off) and remembers."""
        observe_key, plan_key, noise_key, swap_key = jax.random.split(key, 4)
        model = state.model
        shown = (model.encode(seen.observation), model.seen_entities(seen.observation))
        noise = model.noise(observe_key, seen.first.shape)
        latent, posterior = model.observe(memory.latent, memory.action, shown, seen.first, noise)
        surprise = model.surprise(memory.latent, latent, posterior) * (1 - seen.first)
        latent = swap_latents(model, latent, scalars["latent_swaps"], swap_key)
        feature = model.feature(latent)
        mean = jnp.concatenate([memory.mean[1:], memory.mean[-1:]]) * (1 - seen.first)[None, :, None]
        metrics: dict[str, Array] = {}
        if self.settings.planner.mode == "off":
            policy = state.actor(feature)
            action = policy.sample(noise_key) if explore else policy.mean
        else:
            prices = self.prices(state, scalars)
            found = plan(self.networks(state), latent, mean, plan_key, prices, (self.settings.planner, self.facts))
            mean, metrics = found.mean, found.metrics
            strayed = scalars["planner"]["explore_sigma"] * jax.random.normal(noise_key, mean[0].shape)
            action = mean[0] + strayed if explore else mean[0]
        action = clip_action(action)
        barrier = state.risk.value(feature)
        metrics |= {
            "risk/barrier_value": barrier,
            "risk/missed": self.missed(state, memory, seen),
            "risk/surprise": surprise,
            "shadow/innovation": innovation(state.feedback, surprise),
        }
        return Decision(action, Memory(latent, action, mean, barrier), metrics)

    def missed(self, state: DreamerState, memory: Memory, seen: TimeStep) -> Array:
        """1 where the margin fell below what the calibrated barrier promised one step ago, (N,)."""
        return ((seen.margin < memory.barrier - state.offset) & (seen.first < 1)).astype(jnp.float32)

    def reflect(self, state: DreamerState, shown: dict[str, Array], scalars: dict[str, Any]) -> DreamerState:
        """Adaptive conformal inference (Gibbs & Candès, 2021) on the barrier, and prices after finished episodes."""
        moved = state.offset + OFFSET_RATE * (shown["risk/missed"].mean() - self.settings.risk.miscoverage)
        feedback = after_surprise(state.feedback, shown["risk/surprise"])
        later, ended = after_episodes(feedback, shown["episode/cost"], scalars), shown["episode/done"] > 0
        feedback = jax.tree.map(lambda new, old: jnp.where(ended, new, old), later, feedback)
        return state._replace(offset=jnp.clip(moved, 0.0, 0.5), feedback=feedback)

    def prices(self, state: DreamerState, scalars: dict[str, Any]) -> dict[str, Any]:
        """The scalars as they hold now: risk counts by the share reached so far, prices follow the feedback."""
        risk, planner, share = scalars["risk"], scalars["planner"], state.risk_share
        now = {
            "price": share * (risk["price"] + state.feedback.risk_price_raised),
            "tube": share * risk["tube"],
            "slack": 1.0 - share,
        }
        return scalars | {
            "risk": risk | now,
            "planner": planner | {"cost_price": planner_price(state.feedback, planner)},
        }

    def networks(self, state: DreamerState) -> Networks:
        """What the planner looks through."""
        return Networks(
            state.model, state.actor, state.critics, state.risk, state.residual, state.offset, state.spread.scale
        )

    def update(
        self, state: DreamerState, batch: Batch, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[DreamerState, dict[str, Array]]:
        """World model, risk, actor and critics, once each."""
        keys = jax.random.split(key, 4)
        risk = self.settings.risk
        state = state._replace(risk_share=ramped(progress, risk.warm_up, risk.ramp_end))
        state, states, model_metrics = self._learn_model(state, batch, keys[0], scalars)
        feature = jax.lax.stop_gradient(state.model.feature(states))
        dreamt = self._dream(state, states, keys[1])
        state, risk_metrics = self._learn_risk(state, feature, batch, scalars, keys[2])
        penalty, penalty_metrics = self._penalty(state, dreamt, scalars)
        returns = dream_returns(state.model, state.critics, dreamt, penalty, self.settings.behavior, self.two_hot)
        state, behavior_metrics = self._learn_behavior(state, feature, batch, dreamt, returns, scalars, progress)
        state = state._replace(
            gradient_steps=state.gradient_steps + 1,
            slow_critics=follow(state.slow_critics, state.critics, self.settings.behavior.slow_fraction),
            slow_risk=follow(state.slow_risk, state.risk, self.settings.behavior.slow_fraction),
        )
        return state, model_metrics | risk_metrics | penalty_metrics | behavior_metrics

    def _learn_model(
        self, state: DreamerState, batch: Batch, key: Array, scalars: dict[str, Any]
    ) -> tuple[DreamerState, Latent, dict[str, Array]]:
        scales = scalars["world_model"]
        (_, out), gradients = eqx.filter_value_and_grad(world_model_loss, has_aux=True)(state.model, batch, key, scales)
        step = adam_step(
            state.model, gradients, state.optimisers["model"], scales["learning_rate"], self.settings.world_model.clip
        )
        metrics = out.metrics | {"model/gradient_norm": step.gradient_norm}
        return self._stepped(state, "model", step), out.states, metrics

    def _dream(self, state: DreamerState, states: Latent, key: Array) -> Dream:
        pick_key, dream_key = jax.random.split(key)
        flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), states)
        total = flat.h.shape[0]
        chosen = jax.random.randint(pick_key, (self.settings.behavior.starts,), 0, total)
        start = jax.tree.map(lambda x: x[chosen], flat)
        return dream(state.model, state.actor, start, self.settings.behavior.horizon, dream_key)

    def _learn_risk(
        self, state: DreamerState, feature: Array, batch: Batch, scalars: dict[str, Any], key: Array
    ) -> tuple[DreamerState, dict[str, Array]]:
        # What dreams of the actor would add is left out: it proposes, the planner disposes, and the barrier is to say
        # what becomes of the states that are really entered.
        extras = {"seen": symlog(state.model.rest(batch.observation)), "key": key}
        (_, aux), gradients = eqx.filter_value_and_grad(risk_loss, has_aux=True)(
            state.risk, state.slow_risk, feature, batch, extras, self.settings.risk
        )
        rate = scalars["risk"]["learning_rate"]
        step = adam_step(state.risk, gradients, state.optimisers["risk"], rate, self.settings.world_model.clip)
        state = self._stepped(state, "risk", step)
        seen = batch.held_out.sum() > 0
        residual = state.residual + RESIDUAL_RATE * seen * (aux.residual - state.residual)
        return state._replace(residual=residual), aux.metrics

    def _penalty(self, state: DreamerState, dreamt: Dream, scalars: dict[str, Any]) -> tuple[Array, dict[str, Array]]:
        """Priced risk of imagined steps (H, S), and its unpriced shadow."""
        settings, prices = self.settings.risk, self.prices(state, scalars)["risk"]
        feature = dreamt.feature
        doubt = uncertainty(state.risk, feature[:-1], clip_action(dreamt.actions), state.residual).epistemic
        violation = barrier_violation(state.risk.value(feature) - state.offset, settings.barrier_decay)
        weighted = prices["uncertainty_weight"] * doubt + prices["certificate_weight"] * violation
        metrics = {"shadow/dream_uncertainty": doubt.mean(), "shadow/dream_violation": violation.mean()}
        return prices["price"] * weighted, metrics

    def _learn_behavior(
        self,
        state: DreamerState,
        feature: Array,
        batch: Batch,
        dreamt: Dream,
        returns: DreamReturns,
        scalars: dict[str, Any],
        progress: Array,
    ) -> tuple[DreamerState, dict[str, Array]]:
        settings, rates = self.settings.behavior, scalars["behavior"]
        spread = update_spread(state.spread, returns.reward)
        raised = update_multiplier(
            state.multiplier_raised, returns.step_cost, self.spec.episode_agent_steps, rates, state.gradient_steps
        )
        ramp = ramped(progress, rates["multiplier_from"], rates["multiplier_to"])
        multiplier = ramp * (rates["multiplier_start"] + raised)
        prices = {"multiplier": multiplier, "entropy": rates["entropy"]}
        (_, metrics), gradients = eqx.filter_value_and_grad(actor_loss, has_aux=True)(
            state.actor, dreamt, returns, spread, prices
        )
        step = adam_step(state.actor, gradients, state.optimisers["actor"], rates["actor_learning_rate"], settings.clip)
        state = self._stepped(state, "actor", step)
        dreamt_places, seen_places = (x.reshape(-1, x.shape[-1]) for x in (dreamt.feature[:-1], feature))
        slow = self.two_hot.decode(state.slow_critics(jnp.concatenate([dreamt_places, seen_places])))
        dreams, ahead = len(dreamt_places), feature[:-1].shape[0] * feature.shape[1]
        replayed, valid = replay_returns(slow[:, dreams:].reshape(2, *feature.shape[:2]), batch, settings)
        imagined = jnp.stack([returns.reward, returns.cost])
        # One pass over all places; each kind counts as its own mean.
        weights = jnp.concatenate(
            [returns.weights.reshape(-1) / dreams, rates["replay_value_scale"] * valid.reshape(-1) / ahead]
        )
        targets = jnp.concatenate([imagined.reshape(2, -1), replayed.reshape(2, -1)], axis=1)
        places = jnp.concatenate([dreamt_places, seen_places[:ahead]])

        def loss(critics: Critics) -> Array:
            return critic_loss(critics, places, targets, slow[:, : dreams + ahead], weights, self.two_hot)

        value, gradients = eqx.filter_value_and_grad(loss)(state.critics)
        step = adam_step(
            state.critics, gradients, state.optimisers["critics"], rates["critic_learning_rate"], settings.clip
        )
        state = self._stepped(state, "critics", step)
        metrics |= {
            "critics/loss": value,
            "dream/return": returns.reward.mean(),
            "dream/cost": returns.step_cost.mean(),
            "dream/cost_return": returns.cost.mean(),
            "behavior/multiplier": multiplier,
            "behavior/scale": spread.scale,
        }
        return state._replace(spread=spread, multiplier_raised=raised), metrics

    def _stepped(self, state: DreamerState, name: str, step: Any) -> DreamerState:
        """The state with one part replaced by what its optimiser made of it."""
        optimisers = state.optimisers | {name: step.state}
        return state._replace(**{name: step.model}, optimisers=optimisers, finite=state.finite & step.finite)
