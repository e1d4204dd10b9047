"""The environment interface: pure functions over a batch of N envs; parameters are data, so a shift is data too."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.settings.env import Shift

__all__ = ["Condition", "Env", "Kind", "SoloEnv", "Spec", "TimeStep", "per_env", "params_axes"]

Params = Any
State = Any
Kind = Literal["in_distribution", "proxy", "genuine"]


@dataclass(frozen=True)
class Condition:
    """One named evaluation setting: its kind, its description, and its change of the parameters."""

    name: str
    kind: Kind
    description: str
    change: Callable[[Params], Params]
    latent_swaps: int = 0


class Env(ABC):
    """A task, batched over N envs; hashable, so it can be a static argument of jit."""

    @property
    @abstractmethod
    def spec(self) -> Spec:
        """What an agent may know."""

    @abstractmethod
    def default_params(self) -> Params:
        """Everything that a shift may change, as a pytree of scalars or arrays without an env axis."""

    @abstractmethod
    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts N episodes; leaves of `params` may have a leading axis N."""

    @abstractmethod
    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of N envs with actions (N, A) in [-1, 1]; does not reset."""

    def conditions(self) -> Mapping[str, Condition]:
        """The named conditions of this task."""
        return {"id": Condition("id", "in_distribution", "nothing", lambda params: params)}

    def named_shifts(self) -> Mapping[str, Shift]:
        """The shifts of the named conditions, which a study may change."""
        return {}

    def apply_shift(self, params: Params, shift: Shift) -> Params:
        """Parameters of the same shapes and dtypes with the shift applied."""
        del params, shift
        raise BadInput(f"the task '{self.spec.name}' does not support settings for a condition", "dreamproof schema")

    varies = False
    """Whether `vary` supports domain randomisation of training episodes."""

    def vary(self, params: Params, drawn: dict[str, Array]) -> Params:
        """Parameters with randomised mass, damping, force and delay: factors (N,) and whole steps (N,)."""
        del params, drawn
        raise BadInput(f"the task '{self.spec.name}' has no physics to vary", "remove train.randomise")

    def executed(self, state: State) -> Array:
        """The actions (N, A) that took effect in the last step, after their delay and noise."""
        del state
        raise BadInput(
            f"the task '{self.spec.name}' does not say which actions took effect",
            "implement `executed`, or remove train.randomise",
        )

    def render_state(self, state: State, params: Params) -> dict[str, Array]:
        """Arrays (N, ...) for rendering; empty if the task cannot be rendered."""
        del state, params
        return {}


class SoloEnv(Env):
    """An environment written for one env; the batch axis is added here."""

    @abstractmethod
    def reset_one(self, key: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts one episode."""

    @abstractmethod
    def step_one(self, key: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of one env with an action (A,)."""

    def reset(self, keys: Array, params: Params) -> tuple[State, TimeStep]:
        """Starts N episodes."""
        result: tuple[State, TimeStep] = per_env(self.reset_one, self.default_params())(keys, params)
        return result

    def step(self, keys: Array, state: State, action: Array, params: Params) -> tuple[State, TimeStep]:
        """One agent step of N envs."""
        result: tuple[State, TimeStep] = per_env(self.step_one, self.default_params())(keys, state, action, params)
        return result


def params_axes(params: Params, default: Params) -> Params:
    """For every leaf 0 if it has an env axis that the default lacks, else None."""
    return jax.tree.map(lambda leaf, one: 0 if jnp.ndim(leaf) > jnp.ndim(one) else None, params, default)


def per_env(function: Callable[..., Any], default: Params) -> Callable[..., Any]:
    """Maps a function of one env, whose last argument is params, over a leading env axis of the other arguments."""

    def mapped(*arguments: Any) -> Any:
        axes = (0,) * (len(arguments) - 1) + (params_axes(arguments[-1], default),)
        return jax.vmap(function, in_axes=axes)(*arguments)

    return mapped
