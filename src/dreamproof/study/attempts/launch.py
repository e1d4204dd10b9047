"""Turns a job into a started attempt: good checkpoints, settings, order, ledger, process; in this sequence."""

import os
import re
import secrets
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dreamproof.base.errors import BadInput
from dreamproof.base.files import FaultKind, Unreadable, free_name, list_folder, read_json
from dreamproof.base.text import quoted
from dreamproof.runs.layout import AttemptFolder, Cell, StudyFolder
from dreamproof.runs.resolved import write_resolved
from dreamproof.study.attempts.outputs import kept_agent_steps
from dreamproof.study.attempts.quarantine import CellUnreadable, require_readable
from dreamproof.study.attempts.settle import prove_evaluations, prove_training
from dreamproof.study.backends.api import Order, write_order
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.events import AttemptStarted, Event, Remedy
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.commands import (
    Target,
    environment,
    evaluate_commands,
    train_commands,
    working_folder,
    write_settings,
)
from dreamproof.study.plan.gap import PlannedAttempt
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.plan.provenance import identify
from dreamproof.study.process.gpus import VISIBLE
from dreamproof.study.process.processes import ATTEMPT_VARIABLE

ATTEMPT_NAME = re.compile(r"a([0-9]{6,12})(?:r[1-9][0-9]{0,5})?", re.ASCII)
STARTED = TypeAdapter(AttemptStarted)


@dataclass(frozen=True)
class Readiness:
    """What is on disk of a cell that is to be trained."""

    kept_agent_steps: int
    events: list[Event]
    """Proofs that were already there and checkpoints that were moved aside; to be written before anything else."""


def ready_cell(opened: OpenStudy, cell: Cell) -> Readiness:
    """Looks for an existing proof, then for the checkpoint to resume from."""
    require_readable(opened, cell)
    proof = prove_training(opened, cell, None, None)
    if not isinstance(proof, str):
        return Readiness(proof.agent_steps, [proof])
    events: list[Event] = _fall_back(opened, cell)
    _clear_frozen(opened, cell)
    return Readiness(kept_agent_steps(opened, cell), events)


def _fall_back(opened: OpenStudy, cell: Cell) -> list[Event]:
    """Moves checkpoints that are not what was saved out of the way, newest first; deletes nothing."""
    events: list[Event] = []
    while (found := opened.adapter(cell).faulty_checkpoint(opened.run(cell))) is not None:
        checkpoint, fault = found
        if fault.fault is FaultKind.BLOCKED:  # a disk that fails now proves nothing about what was saved
            raise CellUnreadable(fault)
        aside = free_name(checkpoint.aside)
        checkpoint.root.rename(aside)
        moved = opened.folder.relative(aside)
        reason = f"checkpoint {checkpoint.root.name} cannot be used: {fault.reason}; using the one before it"
        events.append(Remedy([str(cell)], "fall_back", reason, moved=moved))
    return events


def _clear_frozen(opened: OpenStudy, cell: Cell) -> None:
    """Puts the record of an earlier death aside, so that the next one is distinct."""
    run = opened.run(cell)
    if os.path.exists(run.frozen):
        run.frozen.rename(free_name(run.frozen_before))


def ready_evaluations(opened: OpenStudy, job: PlannedAttempt) -> list[Event]:
    """Proofs of a job's eval cells that already stand."""
    for cell in job.cells:
        require_readable(opened, cell)
    return [event for cell in job.cells for event in prove_evaluations(opened, cell, job.conditions, None)[0]]


def attempt_number(name: str) -> int:
    """The number in an attempt's name; 0 for a name that is not ours."""
    found = ATTEMPT_NAME.fullmatch(name)
    return int(found[1]) if found else 0


def next_attempt_name(state: StudyState, folder: StudyFolder) -> str:
    """A name that neither the ledger nor the disk has seen."""
    last = max(map(attempt_number, state.attempts), default=0)
    while os.path.lexists(folder.attempt(folder.attempt_name(last + 1)).root):
        last += 1
    return folder.attempt_name(last + 1)


def prepare(
    opened: OpenStudy, job: PlannedAttempt, name: str, stop_grace_seconds: float
) -> tuple[AttemptFolder, AttemptStarted]:
    """Writes settings and order of an attempt; after this only its event and its start are missing."""
    study = opened.study
    identity = opened.identity = opened.identity or identify(opened)
    targets = [_target(opened, cell, job) for cell in job.cells]
    if job.work == "train":
        commands = train_commands(study, targets)
    else:
        commands = evaluate_commands(study, targets, job.conditions)
    event = AttemptStarted(
        name,
        job.work,
        [str(cell) for cell in job.cells],
        job.conditions,
        seen_from(opened.folder.root, commands[0]),
        job.from_agent_steps,
        len(job.cells),
        job.micro_batches,
        {cell.arm: identity.hash(cell.arm) for cell in job.cells},
        identity.code.hash,
    )
    order = Order(
        name,
        commands,
        environment(study, targets, _taken_gpus(opened)) | {ATTEMPT_VARIABLE: new_token(name)},
        str(working_folder(study, opened.base_folder)),
        event.row(),
        study.backend.memory_limit_bytes,
        stop_grace_seconds,
        study.backend.lease_seconds,
        max((opened.state.known_cell(str(cell)).memory_bytes or 0 for cell in job.cells), default=0) or None,
        [str(target.run.lock) for target in targets] if study.backend.runs_here else [],
    )
    folder = opened.folder.attempt(name)
    for target in targets:
        own = target.run == opened.folder.run(target.cell)
        if own or not os.path.lexists(target.run.settings):  # a run made outside keeps its own files
            write_settings(study, target.cell, target.run)
        if own and job.work == "train":
            write_resolved(target.run, identity.resolved[target.cell.arm], identity.code.facts())
    try:
        write_order(folder, order)
    except (PermissionError, NotADirectoryError) as error:
        raise BadInput(
            f"{error.filename or folder.root}: cannot be written: {error.strerror}",
            f"ls -ld {quoted(opened.folder.root)}",
        ) from None
    return folder, event


def _target(opened: OpenStudy, cell: Cell, job: PlannedAttempt) -> Target:
    run, proof = opened.run(cell), opened.state.known_cell(str(cell)).proof
    target = Target(cell, run, opened.study.agent_steps, None, job.micro_batches)
    if job.work == "train" or proof is None:
        return target
    place = opened.adapter(cell).checkpoint_root(run) / proof.checkpoint
    return replace(target, checkpoint=place, checkpoint_hash=proof.parameter_hash)


def _taken_gpus(opened: OpenStudy) -> list[str]:
    """What attempts that run were given, according to their orders."""
    orders = [read_json(opened.folder.attempt(name).order) for name in opened.state.open_attempts]
    environments = [order.get("environment") for order in orders if isinstance(order, dict)]
    given = [one.get(VISIBLE) for one in environments if isinstance(one, dict)]
    return [value for value in given if isinstance(value, str)]


def new_token(name: str) -> str:
    """A unique token for the processes of one attempt."""
    return f"{name}-{secrets.token_hex(8)}"


def seen_from(root: Path, command: list[str]) -> list[str]:
    """A command for the record: paths as the study folder sees them, so that it may be moved and shown to others."""
    return [Path(part).name if part == sys.executable else part.replace(f"{root}{os.sep}", "") for part in command]


def works_elsewhere(opened: OpenStudy, attempt: AttemptState) -> bool:
    """Whether an attempt was ordered to work in other run folders than this study's, as after a move or in a copy."""
    order = read_json(opened.folder.attempt(attempt.name).order)
    ordered = order.get("locks") if isinstance(order, dict) else None
    own = [str(opened.run(Cell.parse(text)).lock) for text in attempt.cells]
    return bool(ordered) and ordered != own


def orphaned_events(state: StudyState, folder: StudyFolder) -> list[AttemptStarted]:
    """Attempts on disk that the ledger lost (a torn last line), from their orders."""
    entries = list_folder(folder.attempts)
    names = [] if isinstance(entries, Unreadable) else [entry.name for entry in entries]
    events: list[AttemptStarted] = []
    for name in names:
        if name in state.attempts or not ATTEMPT_NAME.fullmatch(name) or _continues_open_attempt(state, name):
            continue  # a restart is recorded after the end of the run before it, which sets the step it resumes from
        order = read_json(folder.attempt(name).order)
        event = ordered_event(state, name, order.get("event") if isinstance(order, dict) else None)
        if event is not None:
            events.append(event)
    return events


def _continues_open_attempt(state: StudyState, name: str) -> bool:
    """Whether an attempt restarts a job whose previous run has no recorded end."""
    first, again, restarts = name.partition("r")
    if not again:
        return False
    before = first if restarts == "1" else f"{first}r{int(restarts) - 1}"
    return before not in state.attempts or state.attempts[before].open


def ordered_event(state: StudyState, name: str, row: Any) -> AttemptStarted | None:
    """The start that an order describes; a restarted job resumes from what its cells have kept since.

    None if the order was damaged: its content is not taken into the ledger.
    """
    try:
        event = STARTED.validate_python({key: value for key, value in dict(row).items() if key != "event"})
        known = [state.known_cell(text) for text in event.cells]
    except (TypeError, ValueError):
        return None
    if event.attempt != name or not event.cells:
        return None
    if "r" in name and event.work == "train":
        return replace(event, from_agent_steps={str(one.cell): one.kept_agent_steps for one in known})
    return event


def forgotten_proofs(opened: OpenStudy) -> list[Event]:
    """Proofs of cells that are being evaluated, so that they were proven once, and that the ledger lost since."""
    evaluated = {text for one in opened.state.open_attempts.values() if one.work == "evaluate" for text in one.cells}
    unproven = [text for text in sorted(evaluated) if opened.state.known_cell(text).proof is None]
    found = [prove_training(opened, Cell.parse(text), None, None) for text in unproven]
    return [event for event in found if not isinstance(event, str)]
