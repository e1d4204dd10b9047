"""The resolved settings of a run on disk, and whether a run folder agrees with itself."""

from typing import Any

from dreamproof.base.files import read_json, write_json
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import read_checkpoint, read_settings
from dreamproof.runs.records import ResolvedRecord
from dreamproof.settings.resolved import Resolved, resolved_hash, under_current_names
from dreamproof.settings.task_sets import TASK_SETS

NOT_STORED = "recorded before resolved settings were stored"


def read_resolved(run: RunFolder) -> ResolvedRecord | None:
    """What resolved.json holds; None if there is none that can be read."""
    value = read_json(run.resolved)
    try:
        return ResolvedRecord.model_validate(value) if isinstance(value, dict) else None
    except ValueError:
        return None


def write_resolved(run: RunFolder, resolved: Resolved, code: dict[str, Any]) -> None:
    """Writes resolved.json unless it holds the same already."""
    value = {"hash": resolved_hash(resolved), "resolved": resolved, "code": code}
    if read_json(run.resolved) != value:
        write_json(run.resolved, value)


def resolved_fault(run: RunFolder) -> str | None:
    """Why the resolved settings of a run do not hold, from its files alone; None if they do or were never stored."""
    record = read_resolved(run)
    if record is None:
        return f"{run.resolved.name} cannot be read" if run.resolved.exists() else None
    if resolved_hash(record.resolved) != record.hash:
        return f"{run.resolved.name} does not match its own hash: it was edited"
    return _typed_fault(run, record) or _checkpoint_fault(run, record)


def _typed_fault(run: RunFolder, record: ResolvedRecord) -> str | None:
    typed = read_settings(run)
    if typed is None:
        return None
    for key in ("task", "trainer", "agent_steps"):
        given, resolved = getattr(typed, key), record.resolved.get(key)
        if given != resolved:
            return f"{run.settings.name} says {key} {given}, {run.resolved.name} {resolved}"
    asked, resolved = (
        under_current_names(typed.trainer, each) for each in (typed.settings, record.resolved.get("settings", {}))
    )
    place = _first_difference(asked, resolved, "")
    return None if place is None else f"{run.settings.name} and {run.resolved.name} disagree about {place}"


def _first_difference(typed: Any, resolved: Any, place: str) -> str | None:
    """The first typed setting that the resolved ones do not hold."""
    if isinstance(typed, dict) and isinstance(resolved, dict):
        for key, value in typed.items():
            inner = f"{place}.{key}" if place else str(key)
            found = inner if key not in resolved else _first_difference(value, resolved[key], inner)
            if found is not None:
                return found
        return None
    return None if _means(typed) == _means(resolved) else place


def _means(value: Any) -> Any:
    """A typed value as settings understand it: YAML reads 1e-4 as text, and `mt30` names a list of tasks."""
    if isinstance(value, str) and value in TASK_SETS:
        return [task.name for task in TASK_SETS[value]]
    if isinstance(value, list):
        return [_means(one) for one in value]
    try:
        return float(value) if not isinstance(value, bool) else value
    except (TypeError, ValueError):
        return value


def _checkpoint_fault(run: RunFolder, record: ResolvedRecord) -> str | None:
    folders = run.checkpoint_folders()
    newest = read_checkpoint(folders[-1]) if folders else None
    if newest is not None and newest.resolved_hash not in ("", record.hash):
        name = folders[-1].root.name
        return f"checkpoint {name} was trained with other resolved settings than {run.resolved.name} holds"
    return None
