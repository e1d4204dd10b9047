"""Tasks by name: built-in ones, and those that a user's file registers."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax

from dreamproof.base.errors import BadInput
from dreamproof.base.text import nearest_word, quoted, split_task
from dreamproof.envs.api import Env
from dreamproof.envs.host import HostBatch, HostEnv, HostRules
from dreamproof.envs.point.env import PointGoal
from dreamproof.envs.point.params import LEVEL_1, LEVEL_2, GoalLevel
from dreamproof.envs.point.robots import CAR, POINT, Robot
from dreamproof.envs.probes import PROBES
from dreamproof.envs.wrappers import Padded, SignMargin
from dreamproof.jaxcore.types import Spec
from dreamproof.settings.cell import CellSettings, OfflineCell
from dreamproof.settings.env import EnvSettings
from dreamproof.settings.strict import validate
from dreamproof.settings.task_sets import MT30

Factory = Callable[[str, EnvSettings], Env]
GOAL_TASKS: dict[str, tuple[GoalLevel, Robot]] = {
    "SafetyPointGoal1": (LEVEL_1, POINT),
    "SafetyPointGoal2": (LEVEL_2, POINT),
    "SafetyCarGoal1": (LEVEL_1, CAR),
}
OFFICIAL_TASKS = {f"Official{task}": task for task in GOAL_TASKS}
LOCOMOTION_TASKS = ("Ant", "Hopper", "SafetyCheetahVelocity", *(task.name for task in MT30))


def _make_official(task: str, settings: EnvSettings) -> Env:
    """The official environment, stepped on the host; its spec equals that of our own."""
    from dreamproof.envs.official import OfficialPointGoal

    ours = OFFICIAL_TASKS[task]
    spec = PointGoal.from_settings(task, settings, *GOAL_TASKS[ours]).spec
    rules = HostRules(restarts=False, margin_key="margin", episode_agent_steps=spec.episode_agent_steps)
    return HostEnv(HostBatch(lambda: OfficialPointGoal(settings, ours), task, rules, spec))


def _make_locomotion(task: str, settings: EnvSettings) -> Env:
    """A task on MJX; MuJoCo is an extra, so it is imported here."""
    try:
        from dreamproof.envs.locomotion.tasks import make_task
    except ModuleNotFoundError as error:
        raise BadInput(
            f"the task '{task}' runs on MuJoCo and MJX, which are not installed ({error})",
            "pip install 'dreamproof[locomotion]'",
        ) from None
    return make_task(task, settings)


def _probe_factory(probe: Callable[[], Env]) -> Factory:
    return lambda task, settings: probe()


_FACTORIES: dict[str, Factory] = {
    **{task: partial(PointGoal.from_settings, level=level, robot=robot) for task, (level, robot) in GOAL_TASKS.items()},
    **dict.fromkeys(OFFICIAL_TASKS, _make_official),
    **dict.fromkeys(LOCOMOTION_TASKS, _make_locomotion),
    **{name: _probe_factory(probe) for name, probe in PROBES.items()},
}
_LOADED: set[str] = set()
OWN_HINT = "see docs/environments.md, 'An environment of your own'"


def register(task: str, factory: Factory) -> None:
    """Adds a task; `factory` gets the task's name and the settings, and returns the Env."""
    if ":" in task:
        raise BadInput(f"'{task}': a task name must not contain a colon", "register it under a plain name")
    _FACTORIES[task] = factory


def tasks() -> list[str]:
    """Names of all tasks known so far."""
    return sorted(_FACTORIES)


def make(task: str, settings: EnvSettings | Mapping[str, Any] | None = None) -> Env:
    """The environment of a task: `NAME`, or `FILE.py:NAME` or `package.module:NAME` for a custom one."""
    if not isinstance(settings, EnvSettings):
        settings = validate(EnvSettings, dict(settings or {}), "env settings")
    source, name = split_task(task)
    if source:
        _load(source)
    if name not in _FACTORIES:
        near = nearest_word(name, _FACTORIES)
        hint = f"did you mean '{near}'?" if near else f"known: {', '.join(tasks())}"
        where = f" after loading {source}" if source else ""
        raise BadInput(f"there is no task '{name}'{where}; {hint}", OWN_HINT)
    made = _FACTORIES[name](task, settings)
    if source:
        _check_costs(made)
    return made


def _check_costs(env: Env) -> None:
    """Refuses a custom environment whose named costs do not match what its steps hold."""
    spec, envs = env.spec, 2
    if len(set(spec.costs)) < len(spec.costs):
        raise BadInput(f"'{spec.name}': spec.costs names a cost twice: {', '.join(spec.costs)}", OWN_HINT)
    if spec.costs and not spec.has_cost:
        raise BadInput(f"'{spec.name}': spec.costs names costs, but spec.has_cost is False", OWN_HINT)
    keys = jax.ShapeDtypeStruct((envs,), jax.random.key(0).dtype)
    costs = jax.eval_shape(lambda keys: env.reset(keys, env.default_params())[1], keys).costs
    found = None if costs is None else costs.shape
    wanted = (envs, len(spec.costs)) if spec.costs else None
    if found != wanted:
        raise BadInput(
            f"'{spec.name}': TimeStep.costs of {envs} envs has the shape {found}, not {wanted}: spec.costs names "
            f"{', '.join(spec.costs) or 'none'}",
            OWN_HINT,
        )


def make_for(task: str, cell: CellSettings) -> Env:
    """The environment of a cell's task; for an offline cell, padded to the widest recorded task.

    A task with a cost but without a margin gets the sign of its cost as margin.
    """
    env = make(task, cell.env)
    if env.spec.has_cost and not env.spec.has_margin:
        env = SignMargin(env)
    if not isinstance(cell, OfflineCell):
        return env
    number = cell.data.number_of(task)
    return Padded(env, cell.data.observation_size, cell.data.action_size, number if cell.is_multitask else None)


def spec_for(task: str, cell: CellSettings) -> Spec:
    """What a cell's agent is built for: its task, or several tasks of equal padded sizes with a policy each."""
    if not isinstance(cell, OfflineCell) or not cell.data.policies:
        return make_for(task, cell).spec
    own = [make_for(each, cell).spec for each in cell.data.policies]
    policies = tuple((spec.task or 0, spec.usable_actions or spec.action_size) for spec in own)
    shared = own[0]._replace(name=task, task=None, usable_actions=None, slots=(), reconstruction_weights=None)
    return shared._replace(policies=policies, terminates=any(spec.terminates for spec in own))


def _load(source: str) -> None:
    """Imports a user's file or module once, so that it registers its tasks."""
    if not source.endswith(".py"):
        try:
            importlib.import_module(source)
        except ModuleNotFoundError as error:
            raise BadInput(
                f"the module '{source}' of the task was not found ({error})", f"python -c 'import {source}'"
            ) from None
        return
    path = Path(source).resolve()
    if str(path) in _LOADED:
        return
    if not path.is_file():
        raise BadInput(f"{path}: no such file, so its task cannot be loaded", f"ls {quoted(path.parent)}")
    name = f"dreamproof_task_{path.stem}"
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    _LOADED.add(str(path))
