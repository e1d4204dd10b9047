"""No dead settings of an agent: each one changes a program, an initial array, or is an input that outputs depend on."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tests.settings.agent_programs import dotted, fingerprint, live_inputs, static_floats

from dreamproof.settings.cell import CELL_SETTINGS, CellSettings
from dreamproof.settings.traced import traced_values
from dreamproof.testing.small_agent import merged, tiny_pwm_settings, tiny_settings

pytestmark = pytest.mark.long(40)

CELLS: dict[str, type[CellSettings]] = {cell.agent_name: cell for cell in CELL_SETTINGS.values()}
# As few layers as possible: tracing takes longer with each.
SMALL = {
    "dreamer": tiny_settings()["agent"],
    "pwm": tiny_pwm_settings({"world_model": {"units": [16]}, "behavior": {"critic_passes": 1}})["agent"],
}
# Read by NumPy or math while a program is made, so a tracer cannot stand for them.
CONCRETE = {"world_model.bin_reach", "risk.miscoverage", "dynamics.source_noise", "behavior.critic_warm_up"}
# The programs in which a static setting is looked for, by the beginning of its name: tracing them all takes too long.
WHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "dreamer": {
        "planner.evaluation": ("evaluate",),
        "planner": ("act",),
        "filter": ("act",),
        "behavior": ("update",),
        "world_model.bin_reach": ("act",),
        "world_model.uniform_mix": ("act",),
        "risk.miscoverage": ("outcome",),
        "risk.certificate_steps": ("outcome",),
        "precision": ("act",),
        "": ("init",),
    },
    "pwm": {
        "world_model.bin_reach": ("model",),
        "world_model.reward_": ("model",),
        "world_model.endpoint_scale": ("model",),
        "world_model.source_pull": ("model",),
        "world_model.observation_scale": ("model",),
        "world_model.group": ("act",),
        "world_model.remat_policy": ("model",),
        "world_model.deferred": ("model",),
        "world_model.micro_batches": ("model",),
        "dynamics.kind": ("init",),
        "dynamics": ("model",),
        "behavior.acting": ("act",),
        "running_scales": ("model",),
        "behavior.replayed_starts": ("update",),
        "behavior.warm_up_epochs": ("update",),
        "behavior.policy": ("init",),
        "behavior.actor_units": ("init",),
        "behavior.critic_units": ("init",),
        "behavior.critics": ("init",),
        "behavior.flow_": ("act",),
        "behavior": ("behavior",),
        "precision": ("act",),
        "": ("init",),
    },
}
# The programs that together read all inputs, without any such context.
ALL_INPUTS = {"dreamer": ("outcome", "act", "evaluate", "update"), "pwm": ("update",)}
# Other settings with which a setting has an effect; the first entry whose name begins the setting's name is used.
FLOW = {"dynamics": {"kind": "flow", "integrator": "euler", "substeps": 1}, "world_model": {"deferred": False}}
CONTEXTS: dict[str, dict[str, dict[str, Any]]] = {
    "dreamer": {
        "world_model.classes": {"world_model": {"latent": "categorical"}},
        "world_model.uniform_mix": {"world_model": {"latent": "categorical"}},
    },
    "pwm": {
        "dynamics.kind": {},
        "dynamics.skip": {**FLOW, "dynamics": {**FLOW["dynamics"], "predicts": "end"}},
        "dynamics": FLOW,
        "world_model.bin": {"world_model": {"reward": "two_hot"}},
        "world_model.reward_clip": {"world_model": {"reward_normalisation": "standardise"}},
        "world_model.task": {"world_model": {"tasks": 2}},
        "world_model.endpoint_scale": FLOW,
        "world_model.source_pull": FLOW,
        "world_model.observation_scale": {"world_model": {"decoder": True}},
        "world_model.remat_policy": {"world_model": {"deferred": False}},
        "world_model.size": {"world_model": {"units": None}},
        "behavior.flow_": {"behavior": {"policy": "flow"}},
        # Only a behaviour that learns offline reads it.
        "behavior.cloning_scale": {"behavior": {"objective": "imagined_return"}},
        "behavior.recorded_value_scale": {"behavior": {"objective": "imagined_return"}},
    },
}
# Another value, where the general rule of `other` gives none that is valid.
OTHERS: dict[str, Any] = {
    "dynamics.source_noise": 0.1,
    "behavior.critic_warm_up": 0.1,
    "world_model.group": 4,
    "world_model.latent": 8,
    "world_model.bins": 23,
    "world_model.tasks": 3,
    "world_model.micro_batches": 2,
    "planner.evaluation_samples": 9,
    "planner.evaluation_iterations": 2,
    "planner.evaluation_draws": 2,
    "planner.evaluation_check_draws": 2,
    "planner.cost_limits": {"hazards": 2.0},
}


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Dotted name and declaration of every setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from fields_of(field.annotation, f"{above}{name}.")
        else:
            yield above + name, field


def agent_fields(agent: str) -> dict[str, FieldInfo]:
    """All settings of an agent."""
    return dict(fields_of(CELLS[agent].model_fields["agent"].annotation))  # type: ignore[arg-type]


# They change what is drawn for an update, which is an argument of its program: tests/train/test_streaming.py.
DRAWN = {"behavior.cloned_states", "behavior.starts"}
SETTINGS = [(agent, path) for agent in CELLS for path in agent_fields(agent) if path not in DRAWN]


def nested(path: str, value: Any) -> dict[str, Any]:
    """{"a": {"b": value}} of "a.b"."""
    first, _, rest = path.partition(".")
    return {first: nested(rest, value) if rest else value}


def value_at(settings: BaseModel, path: str) -> Any:
    """The value of a setting."""
    first, _, rest = path.partition(".")
    return value_at(getattr(settings, first), rest) if rest else getattr(settings, first)


@cache
def made(agent: str, changes: str) -> Any:
    """Validated settings of the small agent with changes (JSON)."""
    cell = CELLS[agent].model_fields["agent"].annotation
    return cell.model_validate(merged(SMALL[agent], json.loads(changes)))  # type: ignore[union-attr]


@cache
def known(agent: str, changes: str, program: str) -> Any:
    """The fingerprint of a program of those settings."""
    return fingerprint(agent, made(agent, changes), program)


def by_prefix(table: dict[str, Any], path: str) -> Any:
    """The first entry whose name begins the setting's name."""
    return next((entry for start, entry in table.items() if path.startswith(start)), None)


def context_of(agent: str, path: str) -> dict[str, Any]:
    """Changes with which the setting has an effect."""
    return by_prefix(CONTEXTS[agent], path) or {}


def other(path: str, field: FieldInfo, value: Any) -> Any:
    """A valid value that differs."""
    if isinstance(value, bool):
        return not value
    if get_origin(field.annotation) is Literal:
        return next(option for option in get_args(field.annotation) if option != value)
    if path in OTHERS:
        return OTHERS[path]
    return (*value, 8) if isinstance(value, tuple) else value + 1 if isinstance(value, int) else value * 0.9


@cache
def live(agent: str, changes: str, programs: tuple[str, ...]) -> set[str]:
    """Settings on which outputs depend: traced ones, and floats that are made inputs for this test."""
    settings = made(agent, changes)
    floats = without(static_floats(settings), CONCRETE)
    return {path for program in programs for path in live_inputs(agent, settings, program, floats)}


def without(tree: dict[str, Any], paths: set[str], above: str = "") -> dict[str, Any]:
    """A nested dict without some leaves."""
    return {
        name: without(value, paths, f"{above}{name}.") if isinstance(value, dict) else value
        for name, value in tree.items()
        if above + name not in paths
    }


def can_be_input(agent: str, path: str) -> bool:
    """Whether the setting is traced, or a float that can be made an input."""
    settings = made(agent, "{}")
    return path in {*dotted(traced_values(settings)), *dotted(without(static_floats(settings), CONCRETE))}


def changes_a_program(agent: str, path: str, field: FieldInfo) -> bool:
    """Whether another value gives another program."""
    context = context_of(agent, path)
    before = json.dumps(context)
    changed = json.dumps(merged(context, nested(path, other(path, field, value_at(made(agent, before), path)))))
    programs = by_prefix(WHERE[agent], path) or ()
    return any(known(agent, before, each) != fingerprint(agent, made(agent, changed), each) for each in programs)


@pytest.mark.filterwarnings("ignore:A JAX array is being set as static")
@pytest.mark.parametrize(("agent", "path"), SETTINGS)
def test_a_setting_of_an_agent_changes_something(agent: str, path: str) -> None:
    if can_be_input(agent, path):
        context = context_of(agent, path)
        programs = by_prefix(WHERE[agent], path) if context else ALL_INPUTS[agent]
        assert path in live(agent, json.dumps(context), programs), f"nothing depends on {path}"
    else:
        assert changes_a_program(agent, path, agent_fields(agent)[path]), f"{path} changes no program"
