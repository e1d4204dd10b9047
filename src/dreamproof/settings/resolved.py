"""Every setting of a cell after defaults, and the hash that names them: a changed default is another hash."""

from collections.abc import Iterator
from typing import Any

from dreamproof.base.files import canonical_json, text_hash
from dreamproof.settings.added import without_added
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.renames import first_names, recorded_names
from dreamproof.settings.strict import validate

Resolved = dict[str, Any]


def resolve(trainer: str, task: str, agent_steps: int, settings: dict[str, Any], source: str) -> Resolved:
    """What one of our own trainers works with: nothing that was left out is missing. Seeds are no setting."""
    cell = validate(CELL_SETTINGS[trainer], settings, source)
    return {
        "task": task,
        "trainer": trainer,
        "agent_steps": agent_steps,
        "settings": cell.model_dump(mode="json"),
    }


def resolved_hash(resolved: Resolved) -> str:
    """Names resolved settings; the order of keys, a renamed key, and a later key at its first value do not matter."""
    cell = CELL_SETTINGS.get(str(resolved.get("trainer")))
    if cell is None:
        return text_hash(canonical_json(resolved))
    settings = first_names(cell, without_added(cell, resolved.get("settings")))
    return text_hash(canonical_json(resolved | {"settings": settings}))


def under_current_names(trainer: str, settings: Any) -> Any:
    """Recorded settings of a trainer, typed or resolved, with old keys renamed."""
    cell = CELL_SETTINGS.get(trainer)
    return settings if cell is None else recorded_names(cell, settings)


def resolved_changes(old: Resolved, new: Resolved) -> list[str]:
    """`settings.train.batch: 8 → 16` for every setting that differs."""
    before, after = (dict(_flat(_without_added(each))) for each in (_under_current_names(old), new))
    changes = []
    for key in [*before, *(key for key in after if key not in before)]:
        if key not in after:
            changes.append(f"{key}: {_short(before[key])} → (no such setting)")
        elif key not in before:
            changes.append(f"{key}: (no such setting) → {_short(after[key])}")
        elif before[key] != after[key]:
            changes.append(f"{key}: {_short(before[key])} → {_short(after[key])}")
    return changes


def _under_current_names(resolved: Resolved) -> Resolved:
    return resolved | {"settings": under_current_names(str(resolved.get("trainer")), resolved.get("settings"))}


def _without_added(resolved: Resolved) -> Resolved:
    cell = CELL_SETTINGS.get(str(resolved.get("trainer")))
    return resolved if cell is None else resolved | {"settings": without_added(cell, resolved.get("settings"))}


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{place}.{key}" if place else str(key))
    else:
        yield place, value


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
