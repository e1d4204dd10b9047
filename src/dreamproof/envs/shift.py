"""Named conditions of the Goal tasks: each a change of parameters alone, marked proxy or genuine.

A proxy perturbs observations only; a genuine shift changes the world, the body or its timing.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from dreamproof.base.errors import BadInput
from dreamproof.base.text import nearest_word
from dreamproof.envs.api import Condition, Env, Kind
from dreamproof.envs.point.params import PointParams
from dreamproof.settings.env import Shift
from dreamproof.settings.renames import current_names
from dreamproof.settings.strict import validate

_GHOSTS: dict[int, dict[str, Any]] = {
    1: {"ghost_chance": 0.1, "ghosts": 1, "ghost_min_steps": 1, "ghost_max_steps": 2},
    2: {"ghost_chance": 0.3, "ghosts": 2, "ghost_min_steps": 3, "ghost_max_steps": 5},
    3: {"ghost_chance": 0.5, "ghosts": 3, "ghost_min_steps": 5, "ghost_max_steps": 10},
}
_MISSES: dict[int, dict[str, Any]] = {
    1: {},
    2: {"miss_chance": 0.05, "misses": 2, "miss_min_steps": 3, "miss_max_steps": 5},
    3: {"miss_chance": 0.1, "misses": 3, "miss_min_steps": 5, "miss_max_steps": 10},
}
_NOISE: dict[int, dict[str, Any]] = {
    1: {"place_noise": 0.02, "dropout": 0.02},
    2: {"place_noise": 0.05, "dropout": 0.05},
    3: {"place_noise": 0.1, "dropout": 0.1},
}
_SWAPS = {1: 1, 2: 2, 3: 4}


def _hallucinations() -> dict[str, tuple[Kind, str, dict[str, Any]]]:
    table: dict[str, tuple[Kind, str, dict[str, Any]]] = {"hallu0": ("proxy", "no change; the zero of the scale", {})}
    for level in (1, 2, 3):
        everything = _GHOSTS[level] | _MISSES[level] | _NOISE[level] | {"latent_swaps": _SWAPS[level]}
        name = f"hallu{level}"
        table[name] = ("proxy", f"ghosts, misses, noise, dropout and latent swaps of level {level}", everything)
        table[f"{name}_fp"] = ("proxy", f"ghost hazards of level {level} alone", _GHOSTS[level])
        if _MISSES[level]:
            table[f"{name}_fn"] = ("proxy", f"missed hazards of level {level} alone", _MISSES[level])
        table[f"{name}_noise"] = ("proxy", f"place noise and dropout of level {level} alone", _NOISE[level])
        original = _GHOSTS[level] | _MISSES[level] | {"hallucination": "original"}
        table[f"{name}_original"] = (
            "proxy",
            f"the first published definition of level {level}, with its defects",
            original,
        )
    return table


_GENUINE: dict[str, tuple[Kind, str, dict[str, Any]]] = {
    "mass_x2": ("genuine", "mass and inertia doubled", {"mass_factor": 2.0}),
    "mass_x0.5": ("genuine", "mass and inertia halved", {"mass_factor": 0.5}),
    "damping_x2": ("genuine", "translational damping doubled", {"damping_factor": 2.0}),
    "damping_x0.5": ("genuine", "translational damping halved", {"damping_factor": 0.5}),
    "force_x1.5": ("genuine", "drive force times 1.5", {"force_factor": 1.5}),
    "force_x0.6": ("genuine", "drive force times 0.6", {"force_factor": 0.6}),
    "friction_x0.5": ("genuine", "friction with the floor halved", {"friction_factor": 0.5}),
    "yaw_gain_x0.6": ("genuine", "turning torque times 0.6", {"yaw_gain_factor": 0.6}),
    "hazard_radius_0.25": ("genuine", "hazards of 0.25 m, unseen: a negative control", {"hazard_radius": 0.25}),
    "hazard_radius_0.30": ("genuine", "hazards of 0.30 m, unseen: a negative control", {"hazard_radius": 0.30}),
    "hazards_12": ("genuine", "12 hazards, as many seen as in training, the nearest", {"hazards": 12}),
    "hazards_16": ("genuine", "16 hazards, as many seen as in training, the nearest", {"hazards": 16}),
    "action_delay_1": ("genuine", "actions delayed by 1 agent step", {"action_delay": 1}),
    "action_delay_2": ("genuine", "actions delayed by 2 agent steps", {"action_delay": 2}),
    "action_noise_0.1": ("genuine", "noise of 0.1 on actions", {"action_noise": 0.1}),
    "observation_delay_1": ("genuine", "observations delayed by 1 agent step", {"observation_delay": 1}),
    "observation_delay_2": ("genuine", "observations delayed by 2 agent steps", {"observation_delay": 2}),
    "observation_noise_0.1": ("genuine", "noise of 0.1 on every observed value", {"observation_noise": 0.1}),
}
_NAMED: dict[str, tuple[Kind, str, dict[str, Any]]] = {
    "id": ("in_distribution", "nothing", {}),
    **_hallucinations(),
    **_GENUINE,
}
NAMED_SHIFTS: dict[str, Shift] = {name: Shift.model_validate(changes) for name, (_, _, changes) in _NAMED.items()}


def _real(value: float) -> Array:
    return jnp.asarray(value, jnp.float32)


def _whole(value: int) -> Array:
    return jnp.asarray(value, jnp.int32)


def apply_shift(params: PointParams, shift: Shift) -> PointParams:
    """Parameters of the same shapes and dtypes with the shift applied."""
    hazards = params.layout.hazards if shift.hazards is None else _whole(shift.hazards)
    return params._replace(
        physics=params.physics.shifted(shift),
        actuators=params.actuators._replace(delay=_whole(shift.action_delay), noise=_real(shift.action_noise)),
        layout=params.layout._replace(hazard_radius=_real(shift.hazard_radius), hazards=hazards),
        sensors=params.sensors._replace(
            noise=_real(shift.observation_noise),
            place_noise=_real(shift.place_noise),
            dropout=_real(shift.dropout),
            delay=_whole(shift.observation_delay),
        ),
        hallucination=params.hallucination._replace(
            ghost_chance=_real(shift.ghost_chance),
            ghosts=_whole(shift.ghosts),
            ghost_min=_whole(shift.ghost_min_steps),
            ghost_max=_whole(shift.ghost_max_steps),
            miss_chance=_real(shift.miss_chance),
            misses=_whole(shift.misses),
            miss_min=_whole(shift.miss_min_steps),
            miss_max=_whole(shift.miss_max_steps),
            held=_whole(int(shift.missed_shows == "held")),
            original=_whole(int(shift.hallucination == "original")),
        ),
    )


def make_condition(name: str, kind: Kind, description: str, shift: Shift) -> Condition:
    """A condition from a shift."""
    return Condition(name, kind, description, lambda params: apply_shift(params, shift), shift.latent_swaps)


def named_shifts(wheels: bool) -> dict[str, Shift]:
    """Shifts of a robot: the point robot has no friction with the floor, one with wheels no motor for turning."""
    fixed = "yaw_gain_factor" if wheels else "friction_factor"
    return {name: shift for name, shift in NAMED_SHIFTS.items() if getattr(shift, fixed) == 1}


def point_conditions(ghost_slots: int, wheels: bool) -> Mapping[str, Condition]:
    """All named conditions that a robot with or without wheels can express with `ghost_slots` ghost slots."""
    return {
        name: make_condition(name, *_NAMED[name][:2], shift)
        for name, shift in named_shifts(wheels).items()
        if _can_show(ghost_slots, shift)
    }


def _can_show(ghost_slots: int, shift: Shift) -> bool:
    """Ghosts of the corrected definition need separate slots."""
    return ghost_slots > 0 or shift.ghosts == 0 or shift.hallucination == "original"


def find_condition(env: Env, name: str, settings: Mapping[str, Any] | None = None) -> Condition:
    """The named condition of a task; `settings` may change it or define a new one if the task supports shifts."""
    known = env.conditions()
    if not settings:
        if name in known:
            return known[name]
        near = nearest_word(name, list(known))
        hint = f"did you mean '{near}'?" if near else f"known: {', '.join(known)}"
        slots = " (ghost hazards need env.ghost_slots above 0)" if name in env.named_shifts() else ""
        raise BadInput(f"the task '{env.spec.name}' has no condition '{name}'{slots}; {hint}", "dreamproof schema")
    base = env.named_shifts().get(name, Shift()).model_dump()
    shift = validate(Shift, base | current_names(Shift, dict(settings)), f"condition '{name}'")
    # A shift that the task cannot express is refused here, before an evaluation starts.
    env.apply_shift(env.default_params(), shift)
    kind: Kind = known[name].kind if name in known else "genuine"
    changed = ", ".join(f"{key} {value}" for key, value in settings.items())
    return Condition(name, kind, changed, partial(env.apply_shift, shift=shift), shift.latent_swaps)
