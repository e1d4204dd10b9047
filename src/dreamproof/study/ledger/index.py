"""A cache of a long ledger's replay, without ended attempts. The supervisor rebuilds it; the truth never needs it."""

import json
import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from pydantic_core import from_json

from dreamproof.base.files import Unreadable, open_regular, read_file, text_hash, write_text
from dreamproof.runs.layout import StudyFolder
from dreamproof.runs.reader import EvalProof, TrainProof
from dreamproof.settings.study import Study
from dreamproof.study.ledger.cells import AttemptState, CellState, ClockJump, EvalState, SupervisorSpan
from dreamproof.study.ledger.chain import Position
from dreamproof.study.ledger.clock import Moment, Timeline
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.ledger.totals import Totals
from dreamproof.version import __version__

Timed = TypeVar("Timed", AttemptState, SupervisorSpan)

FORMAT = f"9 of {__version__}"
WORTH_EVENTS = 20_000
INDEX_BYTES = 1 << 30
PLAIN = (
    "declaration_hash",
    "understood_hash",
    "study_file",
    "preflight_fingerprint",
    "preflight_failure",
    "quick_failures",
    "breaker",
    "budget_reached",
    "budget_warned",
    "notify_failures",
    "reports",
    "report_failures",
    "imported_values",
    "stop_requested",
    "shutdown",
    "false_alarms",
    "shortened",
    "shutdown_boot",
    "shutdown_done",
    "shutdown_failed",
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
    """Writes the state at a position of the ledger."""
    value = {
        "format": FORMAT,
        "bytes": position.size_bytes,
        "number": position.number,
        "hash": position.hash,
        "study": state.study.model_dump(mode="json") if state.study is not None else None,
        "plain": {name: getattr(state, name) for name in PLAIN},
        "supervisors": [_values(one) for one in state.supervisors],
        "last_moment": state.last_moment,
        "timeline": _values(state.timeline),
        "clock_jumps": [_values(jump) for jump in state.clock_jumps],
        "cells": {text: _unusual(cell) for text, cell in state.known_cells().items()},
        "eval_cells": [
            [text, condition, unusual]
            for (text, condition), one in state.known_evals().items()
            if (unusual := _unusual(one))
        ],
        "open_attempts": [_values(attempt) for attempt in state.open_attempts.values()],
        "totals": _values(state.totals),
    }
    body = json.dumps(value, separators=(",", ":"))
    write_text(folder.index, f"{text_hash(body)}\n{body}", durable=False)


def read_index(folder: StudyFolder) -> tuple[StudyState, Position] | None:
    """The cached state and its position in the ledger; None if there is none that fits the ledger."""
    try:
        content = read_file(folder.index, INDEX_BYTES)
        if isinstance(content, Unreadable):
            return None
        digest, _, body = content.decode().partition("\n")
        if digest != text_hash(body):
            return None
        value = from_json(body, cache_strings="keys")
        if value["format"] != FORMAT:
            return None
        position = Position(value["bytes"], value["number"], value["hash"])
        if not _fits(folder.ledger, position):
            return None
        return _restore(value), position
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None


def _fits(ledger: Path, position: Position) -> bool:
    """Whether the ledger's line that ends at the position is the one the cache was made at."""
    ending = f'"hash":"{position.hash}"}}\n'.encode()
    opened = open_regular(ledger)
    if isinstance(opened, Unreadable):
        return False
    with os.fdopen(opened, "rb") as file:
        file.seek(max(0, position.size_bytes - len(ending)))
        return file.read(len(ending)) == ending


def _unusual(known: CellState | EvalState) -> dict[str, Any]:
    """Fields that differ from their defaults; proofs as lists."""
    found: dict[str, Any] = {}
    for field in fields(known):
        if field.name in LEFT_OUT:
            continue
        value = getattr(known, field.name)
        usual = field.default if field.default_factory is MISSING else field.default_factory()
        if value != usual:
            found[field.name] = _values(value) if field.name == "proof" else value
    return found


Plain = TrainProof | EvalProof | AttemptState | Totals | SupervisorSpan | Timeline | ClockJump


def _values(record: Plain) -> list[Any]:
    return [getattr(record, field.name) for field in fields(record)]


def _restore(value: dict[str, Any]) -> StudyState:
    state = StudyState()
    for name in PLAIN:
        setattr(state, name, value["plain"][name])
    state.supervisors = [_with_moments(SupervisorSpan(*row)) for row in value["supervisors"]]
    state.last_moment = _moment(value["last_moment"])
    offsets, last = value["timeline"]
    state.timeline = Timeline(offsets, {boot: Moment(*row) for boot, row in last.items()})
    state.clock_jumps = [ClockJump(*row) for row in value["clock_jumps"]]
    for text, unusual in value["cells"].items():
        known = state.known_cell(text)
        _set(known, unusual, TrainProof)
    for text, condition, unusual in value["eval_cells"]:
        _set(state.known_eval(text, condition), unusual, EvalProof)
    if not all(StudyFolder.is_attempt_name(row[0]) for row in value["open_attempts"]):
        raise ValueError("an attempt's name is a path")
    state.open_attempts = {row[0]: _with_moments(AttemptState(*row)) for row in value["open_attempts"]}
    state.attempts = dict(state.open_attempts)
    state.totals = Totals(*value["totals"])
    state.totals.spans = {
        boot: {int(slots): [(start, end) for start, end in spans] for slots, spans in by_slots.items()}
        for boot, by_slots in state.totals.spans.items()
    }
    if value["study"] is not None:
        state.redeclare(Study.model_validate(value["study"]))
    return state


def _moment(row: list[Any] | None) -> Moment | None:
    return Moment(*row) if row is not None else None


def _with_moments(record: Timed) -> Timed:
    """The same with moments again where JSON has lists."""
    for name in ("began", "last_seen", "placed_at", "ended_at"):
        if hasattr(record, name):
            setattr(record, name, _moment(getattr(record, name)))
    return record


def _set(known: CellState | EvalState, unusual: dict[str, Any], kind: type[TrainProof] | type[EvalProof]) -> None:
    for name, content in unusual.items():
        setattr(known, name, kind(*content) if name == "proof" else content)
