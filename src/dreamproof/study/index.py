"""A cache of a long ledger's replay, without ended attempts. The supervisor rebuilds it; the truth never needs it."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from dreamproof import __version__
from dreamproof.base.files import write_bytes
from dreamproof.runs.layout import StudyFolder
from dreamproof.runs.reader import EvalProof, TrainProof
from dreamproof.settings.study import Study
from dreamproof.study.ledger import Position
from dreamproof.study.state import AttemptState, CellState, EvalState, StudyState, SupervisorSpan
from dreamproof.study.tally import Tally

FORMAT = f"4 of {__version__}"
WORTH_EVENTS = 20_000
PLAIN = (
    "declaration_hash",
    "understood_hash",
    "beside",
    "preflight_fingerprint",
    "preflight_failure",
    "quick_failures",
    "breaker",
    "budget_reached",
    "reports",
    "stop_requested",
    "shutdown",
    "resolved",
    "codes",
    "code",
    "accepted",
    "event_count",
    "first_event",
    "last_event",
)
LEFT_OUT = ("cell", "condition", "last_evidence")


def write_index(folder: StudyFolder, state: StudyState, position: Position) -> None:
    """Writes the state as it stands at a position of the ledger."""
    value = {
        "format": FORMAT,
        "bytes": position.size_bytes,
        "number": position.number,
        "hash": position.hash,
        "study": state.study.model_dump(mode="json") if state.study is not None else None,
        "plain": {name: getattr(state, name) for name in PLAIN},
        "supervisors": [
            [one.started, one.identity, one.last_event, one.ended, one.reason] for one in state.supervisors
        ],
        "cells": {text: _unusual(cell) for text, cell in state.known_cells().items()},
        "eval_cells": [
            [text, condition, unusual]
            for (text, condition), one in state.known_evals().items()
            if (unusual := _unusual(one))
        ],
        "open_attempts": [_values(attempt) for attempt in state.open_attempts.values()],
        "tally": _values(state.tally),
    }
    write_bytes(folder.index, json.dumps(value, separators=(",", ":")).encode(), durable=False)


def read_index(folder: StudyFolder) -> tuple[StudyState, Position] | None:
    """The cached state and where in the ledger it stands; None where there is none that fits the ledger."""
    try:
        value = from_json(folder.index.read_bytes(), cache_strings="keys")
        if value["format"] != FORMAT:
            return None
        position = Position(value["bytes"], value["number"], value["hash"])
        if not _fits(folder.ledger, position):
            return None
        return _restore(value), position
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _fits(ledger: Path, position: Position) -> bool:
    """Whether the ledger's line that ends at the position is the one the cache was made at."""
    ending = f'"hash":"{position.hash}"}}\n'.encode()
    with ledger.open("rb") as file:
        file.seek(max(0, position.size_bytes - len(ending)))
        return file.read(len(ending)) == ending


def _unusual(known: CellState | EvalState) -> dict[str, Any]:
    """Fields that differ from those of a cell nobody touched; proofs as lists."""
    found: dict[str, Any] = {}
    for field in fields(known):
        if field.name in LEFT_OUT:
            continue
        value = getattr(known, field.name)
        usual = field.default if field.default_factory is MISSING else field.default_factory()
        if value != usual:
            found[field.name] = _values(value) if field.name == "proof" else value
    return found


def _values(record: TrainProof | EvalProof | AttemptState | Tally) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]


def _restore(value: dict[str, Any]) -> StudyState:
    state = StudyState()
    for name in PLAIN:
        setattr(state, name, value["plain"][name])
    state.supervisors = [SupervisorSpan(*row) for row in value["supervisors"]]
    for text, unusual in value["cells"].items():
        known = state.known_cell(text)
        _set(known, unusual, TrainProof)
    for text, condition, unusual in value["eval_cells"]:
        _set(state.known_eval(text, condition), unusual, EvalProof)
    state.open_attempts = {row[0]: AttemptState(*row) for row in value["open_attempts"]}
    state.attempts = dict(state.open_attempts)
    state.tally = Tally(*value["tally"])
    state.tally.spans = [(start, end) for start, end in state.tally.spans]
    if value["study"] is not None:
        state.redeclare(Study.model_validate(value["study"]))
    return state


def _set(known: CellState | EvalState, unusual: dict[str, Any], kind: type[TrainProof] | type[EvalProof]) -> None:
    for name, content in unusual.items():
        setattr(known, name, kind(*content) if name == "proof" else content)
