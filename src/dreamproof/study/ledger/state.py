"""The state of a study as a replay of its ledger: one handler per event. Pure: touches no disk and no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dreamproof.base.errors import BrokenEvidence
from dreamproof.runs.layout import StudyFolder
from dreamproof.runs.reader import EvalProof, TrainProof
from dreamproof.settings.study import Study
from dreamproof.study.ledger.cells import NO_END, AttemptState, CellState, ClockJump, SupervisorSpan
from dreamproof.study.ledger.clock import BOOT_DIGITS, moment_of
from dreamproof.study.ledger.event_rows import row_fault
from dreamproof.study.ledger.events import Row
from dreamproof.study.ledger.facts import StudyFacts

NOT_OF_THE_SUPERVISOR = ("supervisor_started", "supervisor_lost", "clock_jumped")
"""Events that do not show that the supervisor before them was still there."""
OUTSIDE_KEYS = (
    "source", "agent_steps", "of_agent_steps", "wall_seconds", "job", "final", "peak", "cause", "evidence", "aborted",
)  # fmt: skip


class StudyState(StudyFacts):
    """The facts after the events applied so far."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._appliers: dict[str, Callable[[Row], None]] = {
            name.removeprefix("_on_"): getattr(self, name) for name in dir(self) if name.startswith("_on_")
        }

    @classmethod
    def replay(cls, rows: Iterable[Row]) -> StudyState:
        """The state after these events."""
        state = cls()
        for row in rows:
            state.apply(row)
        return state

    def apply(self, row: Row) -> None:
        """Takes one more event in; names it does not know change nothing."""
        fault = row_fault(row)
        if fault is None:
            fault = self._take_in(row)
        if fault is not None:
            raise BrokenEvidence(
                f"event {row.get('n')} of the ledger ({str(row.get('event'))[:40]}) is not valid: {fault}",
                "dreamproof verify STUDY; then restore the ledger from a copy",
            )

    def _take_in(self, row: Row) -> str | None:
        """Applies an event; why it does not fit, if it does not."""
        try:
            self._take_time(row)
            applier = self._appliers.get(row["event"])
            if applier is not None:
                applier(row)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            return f"{type(error).__name__}: {error}".splitlines()[0][:200]
        return None

    def _take_time(self, row: Row) -> None:
        now = row["t"]
        self.event_count += 1
        if self.first_event is None:
            self.first_event = now
        self.last_event = now
        boot = row.get("boot")
        self.last_moment = moment_of(row, self._boot(row) if boot is None else boot)
        self.timeline.take(self.last_moment)
        if self.supervisors and self.supervisors[-1].ended is None and row["event"] not in NOT_OF_THE_SUPERVISOR:
            self.supervisors[-1].last_event, self.supervisors[-1].last_seen = now, self.last_moment

    def _boot(self, row: Row) -> str:
        """The boot of a row without one: its supervisor's."""
        if row["event"] == "supervisor_started":
            return str(row["boot_id"])[:BOOT_DIGITS]
        open_one = self.supervisors and self.supervisors[-1].ended is None
        return self.supervisors[-1].boot if open_one else ""

    def _on_study_declared(self, row: Row) -> None:
        self.declaration_hash = row["declaration_hash"]
        self._take_declaration(row)

    def _on_declaration_changed(self, row: Row) -> None:
        self.declaration_hash = row["new_hash"]
        self._take_declaration(row)

    def _take_declaration(self, row: Row) -> None:
        study = Study.model_validate(row["declaration"])
        self.study_file = row.get("beside", self.study_file)
        self.understood_hash = study.hash()
        self.redeclare(study)

    def _on_settings_resolved(self, row: Row) -> None:
        self.resolved[row["arm"]] = {key: row[key] for key in ("arm", "resolved_hash", "resolved")}

    def _on_code_recorded(self, row: Row) -> None:
        self.code = row["code_hash"]
        # Code that comes back is what it was: it must not follow what once followed it.
        self.codes.setdefault(row["code_hash"], {key: row.get(key) for key in ("code_hash", "facts", "same_as")})

    def _on_changes_accepted(self, row: Row) -> None:
        self.accepted.append({key: row[key] for key in ("t", "what", "changes", "flag")})

    def _on_supervisor_lost(self, row: Row) -> None:
        if self.supervisors and self.supervisors[-1].ended is None:
            self.supervisors[-1].ended = self.supervisors[-1].last_event
            self.supervisors[-1].reason = NO_END

    def _on_supervisor_started(self, row: Row) -> None:
        self._on_supervisor_lost(row)
        identity = {key: row.get(key) for key in ("boot_id", "process_id", "start_ticks", "host", "version", "commit")}
        now = self.last_moment or moment_of(row)
        span = SupervisorSpan(row["t"], identity, row["t"], began=now, last_seen=now, slots=self._declared_slots())
        self.supervisors.append(span)
        self._record_restart(now.boot)
        self.quick_failures = 0
        self.breaker = self.budget_reached = self.stop_requested = None

    def _declared_slots(self) -> int:
        return 1 if self.study is None else self.study.backend.slots

    def _on_supervisor_ended(self, row: Row) -> None:
        if self.supervisors:
            self.supervisors[-1].ended = row["t"]
            self.supervisors[-1].reason = row["reason"]

    def _on_clock_jumped(self, row: Row) -> None:
        self.clock_jumps.append(ClockJump(row["t"], row["kind"], row["seconds"]))

    def _on_preflight_passed(self, row: Row) -> None:
        self.preflight_fingerprint, self.preflight_failure = row["fingerprint"], None

    def _on_preflight_failed(self, row: Row) -> None:
        self.preflight_fingerprint, self.preflight_failure = None, row["reason"]

    def _on_attempt_started(self, row: Row) -> None:
        name, work = row["attempt"], row["work"]
        if not StudyFolder.is_attempt_name(name):
            raise BrokenEvidence(
                f"line {row.get('n')} of the ledger starts an attempt named {name!r}, which is not a plain name",
                "dreamproof verify STUDY; do not trust this ledger",
            )
        attempt = AttemptState(
            name,
            work,
            row["cells"],
            row["conditions"],
            row["command"],
            row["t"],
            row["from_agent_steps"],
            row.get("pack_cells", 1),
            row.get("micro_batches", 1),
            resolved=row.get("resolved") or {},
            code=row.get("code"),
        )
        attempt.began = self.last_moment or moment_of(row)
        attempt.slots = self.supervisors[-1].slots if self.supervisors else self._declared_slots()
        self.shutdown_boot, self.shutdown_done, self.shutdown_failed = None, False, False
        self.attempts[name] = self.open_attempts[name] = attempt
        for text in attempt.cells:
            cell = self._known.get(text) or self.known_cell(text)
            if work == "train":
                cell.running = name
                cell.source = cell.source_adapter = cell.foreign = None
                cell.attempts.append(name)
                cell.resolved_hash, cell.code_hash = attempt.resolved.get(cell.cell.arm), attempt.code
                cell.kept_agent_steps = attempt.from_agent_steps.get(text, cell.kept_agent_steps)
            else:
                cell.eval_running = name
                for condition in attempt.conditions:
                    self.known_eval(text, condition).attempts.append(name)

    def _on_attempt_placed(self, row: Row) -> None:
        attempt = self.attempts.get(row["attempt"])
        if attempt is not None and attempt.open:
            attempt.placed, attempt.job, attempt.nodes = row["t"], row["job"], row["nodes"]
            attempt.placed_at = self.last_moment
            attempt.queue_seconds = row.get("queue_seconds", 0.0)

    def _on_attempt_ended(self, row: Row) -> None:
        attempt = self.attempts.get(row["attempt"])
        if attempt is None or attempt.ended is not None:
            return
        self.open_attempts.pop(attempt.name, None)
        attempt.ended, attempt.cause = row["t"], row["cause"]
        attempt.ended_at = self.last_moment or moment_of(row)
        attempt.transient = row.get("transient", False)
        attempt.evidence, attempt.wall_seconds = row["evidence"], row["wall_seconds"]
        attempt.reached_agent_steps = row["reached_agent_steps"]
        attempt.kept_agent_steps = row["kept_agent_steps"]
        attempt.exit = row.get("exit")
        attempt.cell_causes = row.get("cell_causes", {})
        attempt.kept_wall_seconds = row.get("kept_wall_seconds", {})
        attempt.memory_trend = row.get("memory_trend")
        attempt.cancelled_outside = row.get("cancelled_outside", False)
        self._record_placement(attempt, row.get("placement", {}))
        for text in attempt.cells:
            self._count_end(attempt, self.known_cell(text), text)
        self._add_to_totals(attempt, attempt.wall_seconds or 0.0)
        self._count_quick_failure(attempt)

    def _record_placement(self, attempt: AttemptState, placement: dict[str, Any]) -> None:
        attempt.placement = placement
        attempt.job = placement.get("job", attempt.job)
        attempt.nodes = placement.get("nodes") or attempt.nodes
        attempt.queue_seconds = placement.get("queue_seconds") or attempt.queue_seconds

    def _add_to_totals(self, attempt: AttemptState, seconds: float) -> None:
        totals = self.totals
        totals.busy_ms += max(0, round(seconds * 1000)) if attempt.cells else 0
        totals.add_span((attempt.began.boot, attempt.slots), *self.attempt_span(attempt, attempt.began))
        if attempt.work == "train":
            for text in attempt.cells if seconds else ():
                gained = attempt.reached_agent_steps.get(text, 0) - attempt.first_agent_steps(text)
                totals.add_training(text.rpartition("/")[0], gained, seconds / len(attempt.cells))
        elif attempt.cause == "completed":
            totals.evaluations += len(attempt.cells) * len(attempt.conditions)
            totals.evaluation_seconds += seconds

    def _count_end(self, attempt: AttemptState, cell: CellState, text: str) -> None:
        cause = attempt.cause_for(text)
        if cause == "stalled":
            cell.stalls[attempt.work] = cell.stalls.get(attempt.work, 0) + 1
            if attempt.killed_for == "silent":
                cell.killed_for_silence[attempt.work] = attempt.name
        transient = attempt.transient and text not in attempt.cell_causes
        died = cause not in ("completed", "stopped_by_user")
        if attempt.work == "evaluate":
            # A requeued job may be recorded as running before the end of its first run is.
            cell.eval_running = None if cell.eval_running == attempt.name else cell.eval_running
            cell.eval_last_cause = cause
            if died:
                cell.eval_deaths[cause] = cell.eval_deaths.get(cause, 0) + 1
                cell.eval_fruitless += transient
            return
        cell.running = None if cell.running == attempt.name else cell.running
        cell.last_cause, cell.last_evidence = cause, attempt.evidence
        cell.wall_seconds += (attempt.wall_seconds or 0.0) / max(1, len(attempt.cells))
        kept = attempt.kept_agent_steps.get(text, cell.kept_agent_steps)
        cell.fruitless = 0 if kept > attempt.from_agent_steps.get(text, 0) else cell.fruitless
        cell.kept_agent_steps = kept
        cell.reached_agent_steps = max(kept, attempt.reached_agent_steps.get(text, 0))
        if died:
            cell.deaths[cause] = cell.deaths.get(cause, 0) + 1
            cell.fruitless += transient

    def _count_quick_failure(self, attempt: AttemptState) -> None:
        if self.study is None or attempt.cause == "stopped_by_user":
            return
        quick = (attempt.wall_seconds or 0.0) < self.study.retries.breaker_quick_seconds
        failed = attempt.cause != "completed" and not attempt.gained
        self.quick_failures = self.quick_failures + 1 if quick and failed else 0

    def _on_liveness_changed(self, row: Row) -> None:
        attempt = self.attempts.get(row["attempt"])
        if attempt is not None:
            attempt.liveness, attempt.liveness_reason = row["state"], row["reason"]
            attempt.stacks = row.get("stacks", attempt.stacks)

    def _on_false_alarm(self, row: Row) -> None:
        self.false_alarms[row["attempt"]] = row["reason"]
        killed = self.attempts.get(row["attempt"])
        if killed is not None:
            for text in killed.cells:
                self.known_cell(text).killed_for_silence.pop(killed.work, None)

    def _on_cell_restarted(self, row: Row) -> None:
        attempt = self.attempts.get(row["attempt"])
        if attempt is not None:
            attempt.restarted[row["cell"]] = row["agent_steps"]

    def _on_train_proven(self, row: Row) -> None:
        cell = self._known.get(row["cell"]) or self.known_cell(row["cell"])
        found = (row["agent_steps"], row["gradient_steps"], row["parameter_hash"], row["checkpoint"])
        cell.proof = TrainProof(*found, bool(row.get("gradient_steps_at_least")), row.get("proof_bytes"))
        cell.kept_agent_steps = cell.reached_agent_steps = row["agent_steps"]
        cell.stopped = cell.stopped_cause = cell.unproven = cell.frozen = None

    def _on_eval_proven(self, row: Row) -> None:
        known = self.known_eval(row["cell"], row["condition"])
        file = (row.get("file_bytes"), row.get("file_hash"))
        known.proof, known.unproven = EvalProof(row["episodes"], row["parameter_hash"], *file), None
        attempt = self.attempts.get(row.get("attempt") or "")
        if attempt is not None and attempt.cause not in (None, "completed"):
            self._add_partial_evaluation(attempt)

    def _add_partial_evaluation(self, attempt: AttemptState) -> None:
        """Adds one proof of an evaluation that did not finish; its time counts with the first."""
        proven = sum(self.proven_by(attempt, text) for text in attempt.cells)
        self.totals.evaluations += 1
        self.totals.evaluation_seconds += (attempt.wall_seconds or 0.0) if proven == 1 else 0.0

    def _on_proof_lost(self, row: Row) -> None:
        if row.get("condition") is not None:
            self.known_eval(row["cell"], row["condition"]).proof = None
            return
        cell = self.known_cell(row["cell"])
        cell.proof, cell.source, cell.source_adapter, cell.eval_stopped = None, None, None, None
        cell.kept_agent_steps = cell.reached_agent_steps = 0

    def _on_remedy(self, row: Row) -> None:
        self.remedies.append(row)
        if row["action"] == "stop_stalled" and row.get("attempt") in self.attempts:
            self.attempts[row["attempt"]].killed_for = row.get("evidence")
        for text in row["cells"]:
            cell = self.known_cell(text)
            cell.pack_limit = row.get("pack_cells", cell.pack_limit)
            cell.micro_batches = row.get("micro_batches", cell.micro_batches)
            cell.memory_bytes = row.get("memory_bytes", cell.memory_bytes)
            if row["action"] in ("halve_pack", "halve_micro_batch"):
                cell.deaths.pop("device_oom", None)
            if row["action"] == "more_memory":
                cell.deaths.pop("host_oom", None)
            if row["action"] == "resume_frozen":
                cell.frozen = None

    def _on_cell_stopped(self, row: Row) -> None:
        cell = self.known_cell(row["cell"])
        if row.get("work", "train") == "train":
            cell.stopped, cell.stopped_cause = row["reason"], row["cause"]
        else:
            cell.eval_stopped = row["reason"]

    def _on_cell_reopened(self, row: Row) -> None:
        cell = self.known_cell(row["cell"])
        cell.stopped = cell.stopped_cause = cell.eval_stopped = None
        cell.fruitless = cell.eval_fruitless = 0
        cell.deaths, cell.eval_deaths = {}, {}

    def _on_cell_quarantined(self, row: Row) -> None:
        self.known_cell(row["cell"]).quarantined = f"{row['file']} {row['reason']}"

    def _on_cell_released(self, row: Row) -> None:
        self.known_cell(row["cell"]).quarantined = None

    def _on_replica_frozen(self, row: Row) -> None:
        self.known_cell(row["cell"]).frozen = row["reason"]

    def _on_imported(self, row: Row) -> None:
        cell = self.known_cell(row["cell"])
        cell.outside.append({key: row.get(key) for key in OUTSIDE_KEYS})
        if row.get("aborted"):
            return
        cell.source, cell.source_adapter = row["source"], row.get("adapter")
        cell.reached_agent_steps = max(cell.reached_agent_steps, row.get("agent_steps") or 0)
        cell.wall_seconds += row.get("wall_seconds") or 0.0
        if row.get("cause") is not None:
            cell.last_cause, cell.last_evidence = row["cause"], row.get("evidence") or []

    def _on_values_imported(self, row: Row) -> None:
        self.imported_values[row["source"]] = row["values"]
        for text in row["eval_cells"]:
            cell, _, condition = text.rpartition(" ")
            self.known_eval(cell, condition).reported = row["source"]

    def _on_foreign_run_found(self, row: Row) -> None:
        cell = self.known_cell(row["cell"])
        keys = ("evidence", "process", "started", "output")
        cell.foreign = {key: row.get(key) for key in keys} | {"found": row["t"], "liveness": "running", "reason": ""}
        cell.source, cell.source_adapter = row["source"], row.get("adapter")
        cell.reached_agent_steps = max(cell.reached_agent_steps, row.get("agent_steps") or 0)
        cell.unproven = None

    def _on_foreign_run_changed(self, row: Row) -> None:
        cell = self.known_cell(row["cell"])
        if cell.foreign is not None:
            cell.foreign |= {"liveness": row["state"], "reason": row["reason"]}

    def _on_foreign_run_ended(self, row: Row) -> None:
        self.known_cell(row["cell"]).foreign = None

    def _on_unproven(self, row: Row) -> None:
        if row.get("condition") is not None:
            self.known_eval(row["cell"], row["condition"]).unproven = row["reason"]
        else:
            cell = self.known_cell(row["cell"])
            cell.unproven, cell.source = row["reason"], cell.source or row["source"]

    def _on_ledger_shortened(self, row: Row) -> None:
        lost = row["recorded"] - row["found"]
        self.shortened.append(f"event {row['n']}: {lost} events at the end of the ledger were lost before it")

    def _on_breaker_tripped(self, row: Row) -> None:
        self.breaker = row["reason"]

    def _on_budget_reached(self, row: Row) -> None:
        self.budget_reached = row["spent"]

    def _on_budget_warned(self, row: Row) -> None:
        self.budget_warned = row["budget"]

    def _on_notified(self, row: Row) -> None:
        if not row["sent"]:
            self.notify_failures = [*self.notify_failures, f"{row['way']} ({row['on']}): {row['reason']}"][-3:]

    def _on_stop_requested(self, row: Row) -> None:
        self.stop_requested = row["by"]

    def _on_shutdown_planned(self, row: Row) -> None:
        self.shutdown = f"planned: {row['reason']}"

    def _on_shutdown_cancelled(self, row: Row) -> None:
        self.shutdown = f"cancelled by {row['by']}"

    def _on_shutdown_refused(self, row: Row) -> None:
        self.shutdown = f"refused: {row['reason']}"

    def _on_shutdown_started(self, row: Row) -> None:
        self.shutdown = f"started: {' '.join(row['command'])}"
        self.shutdown_boot = self.last_moment.boot if self.last_moment is not None else ""

    def _on_shutdown_done(self, row: Row) -> None:
        unseen = row.get("evidence") == []
        self.shutdown = (
            "done: the command returned 0, but there was no sign that the machine stopped" if unseen else "done"
        )
        self.shutdown_done, self.shutdown_failed = True, False

    def _on_shutdown_failed(self, row: Row) -> None:
        self.shutdown = f"FAILED, this machine stayed on: {'; '.join(row['evidence'])}"
        self.shutdown_boot, self.shutdown_failed = None, True

    def _record_restart(self, boot: str) -> None:
        """A machine that was started again since did stop."""
        if self.shutdown_boot is not None and not self.shutdown_done and self.shutdown_boot != boot:
            self.shutdown, self.shutdown_done = "done: the machine was restarted since", True

    def _on_report_written(self, row: Row) -> None:
        self.reports, self.report_failures = row["files"], row.get("failures") or []
