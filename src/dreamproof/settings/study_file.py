"""Study files: read, checked for secrets, and searched for old keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.safe_text import looks_secret, mask_secrets
from dreamproof.settings.cell import CELL_SETTINGS
from dreamproof.settings.env import Shift
from dreamproof.settings.renames import renamed_keys
from dreamproof.settings.strict import read_yaml, validate
from dreamproof.settings.study import CommandTrainer, Study


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every text below a value, with the dotted name of its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, place)
    elif isinstance(value, str):
        yield place, value


def refuse_secrets(study: Study, path: Path) -> None:
    """Raises BadInput if a declaration holds a password, key or token: it would stand in the ledger for good."""
    trainer = study.trainer
    if isinstance(trainer, CommandTrainer):
        for name, value in trainer.environment.items():
            if looks_secret(name, value):
                raise BadInput(
                    f"{path}: trainer.environment.{name} looks like a secret; it would be recorded and exported",
                    f"take it out, write 'from_env: [{name}]' under trainer, and export {name}=… in the shell of run",
                )
    parts = study.model_dump(mode="json", include={"trainer", "settings", "arms", "conditions", "backend", "notify"})
    for place, text in _texts(parts, ""):
        if mask_secrets(text) != text:
            raise BadInput(
                f"{path}: {place[1:]} holds what looks like a secret; it would be recorded and exported",
                "take it out of the file; let the trainer read it from a variable named in trainer.from_env",
            )


def read_study(path: Path) -> Study:
    """The study declared in a YAML file."""
    value, lines = read_yaml(path)
    study = validate(Study, value, str(path), lines)
    refuse_secrets(study, path)
    return study


def deprecation_notes(path: Path) -> list[str]:
    """One line for every old key that a study file uses."""
    if not path.is_file():
        return []
    value, _ = read_yaml(path)
    pairs = list(renamed_keys(Study, value))
    trainer, arms, conditions = value.get("trainer"), value.get("arms"), value.get("conditions")
    if isinstance(trainer, str) and trainer in CELL_SETTINGS:
        shared = [value.get("settings"), *(arms.values() if isinstance(arms, dict) else [])]
        pairs += [pair for settings in shared for pair in renamed_keys(CELL_SETTINGS[trainer], settings)]
        for condition in conditions if isinstance(conditions, list) else []:
            if isinstance(condition, dict):
                pairs += renamed_keys(Shift, condition.get("settings"), f"{condition.get('name')}.")
    return [f"note: {old} is now {new}" for old, new in dict.fromkeys(pairs)]
