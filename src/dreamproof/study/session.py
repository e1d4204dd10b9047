"""One call of `run`, `stop` or `check` from lease to last event: declare, preflight, supervise, finish."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dreamproof.base.commit import code_commit
from dreamproof.base.errors import BadInput, BrokenEvidence, DreamproofError, Stopped
from dreamproof.base.files import FaultKind, Unreadable, read_json, unless_full, write_bytes, write_text
from dreamproof.base.text import quoted
from dreamproof.runs.layout import Cell
from dreamproof.settings.study_file import read_study
from dreamproof.study.attempts.quarantine import changed_weights, put_aside, take_in_losses
from dreamproof.study.backends.api import Backend
from dreamproof.study.backends.local import LocalBackend
from dreamproof.study.backends.slurm.backend import SlurmBackend
from dreamproof.study.backends.slurm.commands import SlurmCommands
from dreamproof.study.finish import Shutdown, shutdown_reason
from dreamproof.study.ledger.cells import CellState
from dreamproof.study.ledger.chain import Ledger, collector_paused
from dreamproof.study.ledger.events import (
    CellReopened,
    ChangesAccepted,
    DeclarationChanged,
    Event,
    PreflightFailed,
    PreflightPassed,
    ProofLost,
    ReportWritten,
    StopRequested,
    StudyDeclared,
    SupervisorEnded,
    SupervisorLost,
    SupervisorStarted,
)
from dreamproof.study.ledger.lease import Lease
from dreamproof.study.ledger.running_studies import other_studies, registered
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan import provenance
from dreamproof.study.plan.commands import check_commands, check_training
from dreamproof.study.plan.gap import declaration_changes
from dreamproof.study.plan.importing.found import ImportResult
from dreamproof.study.plan.importing.results import write_results
from dreamproof.study.plan.on_disk import cell_fault, disk_faults, lacks_evaluation, proof_gone
from dreamproof.study.plan.open_study import (
    OpenStudy,
    check_links,
    check_place,
    refuse_export,
    relative_study_file,
    with_added_seeds,
)
from dreamproof.study.plan.packs import pack_groups
from dreamproof.study.preflight.local import Preflight, check_arms, fingerprint
from dreamproof.study.process.processes import ProcessIdentity
from dreamproof.study.supervisor import Ending, Supervisor, SupervisorOptions
from dreamproof.study.views.manifests import ManifestWriter
from dreamproof.version import __version__


@contextmanager
def open_ledger(opened: OpenStudy, from_lost_host: bool = False) -> Iterator[Ledger]:
    """Holds the lease and the open ledger; the state of `opened` is the ledger's own while it is open."""
    refuse_export(opened)
    lease = Lease(opened.folder.lease)
    began = time.time()
    lease.take(from_lost_host)
    _drop_old_stop_request(opened, began)
    try:
        with collector_paused():
            ledger = Ledger(opened.folder.ledger)
            state = StudyState.replay(ledger.rows)
        if state.study is None and opened.state.attempts:
            ledger.close()
            raise BadInput(
                f"{opened.folder.ledger}: was read a moment ago and holds nothing now",
                f"dreamproof verify {quoted(opened.folder.root)}",
            )
        ledger.rows.clear()
        opened.state = state
        if state.supervisor is not None and state.supervisor.ended is None:
            with unless_full():
                record(opened, ledger, SupervisorLost())
        try:
            with registered(opened.folder.root, lambda: bool(opened.state.open_attempts)):
                yield ledger
        finally:
            ledger.close()
    finally:
        lease.release(attempts_run_on=bool(opened.state.open_attempts))


def stop_asked_by(opened: OpenStudy) -> str | None:
    """Who requested a stop of the supervisor; None without a request."""
    request = read_json(opened.folder.stop_request)
    return str(request.get("by", "somebody")) if isinstance(request, dict) else None


def _drop_old_stop_request(opened: OpenStudy, before: float) -> None:
    """Forgets what an earlier supervisor was asked; a request made since is meant for this one."""
    request = read_json(opened.folder.stop_request)
    asked = request.get("unix_seconds") if isinstance(request, dict) else None
    if not isinstance(asked, int | float) or asked < before:
        opened.folder.stop_request.unlink(missing_ok=True)


def record(opened: OpenStudy, ledger: Ledger, *events: Event) -> None:
    """Writes events and takes them into the state."""
    if events:
        for row in ledger.append_all(list(events)):
            opened.state.apply(row)


def record_import(opened: OpenStudy, ledger: Ledger, result: ImportResult) -> None:
    """Writes what an import found: values to `imported/results.csv`, everything else as events."""
    if result.reported:
        write_results(opened.folder, result.reported)
    record(opened, ledger, *result.events)


def declare(opened: OpenStudy, ledger: Ledger, accept_changes: bool = False) -> list[str]:
    """Puts the declaration on record before anything is started; returns what changed since the last one."""
    state, study = opened.state, opened.study
    declaration = study.model_dump(mode="json")
    study_file = relative_study_file(opened.folder, opened.file)
    if state.study is None or state.declaration_hash is None:
        record(opened, ledger, StudyDeclared(study.hash(), declaration, study_file))
        _copy_study_file(opened)
        return []
    changes = declaration_changes(state.study, study)
    if state.understood_hash != study.hash():
        provenance.refuse_new_meaning(opened, accept_changes)
        old = state.declaration_hash
        record(opened, ledger, DeclarationChanged(old, study.hash(), changes, declaration, study_file))
        _copy_study_file(opened)
    elif _kept_study(opened) != study.hash():
        _copy_study_file(opened)
    state.redeclare(study)
    return changes


def _kept_study(opened: OpenStudy) -> str | None:
    """The hash of the study file in the study folder; None if it is gone or cannot be read."""
    try:
        return read_study(opened.folder.declaration).hash()
    except DreamproofError:
        return None


def _copy_study_file(opened: OpenStudy) -> None:
    """Keeps the study file's own text, comments included, in the study folder; not a text that was edited meanwhile."""
    if opened.file == opened.folder.declaration or not opened.file.exists():
        return
    try:
        text, now = opened.file.read_bytes(), with_added_seeds(read_study(opened.file), opened.state)
    except DreamproofError:
        return
    if now.hash() == opened.study.hash():
        write_bytes(opened.folder.declaration, text)


def missing_proofs(opened: OpenStudy) -> list[tuple[Cell, Unreadable]]:
    """Proven cells whose checkpoint or its record is no longer on disk, with the first thing that is wrong."""
    lost = [cell for cell in opened.state.cells if proof_gone(opened, cell) is not None]
    found = [(cell, cell_fault(opened, cell)) for cell in lost]
    return [(cell, fault) for cell, fault in found if fault is not None]


def settle_lost_proofs(opened: OpenStudy, ledger: Ledger, retrain: bool) -> list[Event]:
    """Records what the disk no longer holds; the other cells are not concerned.

    An evaluation that is gone is made again. A proven cell with an unreadable file, or without its proof, is
    quarantined; with `retrain` one without its proof is trained again, unless something is in the way. Changed weights
    are no proof: they are read where an evaluation is missing, with `retrain` everywhere.
    """
    to_evaluate = {cell for cell, _ in disk_faults(opened).evals}
    to_evaluate |= {cell for cell in opened.state.cells if lacks_evaluation(opened, cell)}
    changed = changed_weights(opened, list(opened.state.cells if retrain else sorted(to_evaluate)))
    settled: list[Event] = [*changed]
    if retrain:
        reasons = {event.cell: f"{event.file} {event.reason}" for event in changed}
        gone = [(cell, fault) for cell, fault in missing_proofs(opened) if fault.fault is not FaultKind.BLOCKED]
        reasons |= {str(cell): put_aside(fault) for cell, fault in gone if str(cell) not in reasons}
        settled = [ProofLost(cell, reason) for cell, reason in reasons.items()]
    record(opened, ledger, *settled)
    events = take_in_losses(opened)
    record(opened, ledger, *events)
    return settled + events


def require_proofs(opened: OpenStudy) -> None:
    """Raises BrokenEvidence if proofs are gone from disk: such a study is not complete."""
    lost = missing_proofs(opened)
    if lost:
        cell, fault = lost[0]
        retrain = f"restore the files, or dreamproof run {quoted(opened.named)} --retrain-lost"
        repair = f"repair or remove it, then dreamproof run {quoted(opened.named)}"
        raise BrokenEvidence(
            f"the proof of {len(lost)} trained cell(s) is gone from disk, first {cell}: {fault.path} {fault.reason}",
            repair if fault.fault is FaultKind.BLOCKED else retrain,
        )


def reopen(opened: OpenStudy, ledger: Ledger, reason: str) -> int:
    """Lets every stopped cell be tried again; returns how many there were."""
    stopped = [
        cell for cell in opened.state.cells.values() if cell.stopped is not None or cell.eval_stopped is not None
    ]
    record(opened, ledger, *(CellReopened(str(cell.cell), reason) for cell in stopped))
    return len(stopped)


def supervisor_started() -> SupervisorStarted:
    """This process as an event."""
    own = ProcessIdentity.of(os.getpid())
    assert own is not None
    commit = code_commit()
    known = (None, None) if commit is None else (commit.name, bool(commit.edits))
    return SupervisorStarted(own.boot_id, own.process_id, own.start_ticks, own.host, __version__, *known)


def make_backend(opened: OpenStudy, from_lost_host: bool = False) -> Backend:
    """The backend that the study names."""
    slurm = opened.study.backend.slurm
    if slurm is None:
        return LocalBackend(from_lost_host=from_lost_host)
    commands = SlurmCommands()
    if not commands.available:
        raise BadInput(
            f"{opened.file}: backend kind 'slurm' needs sbatch, which is not on this machine",
            "run it on a login node of the cluster, or use 'backend: {kind: local}'",
        )
    return SlurmBackend(slurm, opened.folder, opened.study.name, commands)


@contextmanager
def supervising(opened: OpenStudy, ledger: Ledger, options: SupervisorOptions) -> Iterator[Supervisor]:
    """A supervisor whose start and end stand in the ledger."""
    backend = make_backend(opened, options.from_lost_host)
    supervisor = Supervisor(opened, ledger, backend, options)
    record(opened, ledger, supervisor_started())
    reason = "an error"
    try:
        yield supervisor
        reason = str(supervisor.ending() or "its work is done")
    finally:
        if supervisor.leave:
            reason = Ending.LEFT.value
        with suppress(OSError):
            record(opened, ledger, *supervisor.notifier.finish(), SupervisorEnded(reason))
        backend.close()


def prepare_run(opened: OpenStudy, ledger: Ledger, accept_changes: bool, accept_code: bool = False) -> list[str]:
    """Everything that can be refused before a supervisor starts; returns what a person should know of changes."""
    check_place(opened)
    check_links(opened)
    check_commands(opened.study, opened.base_folder)
    pack_groups(opened.study)  # refuses settings that our own trainers do not know
    if _is_training_left(opened):
        check_training(opened.study, opened.base_folder)
    _check_writable(opened)
    messages = [f"declaration changed: {change}" for change in declare(opened, ledger, accept_changes)]
    events, more = provenance.settle(opened, provenance.Accepted(accept_changes, accept_code))
    record(opened, ledger, *events)
    return messages + more + _accepted_lines(events)


def add_seeds(opened: OpenStudy, ledger: Ledger, seeds: list[int], accepted: provenance.Accepted) -> list[str]:
    """Declares other seeds for a study in which nothing is missing; a refusal comes before anything is declared."""
    more = replace(opened, study=opened.study.model_copy(update={"seeds": seeds}))
    check_training(more.study, more.base_folder)
    try:
        events, messages = provenance.settle_identity(more, accepted)
    except BadInput as refusal:
        raise BadInput(f"no seeds added: {refusal.seen}", f"{refusal.hint} --until-decided") from None
    opened.study, opened.identity = more.study, more.identity
    declare(opened, ledger)
    record(opened, ledger, *events)
    return messages + _accepted_lines(events)


def _accepted_lines(events: list[Event]) -> list[str]:
    accepted = [event for event in events if isinstance(event, ChangesAccepted)]
    return [f"accepted: {change}" for event in accepted for change in event.changes]


def _is_training_left(opened: OpenStudy) -> bool:
    """Whether a declared cell, perhaps not on record yet, is not proven."""
    proven = {cell for cell, known in opened.state.cells.items() if opened.state.trained(known)}
    return any(Cell(arm, seed) not in proven for arm in opened.study.arms for seed in opened.study.seeds)


def _check_writable(opened: OpenStudy) -> None:
    for folder in (opened.folder.runs, opened.folder.attempts, opened.folder.manifests):
        probe = folder / ".writable"
        try:
            write_text(probe, "", durable=False)
            probe.unlink()
        except OSError as error:
            raise BadInput(
                f"{folder}: cannot be written: {error.strerror}", f"ls -ld {quoted(folder)}; df -h {quoted(folder)}"
            ) from None


@dataclass
class ReportOutcome:
    """What was written at the end, and what could not be."""

    files: list[Path] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    answer: str | None = None
    """The answer to the declared question, where somebody is notified of it."""

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Keeps an error as a failure of `what`."""
        try:
            yield
        except Exception as error:  # noqa: BLE001, a report that fails in any way must not keep the machine on
            self.failures.append(f"{what}: {str(error) or type(error).__name__}")


Show = Callable[[str], None]
WriteReports = Callable[[OpenStudy], ReportOutcome]


def finish(
    opened: OpenStudy,
    supervisor: Supervisor,
    ending: Ending,
    show: Show,
    write_reports: WriteReports | None,
    shutdown_again: bool = False,
) -> None:
    """Reports, then the shutdown that the study may ask for: once after the newest work."""
    supervisor.finishing = True
    if ending is Ending.LEFT:
        return
    if write_reports is not None and any(map(_has_history, opened.state.cells.values())):
        outcome = write_reports(opened)
        written = [opened.folder.relative(path) for path in outcome.files]
        supervisor.record(ReportWritten(written, outcome.failures or None, outcome.answer))
        for line in (f"reports: {opened.folder.reports}", *(f"not written: {one}" for one in outcome.failures)):
            show(line)
    supervisor.record(*supervisor.notifier.finish())
    reason = shutdown_reason(opened, ending)
    if reason is None:
        return
    if opened.state.shutdown_done and not shutdown_again:
        show("no shutdown: it was done after the last attempt; run --shutdown-again repeats it")
        return
    idle = ending in (Ending.NOTHING_CAN_RUN, Ending.BREAKER)
    way = Shutdown(opened, supervisor.record, show, others=other_studies, is_asked_to_end=lambda: supervisor.leave)
    way.carry_out(reason, idle)


def _has_history(cell: CellState) -> bool:
    """Whether there is anything to report of a cell."""
    return cell.proof is not None or bool(cell.attempts) or bool(cell.outside)


def write_manifests(opened: OpenStudy) -> None:
    """Rewrites both status tables."""
    ManifestWriter(opened).write(opened.state, force=True)


def preflight(opened: OpenStudy, ledger: Ledger, show: Callable[[str], None], again: bool = False) -> Preflight | None:
    """Starts every arm once for real, unless an unchanged preflight is on record; a failure stops the launch."""
    if not again and opened.state.preflight_fingerprint == fingerprint(opened):
        return None
    try:
        result = check_arms(opened, None, show, lambda: stop_asked_by(opened))
    except Stopped as stopped:
        record(opened, ledger, StopRequested(stopped.by))
        raise
    if result.passed:
        record(opened, ledger, PreflightPassed(result.fingerprint))
        return result
    record(opened, ledger, PreflightFailed(result.fingerprint, result.faults[0]))
    raise result.error(opened.file)
