"""The Dreamer-style safe agent: its learning state, acting and updates."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Batch, Decision
from dreamproof.agents.certificate import certificate_scores, conformal_offset
from dreamproof.agents.dreamer import belief as believing
from dreamproof.agents.dreamer.behavior import (
    DreamerActor,
    DreamerCritics,
    ImaginedRollout,
    JoinedStates,
    actor_loss,
    clip_action,
    critic_loss,
    critic_weights,
    imagine_rollout,
    imagined_returns,
    of_states,
    replay_returns,
    update_multiplier,
)
from dreamproof.agents.dreamer.feedback import (
    Feedback,
    after_episodes,
    after_surprise,
    init_feedback,
    innovation,
    planner_cost_coef,
)
from dreamproof.agents.dreamer.planner import Networks, PlannerConstants, plan
from dreamproof.agents.dreamer.risk import RiskModel, barrier_violation, risk_loss, uncertainty
from dreamproof.agents.dreamer.world_model import (
    DreamerWorldModel,
    Latent,
    entity_shape,
    swap_latents,
    world_model_loss,
)
from dreamproof.agents.normalisation import Spread, init_spread, update_spread
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.nn.heads import TwoHot, symlog
from dreamproof.nn.optimiser import AdamState, adam_step, follow, init_adam
from dreamproof.settings.dreamer import DreamerSettings

RESIDUAL_RATE = 0.01


def ramped(progress: Array, begin: Array | float, end: Array | float) -> Array:
    """0 before `begin`, 1 from `end` on, linear in between."""
    return jnp.clip((progress - begin) / jnp.maximum(end - begin, 1e-6), 0.0, 1.0)


def with_evaluation_margin(coefs: dict[str, Any]) -> dict[str, Any]:
    """The coefficients of acting without exploration: with the margin that is not used in training."""
    planner = coefs["planner"]
    return coefs | {"planner": planner | {"margin": planner["margin"] + planner["evaluation_margin"]}}


def refuse_without_margin(spec: Spec, settings: DreamerSettings) -> None:
    """Refuses margins in metres for a task that has no margin."""
    margins = {
        "planner.margin": settings.planner.margin,
        "planner.evaluation_margin": settings.planner.evaluation_margin,
        "risk.tube": settings.risk.tube,
        "risk.innovation_margin": settings.risk.innovation_margin,
        "risk.certified_only": settings.risk.certified_only,
    }
    used = [name for name, value in margins.items() if value > 0]
    if used and not spec.has_margin:
        raise BadInput(
            f"the task '{spec.name}' has no margin, so agent.{used[0]} must be 0",
            f"set agent.{used[0]}: 0 in the study file",
        )


def single_limits(spec: Spec, limits: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """(which predicted cost, its limit) of every declared limit; the total is cost 0."""
    for name in limits:
        if name not in spec.costs:
            counted = ", ".join(spec.costs) or "a total only"
            raise BadInput(
                f"agent.planner.cost_limits: the task '{spec.name}' has no cost '{name}'; it counts {counted}",
                "correct cost_limits in the study file, or remove it",
            )
    return tuple((1 + spec.costs.index(name), limit) for name, limit in limits.items())


class DreamerState(NamedTuple):
    """Everything that learning changes."""

    model: DreamerWorldModel
    actor: DreamerActor
    critics: DreamerCritics
    slow_critics: DreamerCritics
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


class DreamerMemory(NamedTuple):
    """Memory of N envs: belief, planned actions (H, N, A) and barrier value (N,)."""

    belief: believing.Belief
    mean: Array
    barrier: Array


class DreamerAgent:
    """Static parts of one agent; everything that changes is in DreamerState and DreamerMemory."""

    def __init__(self, spec: Spec, settings: DreamerSettings) -> None:
        refuse_without_margin(spec, settings)
        self.spec, self.settings = spec, settings
        self.certificate_steps, self.miscoverage = settings.risk.certificate_steps, settings.risk.miscoverage
        self.dtype = jnp.bfloat16 if settings.precision == "bfloat16" else jnp.float32
        model = settings.world_model
        self.two_hot = TwoHot.make(model.bins, model.bin_reach)
        self.planner_constants = PlannerConstants(
            settings.behavior.discount,
            spec.episode_agent_steps,
            settings.risk.barrier_decay,
            spec.max_step_cost,
            self.two_hot,
            single_limits(spec, settings.planner.cost_limits),
        )
        self.costs = 1 + len(spec.costs) if settings.planner.cost_limits else 1

    def init_state(self, key: Array) -> DreamerState:
        """Initial networks; the slow copies equal the fast ones."""
        keys = jax.random.split(key, 4)
        units = [self.settings.world_model.units] * self.settings.world_model.head_layers
        spec, behavior = self.spec, self.settings.behavior
        model = DreamerWorldModel(keys[0], spec, self.settings.world_model, self.dtype, self.costs)
        sizes = (model.feature_size, *units)
        actor = DreamerActor(keys[1], sizes, spec.action_size, behavior, self.dtype)
        critics = DreamerCritics(keys[2], sizes, self.settings.world_model.bins, self.dtype, self.costs)
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

    def init_memory(self, envs: int) -> DreamerMemory:
        """Initial belief, no plan."""
        sizes, hypotheses = self.settings.world_model, self.settings.filter.hypotheses
        count, width = entity_shape(self.spec, sizes)
        shapes = ((sizes.deterministic,), (sizes.latent_size,), (count, width))
        latent = Latent(*(jnp.zeros((hypotheses, envs, *shape)) for shape in shapes))
        horizon, actions = self.settings.planner.horizon, self.spec.action_size
        belief = believing.init_belief(latent, actions)
        return DreamerMemory(belief, jnp.zeros((horizon, envs, actions)), jnp.zeros(envs))

    def act(
        self,
        state: DreamerState,
        memory: DreamerMemory,
        seen: TimeStep,
        key: Array,
        scalars: dict[str, Any],
        explore: bool,
    ) -> Decision:
        """Updates the belief, then plans, or samples the actor if planning is off."""
        observe_key, plan_key, noise_key, swap_key = jax.random.split(key, 4)
        belief, latent, metrics = self._observe(state, memory, seen, (observe_key, swap_key), scalars)
        feature = state.model.feature(latent)
        mean = jnp.concatenate([memory.mean[1:], memory.mean[-1:]]) * (1 - seen.first)[None, :, None]
        if self.settings.planner.mode == "off":
            policy = state.actor(feature)
            action = policy.sample(noise_key) if explore else policy.mean
        else:
            settings = self.settings.planner if explore else self.settings.planner.at_evaluation()
            networks, coefs = self.networks(state, believing.alarm(belief)), self.coefs(state, scalars)
            coefs = coefs if explore else with_evaluation_margin(coefs)
            found = plan(networks, latent, mean, plan_key, coefs, (settings, self.planner_constants))
            mean, metrics = found.mean, metrics | found.metrics
            metrics["plan/cost_coef"] = jnp.broadcast_to(coefs["planner"]["cost_coef"], seen.first.shape)
            noise = scalars["planner"]["explore_std"] * jax.random.normal(noise_key, mean[0].shape)
            action = found.action + noise if explore else found.action
        action = clip_action(action)
        barrier = state.risk.value(feature)
        metrics |= {
            "risk/barrier_value": barrier,
            "risk/certificate_missed": self.certificate_missed(state, memory, seen),
        }
        return Decision(action, DreamerMemory(believing.with_action(belief, action), mean, barrier), metrics)

    def _observe(
        self,
        state: DreamerState,
        memory: DreamerMemory,
        seen: TimeStep,
        keys: tuple[Array, Array],
        scalars: dict[str, Any],
    ) -> tuple[believing.Belief, Latent, dict[str, Array]]:
        """The belief after this observation, the latent (N, ...) in which the next action takes effect, and metrics."""
        model, count = state.model, self.settings.filter.hypotheses
        shown = (model.encode(seen.observation), model.seen_entities(seen.observation))
        noises = model.noise(keys[0], (count, *seen.first.shape))
        found = believing.observe(model, memory.belief, shown, seen.first, noises[0], scalars["filter"])
        swapped = jax.vmap(lambda latent: swap_latents(model, latent, scalars["latent_swaps"], keys[1]))
        belief = found.belief._replace(latent=swapped(found.belief.latent))
        surprising = innovation(state.feedback, found.surprise)
        belief = believing.with_innovation(belief, surprising * (1 - seen.first))
        now = believing.of_selected(belief.latent, found.delay)
        ahead = believing.through_pending(model, now, found.delay, belief.actions, noises[1:])
        metrics = {
            "risk/surprise": found.surprise,
            "shadow/innovation": surprising,
            "shadow/alarm": believing.alarm(belief),
            "belief/delay": found.delay.astype(jnp.float32),
        }
        return belief, ahead, metrics

    def certificate_missed(self, state: DreamerState, memory: DreamerMemory, seen: TimeStep) -> Array:
        """1 where the margin is below the calibrated bound of one step ago, (N,)."""
        return ((seen.margin < memory.barrier - state.offset) & (seen.first < 1)).astype(jnp.float32)

    def reflect(self, state: DreamerState, shown: dict[str, Array], scalars: dict[str, Any]) -> DreamerState:
        """Updates moments of the surprise, and coefficients after finished episodes."""
        feedback = after_surprise(state.feedback, shown["risk/surprise"])
        count = shown["episode/done"]
        later, ended = after_episodes(feedback, shown["episode/cost"], count, scalars), count > 0
        return state._replace(feedback=jax.tree.map(lambda new, old: jnp.where(ended, new, old), later, feedback))

    def calibrate(self, state: DreamerState, values: Array, margins: Array) -> DreamerState:
        """The state with the split-conformal offset of held-out episodes (T, E); it may be negative.

        values: of the barrier at each decision; margins: after it. With too few episodes nothing changes.
        """
        scores = certificate_scores(values, margins, self.certificate_steps)
        offset = conformal_offset(scores, self.miscoverage)
        return state._replace(offset=jnp.where(jnp.isfinite(offset), offset, state.offset))

    def certificate_offset(self, state: DreamerState) -> Array:
        """The offset of the last calibration."""
        return state.offset

    def with_offset(self, state: DreamerState, offset: Array) -> DreamerState:
        """The state with another offset."""
        return state._replace(offset=offset)

    def coefs(self, state: DreamerState, scalars: dict[str, Any]) -> dict[str, Any]:
        """The scalars after the risk ramp and the feedback controllers."""
        risk, planner, share = scalars["risk"], scalars["planner"], state.risk_share
        now = {
            "coef": share * (risk["coef"] + state.feedback.risk_coef_offset),
            "tube": share * risk["tube"],
            "innovation_margin": share * risk["innovation_margin"],
            "slack": 1.0 - share,
        }
        return scalars | {
            "risk": risk | now,
            "planner": planner | {"cost_coef": planner_cost_coef(state.feedback, planner)},
        }

    def networks(self, state: DreamerState, alarm: Array) -> Networks:
        """What the planner evaluates candidates with."""
        parts = (state.model, state.actor, state.critics, state.risk, state.residual, state.offset)
        return Networks(*parts, state.spread.scale, alarm)

    def update(
        self, state: DreamerState, batch: Batch, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[DreamerState, dict[str, Array]]:
        """One gradient step of world model, risk model, actor and critics."""
        keys = jax.random.split(key, 4)
        risk = self.settings.risk
        state = state._replace(risk_share=ramped(progress, risk.warm_up, risk.ramp_end))
        state, latents, model_metrics = self._learn_model(state, batch, keys[0], scalars)
        feature = jax.lax.stop_gradient(state.model.feature(latents))
        rollout = self._imagine(state, latents, keys[1])
        state, risk_metrics = self._learn_risk(state, feature, batch, scalars, keys[2])
        states = JoinedStates.make(rollout.feature, feature)
        actions = (clip_action(rollout.actions), batch.action[1:])
        penalties, penalty_metrics = self._penalties(state, states, actions, scalars)
        state, behavior_metrics = self._learn_behavior(state, states, batch, rollout, penalties, scalars, progress)
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

    def _imagine(self, state: DreamerState, states: Latent, key: Array) -> ImaginedRollout:
        pick_key, rollout_key = jax.random.split(key)
        flat = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), states)
        total = flat.h.shape[0]
        chosen = jax.random.randint(pick_key, (self.settings.behavior.starts,), 0, total)
        start = jax.tree.map(lambda x: x[chosen], flat)
        return imagine_rollout(state.model, state.actor, start, self.settings.behavior.horizon, rollout_key)

    def _learn_risk(
        self, state: DreamerState, feature: Array, batch: Batch, scalars: dict[str, Any], key: Array
    ) -> tuple[DreamerState, dict[str, Array]]:
        # No imagined states of the actor: the planner chooses the executed actions, and the barrier must hold in the
        # states that are actually visited.
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

    def _penalties(
        self, state: DreamerState, states: JoinedStates, actions: tuple[Array, Array], scalars: dict[str, Any]
    ) -> tuple[tuple[Array, Array], dict[str, Array]]:
        """Weighted risk of imagined steps (H, S) and replayed ones (T − 1, B); metrics are unweighted and imagined."""
        settings, coefs = self.settings.risk, self.coefs(state, scalars)["risk"]
        taken = jnp.concatenate([of_states(each) for each in actions])
        epistemic = states.split(uncertainty(state.risk, states.feature, taken, state.residual).epistemic)
        values = states.split(state.risk.value(states.feature) - state.offset)

        def weighted(u: Array, violation: Array) -> Array:
            return coefs["coef"] * (coefs["uncertainty_weight"] * u + coefs["certificate_weight"] * violation)

        imagined, replayed = (
            (u[:-1], barrier_violation(value, settings.barrier_decay))
            for u, value in zip(epistemic, values, strict=True)
        )
        metrics = {
            "shadow/imagined_uncertainty": imagined[0].mean(),
            "shadow/imagined_violation": imagined[1].mean(),
        }
        return (weighted(*imagined), weighted(*replayed)), metrics

    def _learn_behavior(
        self,
        state: DreamerState,
        states: JoinedStates,
        batch: Batch,
        rollout: ImaginedRollout,
        penalties: tuple[Array, Array],
        scalars: dict[str, Any],
        progress: Array,
    ) -> tuple[DreamerState, dict[str, Array]]:
        settings, rates = self.settings.behavior, scalars["behavior"]
        logits, pull_back = eqx.filter_vjp(lambda critics: critics(states.feature), state.critics)
        values, slow = (self.two_hot.decode(found) for found in (logits, state.slow_critics(states.feature)))
        returns = imagined_returns(state.model, states.split(values)[0], rollout, penalties[0], settings)
        spread = update_spread(state.spread, returns.reward)
        raised = update_multiplier(
            state.multiplier_raised, returns.step_cost, self.spec.episode_agent_steps, rates, state.gradient_steps
        )
        ramp = ramped(progress, rates["multiplier_from"], rates["multiplier_to"])
        multiplier = ramp * (rates["multiplier_start"] + raised)
        coefs = {"multiplier": multiplier, "entropy": rates["entropy_coef"]}
        (_, metrics), gradients = eqx.filter_value_and_grad(actor_loss, has_aux=True)(
            state.actor, rollout, returns, spread, coefs
        )
        step = adam_step(state.actor, gradients, state.optimisers["actor"], rates["actor_learning_rate"], settings.clip)
        state = self._stepped(state, "actor", step)
        # The same objective as in imagination: one critic cannot learn reward with and without the risk penalty.
        replayed, valid = replay_returns(states.split(slow)[1], batch, penalties[1], settings)
        imagined = jnp.concatenate([returns.reward[None], returns.costs])
        targets = jnp.concatenate([of_states(imagined, 1), of_states(replayed, 1)], axis=1)
        # One pass over imagined and replayed states; each kind is weighted as its own mean.
        imagined_weights, replayed_weights = (of_states(each / each.size) for each in (returns.weights, valid))
        weights = critic_weights(imagined_weights, replayed_weights, rates, self.costs)
        value, at_logits = jax.value_and_grad(critic_loss)(
            logits, (targets, slow), weights, (self.two_hot, settings.slow_scale)
        )
        (gradients,) = pull_back(at_logits)
        step = adam_step(
            state.critics, gradients, state.optimisers["critics"], rates["critic_learning_rate"], settings.clip
        )
        state = self._stepped(state, "critics", step)
        metrics |= {
            "critics/loss": value,
            "imagined/return": returns.reward.mean(),
            "imagined/cost": returns.step_cost.mean(),
            "imagined/cost_return": returns.cost.mean(),
            "behavior/multiplier": multiplier,
            "behavior/scale": spread.scale,
        }
        return state._replace(spread=spread, multiplier_raised=raised), metrics

    def _stepped(self, state: DreamerState, name: str, step: Any) -> DreamerState:
        """The state with one network and its optimiser updated."""
        optimisers = state.optimisers | {name: step.state}
        return state._replace(**{name: step.model}, optimisers=optimisers, finite=state.finite & step.finite)
