"""Programs of very small agents, traced and never compiled: what a setting can change."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters import partial_eval
from pydantic import BaseModel

from dreamproof.agents.api import Batch, Calibrated, EpochBatch, RecordedSteps, Reflective, SeparateUpdates
from dreamproof.agents.registry import make_agent
from dreamproof.jaxcore.types import Spec, TimeStep
from dreamproof.settings.traced import TRACED, traced_values

ENVS = 2
SPEC = Spec(
    "Small",
    observation_size=7,
    action_size=2,
    episode_agent_steps=10,
    has_margin=True,
    slots=(("compass", 0, 1), ("hazards", 3, 7)),
    entities=(3, 7, 2),
    absolute=("compass",),
    task=0,
    costs=("hazards",),
)
PLAIN = (bool, int, float, str, tuple, np.dtype)
Program = Callable[[Any, Any, dict[str, Any], jax.Array], Any]


def batch() -> Batch:
    """Windows (3, 8) of zeros."""
    zero = jnp.zeros((3, 8))
    sizes = (SPEC.observation_size, SPEC.action_size)
    observation, action = (jnp.zeros((*zero.shape, size)) for size in sizes)
    return Batch(observation, action, zero, zero, zero, zero, zero, jnp.zeros(8))


def epoch() -> EpochBatch:
    """One such batch, and what the envs show."""
    return EpochBatch(jax.tree.map(lambda part: part[None], batch()), seen())


def seen() -> TimeStep:
    """What the envs show."""
    zero, no = jnp.zeros(ENVS), jnp.zeros(ENVS, bool)
    return TimeStep(jnp.zeros((ENVS, SPEC.observation_size)), zero, zero, zero, zero, no, no, no)


def _act(explore: bool) -> Program:
    def act(agent: Any, state: Any, scalars: dict[str, Any], key: jax.Array) -> Any:
        return agent.act(state, agent.init_memory(ENVS), seen(), key, scalars, explore)

    return act


def _update(agent: Any, state: Any, scalars: dict[str, Any], key: jax.Array) -> Any:
    return agent.update(state, epoch() if isinstance(agent, SeparateUpdates) else batch(), key, scalars, jnp.ones(()))


def _update_model(agent: Any, state: Any, scalars: dict[str, Any], key: jax.Array) -> Any:
    if not isinstance(agent, SeparateUpdates):
        return ()
    return agent.update_model(state, epoch().windows, key, scalars, jnp.ones(()))


def _update_behavior(agent: Any, state: Any, scalars: dict[str, Any], key: jax.Array) -> Any:
    if not isinstance(agent, SeparateUpdates):
        return ()
    observation = seen().observation
    windows = jax.tree.map(lambda part: part[0], epoch().windows)
    steps = RecordedSteps(observation, jnp.zeros((len(observation), agent.spec.action_size)), windows=windows)
    return agent.update_behavior(state, steps, key, scalars, jnp.ones(()))


def _outcome(agent: Any, state: Any, scalars: dict[str, Any], key: jax.Array) -> Any:
    """What follows from finished episodes."""
    episodes = jnp.zeros((12, 40))
    shown = {"risk/surprise": jnp.zeros(ENVS), "episode/done": jnp.ones(()), "episode/cost": jnp.ones(())}
    reflected = agent.reflect(state, shown, scalars) if isinstance(agent, Reflective) else ()
    return reflected, agent.calibrate(state, episodes, episodes) if isinstance(agent, Calibrated) else ()


def _init(agent: Any, state: Any, scalars: dict[str, Any], key: jax.Array) -> Any:
    return state


PROGRAMS: dict[str, Program] = {
    "init": _init,
    "outcome": _outcome,
    "act": _act(True),
    "evaluate": _act(False),
    "model": _update_model,
    "behavior": _update_behavior,
    "update": _update,
}


def traced(name: str, settings: BaseModel, program: str, floats: dict[str, Any] | None = None) -> Any:
    """The jaxpr of a program; its first inputs are the traced settings and `floats`, then a key."""

    def run(inputs: tuple[dict[str, Any], dict[str, Any]], key: jax.Array) -> Any:
        agent = make_agent(name, SPEC, replaced(settings, inputs[1]))
        state = agent.init_state(key)
        return jax.tree.leaves(eqx.filter(PROGRAMS[program](agent, state, inputs[0], key), eqx.is_array))

    inputs = jax.tree.map(jnp.asarray, (traced_values(settings), floats or {}))
    return jax.make_jaxpr(run)(inputs, jax.random.key(0))


def fingerprint(name: str, settings: BaseModel, program: str) -> list[Any]:
    """Operations, shapes and constants of a program: equal if it computes the same."""
    jaxpr = traced(name, settings, program)
    return [*operations(jaxpr.jaxpr), *(np.asarray(constant).tobytes() for constant in jaxpr.consts)]


def operations(jaxpr: Any) -> Iterator[Any]:
    """Every operation with its literals, plain parameters and output shapes, inner programs included."""
    for equation in jaxpr.eqns:
        literals = [str(value) for value in equation.invars if isinstance(value, Literal)]
        yield equation.primitive.name, literals, [value.aval for value in equation.outvars]
        for key, value in equation.params.items():
            inner = [part for part in jax.tree.leaves(value, is_leaf=is_jaxpr) if is_jaxpr(part)]
            for part in inner:
                yield from operations(getattr(part, "jaxpr", part))
            if not inner and isinstance(value, PLAIN):
                yield key, value


def is_jaxpr(value: Any) -> bool:
    """Whether a parameter of an operation is an inner program."""
    return isinstance(value, (Jaxpr, ClosedJaxpr))


def live_inputs(name: str, settings: BaseModel, program: str, floats: dict[str, Any]) -> set[str]:
    """Dotted names of the traced settings and floats on which some output depends."""
    jaxpr = traced(name, settings, program, floats).jaxpr
    names = [*dotted(traced_values(settings)), *dotted(floats)]
    return {path for path, is_used in zip(names, used_inputs(jaxpr), strict=False) if is_used}


def used_inputs(jaxpr: Jaxpr) -> list[bool]:
    """Whether an output depends on each input, also through inner programs."""
    return list(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1])


def dotted(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    """Names of the leaves, in the order of jax.tree.leaves."""
    for key in sorted(tree):
        yield from dotted(tree[key], f"{above}{key}.") if isinstance(tree[key], dict) else [above + key]


def static_floats(settings: BaseModel) -> dict[str, Any]:
    """The numbers that are compiled in as constants, nested as the settings are."""
    found: dict[str, Any] = {}
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            found[name] = static_floats(value)
        elif field.annotation is float and TRACED not in field.metadata:
            found[name] = value
    return found


def replaced(settings: BaseModel, values: dict[str, Any]) -> Any:
    """Settings with some values replaced and not checked: a value may be a tracer."""
    return settings.model_copy(
        update={
            name: replaced(getattr(settings, name), value) if isinstance(value, dict) else value
            for name, value in values.items()
        }
    )
