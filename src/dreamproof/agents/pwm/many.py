"""Policies of several tasks that learn in one world model. Everything of the behaviour has a leading task axis K."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.agents.api import Decision, RecordedSteps, Windows
from dreamproof.agents.normalisation import Moments
from dreamproof.agents.pwm.agent import OwnTask, PwmAgent, PwmState
from dreamproof.agents.pwm.behavior import PwmActor, PwmCritics
from dreamproof.agents.pwm.memory import PwmMemory
from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.nn.optimiser import AdamState
from dreamproof.settings.pwm import PwmSettings

LEARNERS = ("actor", "critics")


class PolicyParts(NamedTuple):
    """The parts of a learning state that belong to one task, or (K, ...) to several."""

    actor: PwmActor
    critics: PwmCritics
    optimisers: dict[str, AdamState]
    returns: Moments


def policy_parts(state: PwmState) -> PolicyParts:
    """The behaviour's parts of a learning state."""
    return PolicyParts(state.actor, state.critics, {name: state.optimisers[name] for name in LEARNERS}, state.returns)


def with_policy_parts(state: PwmState, behavior: PolicyParts) -> PwmState:
    """The learning state with these parts."""
    own = behavior._replace(optimisers=state.optimisers | behavior.optimisers)
    return state._replace(**own._asdict())


class ManyPolicies:
    """An agent with one world model and a policy for each of K tasks."""

    model_fields = PwmAgent.model_fields

    def __init__(self, spec: Spec, settings: PwmSettings) -> None:
        self.spec, self.settings = spec, settings
        numbers, usable = map(jnp.asarray, zip(*spec.policies, strict=True))
        masks = (jnp.arange(spec.action_size) < usable[:, None]).astype(jnp.float32)
        self.tasks = OwnTask(numbers, masks)
        self.single = PwmAgent(spec._replace(task=spec.policies[0][0]), settings)

    def init_state(self, key: Array) -> PwmState:
        """Initial networks; every task has its own actor and critics."""
        model_key, *keys = jax.random.split(key, 1 + len(self.spec.policies))
        behavior = eqx.filter_vmap(lambda at: policy_parts(self.single.init_state(at)))(jnp.stack(keys))
        return with_policy_parts(self.single.init_state(model_key), behavior)

    def init_memory(self, envs: int) -> PwmMemory:
        """As that of a single policy."""
        return self.single.init_memory(envs)

    def act(
        self, state: PwmState, memory: PwmMemory, seen: TimeStep, key: Array, scalars: dict[str, Any], explore: bool
    ) -> Decision:
        """Only the policy of one task can act: see `policy_of`."""
        raise BadInput(f"'{self.spec.name}' is several tasks; each has a policy of its own", "name one of its tasks")

    def update(self, state: PwmState, batch: Any, key: Array, scalars: dict[str, Any], progress: Array) -> Any:
        """Model and behaviour learn separately, from recorded episodes."""
        raise NotImplementedError

    def policy_of(self, state: PwmState, index: int) -> PwmState:
        """The learning state of the policy of one task, as an agent of that task alone has it."""
        own = jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, policy_parts(state))
        return with_policy_parts(state, own)

    def update_model(
        self, state: PwmState, windows: Windows, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[PwmState, dict[str, Array]]:
        """One model step for each of K batches of windows, of any of its tasks."""
        return self.single.update_model(state, windows, key, scalars, progress)

    def update_behavior(
        self, state: PwmState, steps: RecordedSteps, key: Array, scalars: dict[str, Any], progress: Array
    ) -> tuple[PwmState, dict[str, Array]]:
        """The rounds of all policies from recorded steps (K, S, ...) of their tasks; metrics are means over tasks."""

        def one(behavior: PolicyParts, steps: RecordedSteps, task: OwnTask, key: Array) -> tuple[Any, ...]:
            own = with_policy_parts(state, behavior)
            changed, metrics = self.single.of_task(task).update_behavior(own, steps, key, scalars, progress)
            return policy_parts(changed), changed.finite, changed.gradient_steps, metrics

        keys = jax.random.split(key, len(self.spec.policies))
        behavior, finite, updates, metrics = eqx.filter_vmap(one)(policy_parts(state), steps, self.tasks, keys)
        changed = with_policy_parts(state, behavior)._replace(finite=finite.all(), gradient_steps=updates[0])
        return changed, {name: value.mean() for name, value in metrics.items()}
