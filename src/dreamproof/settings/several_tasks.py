"""A study over several tasks: what follows from its key `tasks`."""

from typing import Any

from dreamproof.base.text import repeated
from dreamproof.settings.task_sets import MT80, TASK_SETS

SINGLE_TASK_TRAINERS = ("dreamer", "pwm")
SEVERAL = "several"
"""The task of a study that lists tasks instead of naming a set of them."""


def with_tasks(value: dict[str, Any]) -> dict[str, Any]:
    """A declaration in which everything that follows from `tasks` is written out; what it says itself stays."""
    named = value["tasks"]
    if isinstance(named, str) and named not in TASK_SETS:
        raise ValueError(f"tasks: there is no set '{named}'; known: {', '.join(TASK_SETS)}; or list names of tasks")
    tasks = [task.name for task in TASK_SETS[named]] if isinstance(named, str) else named
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks) or not tasks:
        return value
    if len(tasks) == 1:
        raise ValueError(f"tasks: lists one task only; write `task: {tasks[0]}` instead")
    twice = repeated(tasks)
    if twice:
        raise ValueError(f"tasks: {', '.join(twice)} is listed twice")
    if value.get("trainer") in SINGLE_TASK_TRAINERS:
        return _single_tasks(value, named, tasks)
    follows: dict[str, Any] = {
        "task": named if isinstance(named, str) else SEVERAL,
        "metric": {"condition": tasks[0]},
        "conditions": tasks,
        "decides": {"conditions": tasks, "over": "iqm"},
    }
    if value.get("trainer") == "pwm_offline":
        follows["settings"] = _settings(value.get("settings"), tasks)
    return merge(follows, value) | {"tasks": tasks}


def _single_tasks(value: dict[str, Any], named: Any, tasks: list[str]) -> dict[str, Any]:
    """One arm for every task, each trained alone."""
    if "arms" in value:
        raise ValueError("tasks: this trainer learns one task in a cell, so tasks become the arms; remove `arms`")
    kept = {key: each for key, each in value.items() if key != "tasks"}
    name = named if isinstance(named, str) else SEVERAL
    return {"task": name, "conditions": ["id"], "arms": {task: {"task": task} for task in tasks}} | kept


def _settings(declared: Any, tasks: list[str]) -> dict[str, Any]:
    """A policy for every task; a world model of the tasks of the data, which are the same unless declared."""
    data = declared.get("data") if isinstance(declared, dict) else None
    known = data.get("tasks", tasks) if isinstance(data, dict) else tasks
    names = [task.name for task in TASK_SETS[known]] if isinstance(known, str) and known in TASK_SETS else known
    sizes = [task for task in MT80 if task.name in names]
    widest = (
        {name: max(getattr(task, name) for task in sizes) for name in ("observation_size", "action_size")}
        if len(sizes) == len(names)
        else {}
    )
    return {
        "data": {"tasks": names, "policies": tasks, **widest},
        "agent": {"world_model": {"tasks": len(names)}},
    }


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, mapping by mapping."""
    merged = dict(below)
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    return merged
