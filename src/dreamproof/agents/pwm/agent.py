"""The PWM agent: its learning state, acting on encoded observations, and the update of one epoch."""

import copy
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Decision, EpochBatch, RecordedSteps, Windows
from dreamproof.agents.normalisation import Moments, add_moments, init_moments, update_moments
from dreamproof.agents.pwm.behavior import (
    DifferentiableRollout,
    LatentWindows,
    PwmActor,
    PwmCritics,
    RolloutStart,
    cloning_loss,
    critic_loss,
    critic_targets,
    imagine_rollout,
    imagined_return,
    make_actor,
    minibatches,
    recorded_targets,
)
from dreamproof.agents.pwm.memory import PwmMemory, init_pwm_memory, open_loop_latents, with_imagined
from dreamproof.agents.pwm.rewards import clipped, reward_scale, scaled, standardised
from dreamproof.agents.pwm.world_model import PwmWorldModel, joined, model_gradients, observed_scales
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.nn.optimiser import Adam, AdamState, Step, adam_step, flat_adam_step, flat_parameters, init_adam
from dreamproof.settings.pwm import PwmSettings

BEHAVIOR_ADAM = Adam(0.7, 0.95, 1e-8, 1)
MODEL_ADAM = Adam(0.9, 0.999, 1e-8, 1)


class PwmState(NamedTuple):
    """Everything that learning changes."""

    model: PwmWorldModel
    actor: PwmActor
    critics: PwmCritics
    optimisers: dict[str, AdamState]
    rewards: Moments
    returns: Moments
    epochs: Array
    gradient_steps: Array
    finite: Array


class OwnTask(NamedTuple):
    """The number of an agent's task and the mask (A,) of its actions; None for a single task, or without padding."""

    number: Array | None
    action_mask: Array | None


class PwmAgent:
    """Static parts of one agent; everything that changes is in PwmState."""

    model_fields = ("model", "rewards")
    model_is_frozen = False

    def __init__(self, spec: Spec, settings: PwmSettings) -> None:
        tasks = settings.world_model.tasks
        if tasks and (spec.task is None or not 0 <= spec.task < tasks):
            raise BadInput(
                f"a world model of {tasks} tasks cannot act in '{spec.name}', "
                + ("which is not one of them" if spec.task is None else f"whose task number is {spec.task}"),
                "list all tasks in data.tasks, including the study's own; see docs/multitask.md",
            )
        self.spec, self.settings = spec, settings
        padding = None if spec.usable_actions is None else jnp.arange(spec.action_size) < spec.usable_actions
        self.task = OwnTask(
            None if spec.task is None else jnp.asarray(spec.task),
            None if padding is None else padding.astype(jnp.float32),
        )
        self.dtype = jnp.bfloat16 if settings.precision == "bfloat16" else jnp.float32

    def init_state(self, key: Array) -> PwmState:
        """Initial networks."""
        keys = jax.random.split(key, 3)
        latent = self.settings.world_model.widths.latent
        model = PwmWorldModel(keys[0], self.spec, self.settings, self.dtype)
        actor = make_actor(keys[1], latent, self.spec.action_size, self.settings.behavior)
        critics = PwmCritics(keys[2], latent, self.settings.behavior)
        parts = {"model": model, "actor": actor, "critics": critics}
        zero = jnp.zeros((), jnp.int32)
        optimisers = {name: init_adam(part) for name, part in parts.items()}
        return PwmState(
            model, actor, critics, optimisers, init_moments(), init_moments(), zero, zero, jnp.asarray(True)
        )

    def init_memory(self, envs: int) -> PwmMemory:
        """Zero actions, and zero latents where they are needed."""
        is_open = self.settings.behavior.acting == "open_loop"
        return init_pwm_memory(
            envs, self.spec.action_size, self.settings.world_model.widths.latent if is_open else None
        )

    def act(
        self, state: PwmState, memory: PwmMemory, seen: TimeStep, key: Array, scalars: dict[str, Any], explore: bool
    ) -> Decision:
        """Encodes the observation and samples the policy; without `explore` its noise is 0."""
        del scalars
        noise = jax.random.normal(key, memory.action.shape) if explore else jnp.zeros(memory.action.shape)
        z, is_open = self.encode(state.model, seen.observation), explore and memory.z is not None
        if is_open:
            z = open_loop_latents(memory, seen, z, self.settings.behavior.horizon)
        action = state.actor(z, noise)
        action = action if self.task.action_mask is None else action * self.task.action_mask
        if is_open:
            given = joined(action, self._task(state.model))
            memory = with_imagined(memory, state.model.fixed_dynamics.next(z, given, jax.random.fold_in(key, 1)))
        return Decision(action, memory._replace(action=action), {})

    def of_task(self, task: OwnTask) -> "PwmAgent":
        """The same agent for another task of its world model."""
        agent = copy.copy(self)
        agent.task = task
        return agent

    def with_frozen_model(self) -> "PwmAgent":
        """The same agent; its updates leave the world model as it is."""
        agent = copy.copy(self)
        agent.model_is_frozen = True
        return agent

    def encode(self, model: PwmWorldModel, observation: Array) -> Array:
        """Latents (..., L) of observations (..., O) of the agent's own task."""
        task = self._task(model)
        if task is not None:
            task = jnp.broadcast_to(task, (*observation.shape[:-1], task.shape[-1]))
        return model.encode(observation, task)

    def _task(self, model: PwmWorldModel) -> Array | None:
        """The embedding (E,) of the agent's own task; None for a single-task model."""
        return None if model.tasks is None else model.task_vector(self.task.number)

    def update(
        self, state: PwmState, batch: EpochBatch, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[PwmState, dict[str, Array]]:
        """One epoch: rounds of one actor step and several critic passes, then one model step per batch unless frozen.

        `batch` holds windows (K, T+1, B, ...) and the current time step of the envs.
        """
        behavior_key, model_key = jax.random.split(key)
        windows = batch.windows
        rates = self._rates(scalars, progress)
        actor_learns = state.epochs >= self.settings.behavior.warm_up_epochs
        start = self.starts(state, batch.now, windows)
        # Critics learn from the first epoch: untrained ones would drive the actor into the corners of its action space.
        rates["actor"] = rates["actor"] * actor_learns
        state, behavior_metrics = self._learn_behavior(state, start, behavior_key, rates, scalars)
        state = state._replace(epochs=state.epochs + 1)
        if self.model_is_frozen:
            return state, behavior_metrics
        state, model_metrics = self.update_model(state, windows, model_key, scalars, progress)
        return state, behavior_metrics | model_metrics

    def update_behavior(
        self, state: PwmState, steps: RecordedSteps, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[PwmState, dict[str, Array]]:
        """The rounds of actor and critics, from recorded steps (S, ...) of the agent's own task."""
        rates, settings = self._rates(scalars, progress), self.settings.behavior
        if settings.objective == "cloning":
            return self._clone(state, steps.copied or steps, rates["actor"])
        start = self._start(state, steps.observation, jnp.ones(steps.observation.shape[0]))
        z, counts = (jnp.broadcast_to(part, (settings.rounds, *part.shape)) for part in start[:2])
        latents = start.z if steps.copied is None else self._latents(state, steps.copied.observation)
        start = start._replace(z=z, counts=counts, recorded=(latents, (steps.copied or steps).action))
        if settings.critic_warm_up:
            start = start._replace(return_scale=jnp.asarray(progress >= settings.critic_warm_up, jnp.float32))
        if steps.windows is not None:
            start = start._replace(windows=self._latent_windows(state, steps.windows, scalars["world_model"]))
        return self._learn_behavior(state, start, key, rates, scalars)

    def update_model(
        self, state: PwmState, windows: Windows, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[PwmState, dict[str, Array]]:
        """One model step for each of K batches of windows (K, T+1, B, ...), of any of its tasks."""
        scales, config = scalars["world_model"], self.settings.world_model
        rewards = self.moved(state.rewards, windows.reward[:, 1:], jax.vmap(lambda part: part.valid)(windows))
        if config.reward_normalisation == "standardise":
            unit, windows = rewards.deviation, standardised(windows, rewards, config.reward_clip)
        else:
            unit = reward_scale(rewards, scales)
            windows, scales = scaled(windows, state.rewards, scales, config)
        if config.decoder:
            scales = scales | observed_scales(windows)
        rate = self._rates(scalars, progress)["model"]
        state, metrics = self._learn_model(state, windows, key, (rate, scales))
        state = state._replace(rewards=rewards, gradient_steps=state.gradient_steps + windows.reward.shape[0])
        return state, metrics | {"model/reward_scale": unit}

    def moved(self, moments: Moments, values: Array, weights: Array) -> Moments:
        """Running statistics after more values."""
        return (add_moments if self.settings.running_scales == "cumulative" else update_moments)(
            moments, values, weights
        )

    def starts(self, state: PwmState, now: TimeStep, windows: Windows) -> RolloutStart:
        """Starts of all rounds (R, S, ...): the envs' current observations, and replayed ones, different in each round.

        Ended episodes have a weight of 0.
        """
        rounds, count = self.settings.behavior.rounds, self.settings.behavior.replayed_starts

        def joined_rows(now: Array, replayed: Array) -> Array:
            first_rows = replayed[:, 0].reshape(-1, *now.shape[1:])
            assert rounds * count <= first_rows.shape[0], (
                f"{rounds} × {count} starts from {first_rows.shape[0]} windows"
            )
            own = first_rows[: rounds * count].reshape(rounds, count, *now.shape[1:])
            return jnp.concatenate([jnp.broadcast_to(now, (rounds, *now.shape)), own], 1)

        observation = joined_rows(now.observation, windows.observation)
        ended = joined_rows(now.terminated.astype(jnp.float32), windows.terminated)
        return self._start(state, observation, 1.0 - ended)

    def _start(self, state: PwmState, observation: Array, counts: Array) -> RolloutStart:
        """Starts of imagined rollouts from observations (..., S, O) of the agent's own task."""
        z, task = self.encode(state.model, observation), self._task(state.model)
        return RolloutStart(jax.lax.stop_gradient(z), counts, jax.lax.stop_gradient(task), self.task.action_mask)

    def _rates(self, scalars: dict[str, Any], progress: Array) -> dict[str, Array]:
        """Linear learning-rate schedules."""
        behavior, last = scalars["behavior"], scalars["behavior"]["final_learning_rate"]

        def linear(first: Array) -> Array:
            return first + (last - first) * jnp.clip(progress, 0.0, 1.0)

        return {
            "actor": linear(behavior["actor_learning_rate"]),
            "critics": linear(behavior["critic_learning_rate"]),
            "model": linear(scalars["world_model"]["learning_rate"]),
        }

    def _learn_behavior(
        self, state: PwmState, start: RolloutStart, key: Array, rates: dict[str, Array], scalars: dict[str, Any]
    ) -> tuple[PwmState, dict[str, Array]]:
        """Rounds of one actor step and the critics' passes over its rollout; the model does not change.

        `start` holds the starts of every round.
        """
        settings, scales = self.settings.behavior, scalars["behavior"]
        # An untrained termination head would act as an additional discount.
        terminates = self.spec.terminates and scalars["world_model"]["termination_scale"] > 0
        learning, fixed = eqx.partition(state, eqx.is_array)

        def one(learning: Any, xs: tuple[Array, Array, Array]) -> tuple[Any, dict[str, Array]]:
            key, z, counts = xs
            keys, own = jax.random.split(key), start._replace(z=z, counts=counts)
            state = eqx.combine(learning, fixed)
            state, rollout, actor_metrics = self._learn_actor(state, own, keys[0], (rates["actor"], scales, terminates))
            state, critic_metrics = self._learn_critics(
                state, rollout.with_entropy_bonus(scales["entropy_coef"]), own, keys[1], rates["critics"]
            )
            return eqx.filter(state, eqx.is_array), actor_metrics | critic_metrics

        xs = (jax.random.split(key, settings.rounds), start.z, start.counts)
        learning, metrics = jax.lax.scan(one, learning, xs)
        state = eqx.combine(learning, fixed)
        steps = settings.rounds * (1 + settings.critic_passes * settings.critic_batches)
        means = {name: value.mean(0) for name, value in metrics.items()}
        return state._replace(gradient_steps=state.gradient_steps + steps), means

    def _clone(self, state: PwmState, steps: RecordedSteps, rate: Array) -> tuple[PwmState, dict[str, Array]]:
        """One step of the actor towards the recorded actions."""
        z, mask = self._latents(state, steps.observation), self.task.action_mask
        value, gradients = eqx.filter_value_and_grad(cloning_loss)(state.actor, z, steps.action, mask)
        clip = self.settings.behavior.actor_clip
        step = adam_step(state.actor, gradients, state.optimisers["actor"], rate, clip, BEHAVIOR_ADAM)
        metrics = {"actor/loss": value, "actor/gradient_norm": step.gradient_norm}
        return stepped(state, "actor", step)._replace(gradient_steps=state.gradient_steps + 1), metrics

    def _latents(self, state: PwmState, observation: Array) -> Array:
        return jax.lax.stop_gradient(self.encode(state.model, observation))

    def _latent_windows(self, state: PwmState, windows: Windows, scales: dict[str, Array]) -> LatentWindows:
        """Windows of the agent's own task in latents, with rewards in the unit in which the model predicts them."""
        config = self.settings.world_model
        if config.reward_normalisation == "standardise":
            reward = clipped(windows.reward, state.rewards, config.reward_clip)
        else:
            reward = windows.reward / reward_scale(state.rewards, scales)
        z = self._latents(state, windows.observation)
        return LatentWindows(z, reward[1:], 1.0 - windows.terminated[1:], windows.valid)

    def _learn_actor(
        self, state: PwmState, start: RolloutStart, key: Array, parameters: tuple[Array, dict[str, Array], bool | Array]
    ) -> tuple[PwmState, DifferentiableRollout, dict[str, Array]]:
        """One step; `parameters`: learning rate, scales of the loss, and whether imagined rollouts can terminate."""
        settings, (rate, scales, terminates) = self.settings.behavior, parameters
        last_factor = settings.discount if settings.final_value_power == "horizon_plus_one" else 1.0

        def loss(actor: PwmActor) -> tuple[Array, tuple[DifferentiableRollout, Array, dict[str, Array]]]:
            rollout = imagine_rollout(state.model, actor, start, settings, key, terminates)
            returns = imagined_return(
                rollout.with_entropy_bonus(scales["entropy_coef"]),
                state.critics(rollout.z[-1]),
                settings.discount,
                last_factor,
            )
            spread = self.moved(state.returns, jax.lax.stop_gradient(returns), start.counts).deviation
            value = -(start.counts * returns).mean() / jnp.maximum(spread, scales["min_return_std"])
            value = value if start.return_scale is None else start.return_scale * value
            if start.recorded is None:
                return value, (rollout, returns, {})
            distance = cloning_loss(actor, *start.recorded, start.action_mask)
            value = value + scales["cloning_scale"] * distance
            return value, (rollout, returns, {"actor/cloning_distance": distance})

        (value, (rollout, returns, distance)), gradients = eqx.filter_value_and_grad(loss, has_aux=True)(state.actor)
        rollout, returns = jax.lax.stop_gradient((rollout, returns))
        step = adam_step(state.actor, gradients, state.optimisers["actor"], rate, settings.actor_clip, BEHAVIOR_ADAM)
        state = stepped(state, "actor", step)
        metrics = {
            "actor/loss": value,
            "actor/gradient_norm": step.gradient_norm,
            "actor/std": step.model.std.mean(),
            "actor/magnitude": jnp.abs(rollout.action).mean(),
            "actor/entropy": rollout.entropy.mean(),
            "imagined/return": returns.mean(),
            "imagined/reward": rollout.reward.mean(),
            # Far below the mean of all steps, the model predicts rewards that the environment does not give.
            "imagined/first_reward": rollout.reward[0].mean(),
            "imagined/continue_prob": rollout.continue_prob.mean(),
        } | distance
        return state._replace(returns=self.moved(state.returns, returns, start.counts)), rollout, metrics

    def _learn_critics(
        self, state: PwmState, rollout: DifferentiableRollout, start: RolloutStart, key: Array, rate: Array
    ) -> tuple[PwmState, dict[str, Array]]:
        """Passes over all imagined states in minibatches; targets are computed once."""
        settings = self.settings.behavior
        values = state.critics(rollout.z)
        targets, weights = critic_targets(rollout, values, settings)
        weights = weights * start.counts
        chosen = minibatches(key, targets.size, settings)
        # Gathered for all minibatches at once: a gather in each of them would start three more kernels.
        batches = [part.reshape(-1, *part.shape[2:])[chosen] for part in (rollout.z[:-1], targets, weights)]
        recorded, recorded_metrics = self._recorded_batches(state.critics, start.windows, jax.random.fold_in(key, 1))
        flat, whole = flat_parameters(state.critics)

        def loss(critics: PwmCritics, imagined: list[Array], recorded: list[Array] | None) -> Array:
            value = critic_loss(critics, *imagined)
            if recorded is None:
                return value
            return value + settings.recorded_value_scale * critic_loss(critics, *recorded)

        def one(carry: tuple[Array, AdamState, Array], batch: tuple[list[Array], list[Array] | None]) -> Any:
            flat, adam, finite = carry
            value, gradients = eqx.filter_value_and_grad(loss)(whole(flat), *batch)
            step = flat_adam_step(flat, gradients, adam, rate, settings.critic_clip, BEHAVIOR_ADAM)
            return (step.model, step.state, finite & step.finite), value

        carry = (flat, state.optimisers["critics"], state.finite)
        (flat, adam, finite), losses = jax.lax.scan(one, carry, (batches, recorded))
        optimisers = state.optimisers | {"critics": adam}
        metrics = {"critics/loss": losses.mean(), "critics/value": values.mean(), "critics/target": targets.mean()}
        return state._replace(critics=whole(flat), optimisers=optimisers, finite=finite), metrics | recorded_metrics

    def _recorded_batches(
        self, critics: PwmCritics, windows: LatentWindows | None, key: Array
    ) -> tuple[list[Array] | None, dict[str, Array]]:
        """Latents, targets and weights of recorded states in as many minibatches as those of the imagined ones."""
        if windows is None:
            return None, {}
        values, valid, settings = critics(windows.z), windows.valid, self.settings.behavior
        targets = recorded_targets(windows, values, settings)
        chosen = minibatches(key, targets.size, settings)
        batches = [part.reshape(-1, *part.shape[2:])[chosen] for part in (windows.z[:-1], targets, valid)]
        means = {"recorded/reward": windows.reward, "critics/recorded_value": values[:-1]}
        means |= {"critics/recorded_target": targets}
        return batches, {name: (valid * part).sum() / valid.sum() for name, part in means.items()}

    def _learn_model(
        self, state: PwmState, windows: Windows, key: Array, parameters: tuple[Array, dict[str, Array]]
    ) -> tuple[PwmState, dict[str, Array]]:
        """One step per batch; `parameters`: learning rate and loss scales."""
        rate, scales = parameters
        flat, whole = flat_parameters(state.model)

        def one(carry: tuple[Array, AdamState, Array], drawn: tuple[Windows, Array]) -> tuple[Any, dict[str, Array]]:
            flat, adam, finite = carry
            gradients, metrics = self._model_gradients(whole(flat), *drawn, scales)
            step = flat_adam_step(flat, gradients, adam, rate, self.settings.world_model.clip, MODEL_ADAM)
            metrics |= {"model/gradient_norm": step.gradient_norm}
            return (step.model, step.state, finite & step.finite), metrics

        carry = (flat, state.optimisers["model"], state.finite)
        keys = jax.random.split(key, windows.reward.shape[0])
        (flat, adam, finite), metrics = jax.lax.scan(one, carry, (windows, keys))
        optimisers = state.optimisers | {"model": adam}
        state = state._replace(model=whole(flat), optimisers=optimisers, finite=finite)
        return state, {name: value.mean() for name, value in metrics.items()}

    def _model_gradients(
        self, model: PwmWorldModel, windows: Windows, key: Array, scales: dict[str, Array]
    ) -> tuple[Any, dict[str, Array]]:
        """The gradient of one batch, accumulated over micro-batches."""
        pieces = self.settings.world_model.micro_batches
        if pieces == 1:
            return model_gradients(model, windows, key, scales)
        cut = jax.tree.map(lambda part: pieces_of(part, pieces), windows)
        gradients_of = jax.jit(lambda windows, key: model_gradients(model, windows, key, scales))  # traced once

        def one(sums: Any, drawn: tuple[Windows, Array]) -> tuple[Any, None]:
            return jax.tree.map(lambda total, part: total + part / pieces, sums, gradients_of(*drawn)), None

        shapes = jax.eval_shape(gradients_of, jax.tree.map(lambda part: part[0], cut), key)
        zero = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        (gradients, metrics), _ = jax.lax.scan(one, zero, (cut, jax.random.split(key, pieces)))
        return gradients, metrics


def pieces_of(part: Array, pieces: int) -> Array:
    """(T, B, ...) → (pieces, T, B/pieces, ...), (B,) → (pieces, B/pieces); a scalar is repeated."""
    if part.ndim == 0:
        return jnp.broadcast_to(part, (pieces,))
    if part.ndim == 1:
        return part.reshape(pieces, -1)
    assert part.shape[1] % pieces == 0, f"a batch of {part.shape[1]} cannot be split into {pieces} equal parts"
    return jnp.moveaxis(part.reshape(part.shape[0], pieces, -1, *part.shape[2:]), 1, 0)


def stepped(state: PwmState, name: str, step: Step) -> PwmState:
    """The state with one network and its optimiser updated."""
    optimisers = state.optimisers | {name: step.state}
    return state._replace(**{name: step.model}, optimisers=optimisers, finite=state.finite & step.finite)
