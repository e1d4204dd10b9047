"""Settles an attempt that is over: gathers evidence, proves what can be proven, names the cause."""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dreamproof.base.files import read_json, read_tail
from dreamproof.base.lines import read_rows
from dreamproof.runs.layout import Cell
from dreamproof.runs.reader import (
    EvalProof,
    NotFinite,
    NotSaved,
    TrainProof,
    missing_metric,
    read_frozen,
    read_heartbeat,
)
from dreamproof.runs.records import FrozenRecord
from dreamproof.settings.study import Study
from dreamproof.study.adapters.folders import modified
from dreamproof.study.attempts.outputs import kept_agent_steps, prove_by_earlier_lines
from dreamproof.study.backends.api import Sighting
from dreamproof.study.diagnosis.diagnose import AttemptEvidence, Cause, Diagnosis, diagnose
from dreamproof.study.diagnosis.memory_trend import read_trend
from dreamproof.study.ledger.cells import AttemptState
from dreamproof.study.ledger.clock import Life, read_moment
from dreamproof.study.ledger.events import AttemptEnded, EvalProven, Event, ReplicaFrozen, TrainProven
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process.machine import disk_free_bytes
from dreamproof.study.process.shim import LONGEST_SAMPLE_GAP_SECONDS

OUTPUT_TAIL_BYTES = 65536


@dataclass(frozen=True)
class Findings:
    """What the disk shows about the cells of an attempt that is over."""

    proofs: list[Event]
    unproven: dict[str, str]
    """By cell: why it is not proven."""
    frozen: dict[str, FrozenRecord]

    @property
    def all_frozen(self) -> bool:
        """Whether every cell that is not proven stopped being finite."""
        return bool(self.frozen) and self.frozen.keys() == self.unproven.keys()


def settle(opened: OpenStudy, attempt: AttemptState, sighting: Sighting, others_killed: int = 0) -> list[Event]:
    """The end of an attempt as events: how it ended, and what it proved."""
    proofs, unproven = prove_cells(opened, attempt)
    if sighting.successor is not None:  # whatever is proven by now is the work of the attempt that continues this one
        proofs, unproven = [], dict.fromkeys(attempt.cells, f"continued by {sighting.successor}")
    findings = Findings(proofs, unproven, _frozen(opened, attempt, unproven))
    diagnosis = _diagnose(opened, attempt, sighting, findings, others_killed)
    trend = read_trend(opened.folder.attempt(attempt.name).memory) if diagnosis.cause is Cause.HOST_OOM else None
    if trend is not None:
        diagnosis.quotes.append(trend.text)
    wall_seconds = round(_wall_seconds(opened, attempt, sighting), 3)
    odd = {} if findings.all_frozen else dict.fromkeys(findings.frozen, Cause.NAN.value)
    ended = AttemptEnded(
        attempt.name,
        diagnosis.cause.value,
        diagnosis.quotes,
        wall_seconds,
        {text: _reached(opened, attempt, text) for text in attempt.cells},
        {text: _kept(opened, attempt, text) for text in attempt.cells},
        diagnosis.transient,
        sighting.exit.model_dump(exclude_none=True, exclude_defaults=True) if sighting.exit is not None else None,
        odd or None,
        _kept_seconds(opened, attempt, sighting, wall_seconds) or None,
        placement=_placement(sighting),
        memory_trend=trend.kind if trend is not None else None,
        cancelled_outside=_cancelled_outside(opened, attempt, sighting, diagnosis) or None,
    )
    deaths = [
        ReplicaFrozen(text, record.agent_steps, record.gradient_steps, record.reason, attempt.name)
        for text, record in findings.frozen.items()
    ]
    return [ended, *proofs, *deaths]


def _placement(sighting: Sighting) -> dict[str, Any] | None:
    if sighting.placement is None:
        return None
    return {key: value for key, value in asdict(sighting.placement).items() if value not in (None, "", 0)}


def _cancelled_outside(opened: OpenStudy, attempt: AttemptState, sighting: Sighting, diagnosis: Diagnosis) -> bool:
    """Whether the scheduler reports it as cancelled without a stop request from here."""
    cancelled = sighting.placement is not None and sighting.placement.state == "CANCELLED"
    asked = os.path.exists(opened.folder.attempt(attempt.name).stop)
    return cancelled and not asked and diagnosis.cause is Cause.STOPPED_BY_USER


def _diagnose(
    opened: OpenStudy, attempt: AttemptState, sighting: Sighting, findings: Findings, others_killed: int
) -> Diagnosis:
    folder = opened.folder.attempt(attempt.name)
    output = read_tail(folder.output, OUTPUT_TAIL_BYTES)
    if sighting.facts.get("scheduler_output"):
        output = f"{output.rstrip()}\n{sighting.facts['scheduler_output']}"
    has_output = output.strip() or "slurm" in sighting.facts
    if sighting.never_began and findings.unproven and not has_output:
        reason = "the shim did not start, so nothing was run (the supervisor ended in between)"
        return Diagnosis(Cause.VANISHED, [reason], True)
    run = opened.run(Cell.parse(attempt.cells[0]))
    stop = read_json(folder.stop)
    return diagnose(
        AttemptEvidence(
            exit=sighting.exit,
            output_tail=output,
            proven=not findings.unproven,
            unproven_reason=next((f"{text}: {reason}" for text, reason in findings.unproven.items()), ""),
            not_saved=all(isinstance(reason, NotSaved) for reason in findings.unproven.values()),
            not_finite=all(isinstance(reason, NotFinite) for reason in findings.unproven.values()),
            asked_to_stop=str(stop.get("reason")) if isinstance(stop, dict) else None,
            machine_restarted=sighting.machine_restarted,
            heartbeat=read_heartbeat(run) if attempt.work == "train" else None,
            frozen=next(iter(findings.frozen.values())) if findings.all_frozen else None,
            disk_free_bytes=disk_free_bytes(run.root),
            memory_limit_bytes=opened.study.backend.memory_limit_bytes,
            others_killed_for_memory=others_killed,
            slurm=sighting.facts.get("slurm"),
        )
    )


def other_memory_kills(state: StudyState, study: Study, sighting: Sighting) -> int:
    """Kills in a shared memory counter that are already recorded as the end of another attempt."""
    if sighting.exit is None or study.backend.counts_memory_per_attempt:
        return 0
    began = sighting.exit.started_unix_seconds
    killed = (other for other in state.attempts.values() if other.cause == Cause.HOST_OOM.value)
    return sum(other.ended is not None and other.ended >= began for other in killed)


def prove_cells(opened: OpenStudy, attempt: AttemptState) -> tuple[list[Event], dict[str, str]]:
    """Proofs that stand on disk for an attempt's cells, and why the others have none."""
    output = opened.folder.attempt(attempt.name).output
    proofs: list[Event] = []
    reasons: dict[str, str] = {}
    for text in attempt.cells:
        if attempt.work == "train":
            found = prove_training(opened, Cell.parse(text), output, attempt.name)
            if isinstance(found, str):
                reasons[text] = found
            else:
                proofs.append(found)
        else:
            events, missing = prove_evaluations(opened, Cell.parse(text), attempt.conditions, attempt.name)
            proofs += events
            if missing:
                reasons[text] = missing
    return proofs, reasons


def prove_training(opened: OpenStudy, cell: Cell, output: Path | None, attempt: str | None) -> TrainProven | str:
    """The event that a cell is trained, or why it is not."""
    adapter, run = opened.adapter(cell), opened.run(cell)
    proof: TrainProof | str = adapter.prove_training(
        run, opened.study.needed_agent_steps, output, opened.study.task_of(cell.arm)
    )
    if isinstance(proof, str) and not adapter.matches(run, output):
        proof = prove_by_earlier_lines(opened, cell) or proof
    if isinstance(proof, str):
        return proof
    return TrainProven.of(str(cell), proof, attempt)


def prove_evaluations(
    opened: OpenStudy, cell: Cell, conditions: Iterable[str], attempt: str | None
) -> tuple[list[Event], str]:
    """Events for the conditions that are evaluated on the proven checkpoint, and why the first other is not."""
    known = opened.state.known_cell(str(cell))
    if known.proof is None:
        return [], "its training is not proven"
    adapter, run = opened.adapter(cell), opened.run(cell)
    events: list[Event] = []
    missing = ""
    for condition in conditions:
        proof: EvalProof | str = adapter.prove_evaluation(
            run, condition, opened.study.evaluation_episodes, known.proof.parameter_hash
        )
        fault = proof if isinstance(proof, str) else missing_metric(run, condition, opened.study.metric.name)
        if isinstance(proof, str) or fault is not None:
            missing = missing or f"{condition}: {fault}"
        else:
            events.append(EvalProven.of(str(cell), condition, proof, attempt))
    return events, missing


def _frozen(opened: OpenStudy, attempt: AttemptState, unproven: dict[str, str]) -> dict[str, FrozenRecord]:
    if attempt.work != "train":
        return {}
    records = {text: read_frozen(opened.run(Cell.parse(text))) for text in unproven}
    return {text: record for text, record in records.items() if record is not None}


def _kept(opened: OpenStudy, attempt: AttemptState, text: str) -> int:
    if attempt.work != "train":
        return attempt.from_agent_steps.get(text, 0)
    return kept_agent_steps(opened, Cell.parse(text))


def _kept_seconds(
    opened: OpenStudy, attempt: AttemptState, sighting: Sighting, wall_seconds: float
) -> dict[str, float]:
    """Seconds of the attempt after which each cell's newest checkpoint was written; left out if no clock shows it."""
    if attempt.work != "train":
        return {}
    life = _life(attempt, sighting, wall_seconds)
    found: dict[str, float] = {}
    for text in attempt.cells:
        written = opened.adapter(Cell.parse(text)).kept_unix_seconds(opened.run(Cell.parse(text)))
        possible = life.seconds_at(written) if written is not None else []
        if len(possible) == 1 and possible[0] <= wall_seconds:
            found[text] = round(possible[0], 3)
    return found


def _life(attempt: AttemptState, sighting: Sighting, wall_seconds: float) -> Life:
    """The attempt from the shim's record; without one, from the ledger's clocks and those of this moment."""
    if sighting.exit is not None and sighting.exit.ended_unix_seconds:
        record = sighting.exit
        return Life(record.started_unix_seconds, record.ended_unix_seconds, record.wall_seconds)
    began = attempt.placed_at or attempt.began
    return Life.until(began, read_moment()) or Life(began.unix_seconds, began.unix_seconds + wall_seconds, wall_seconds)


def _reached(opened: OpenStudy, attempt: AttemptState, text: str) -> int:
    if attempt.work != "train":
        return attempt.from_agent_steps.get(text, 0)
    cell = Cell.parse(text)
    reading = opened.adapter(cell).read(opened.run(cell), opened.folder.attempt(attempt.name).output)
    return reading.agent_steps


def _wall_seconds(opened: OpenStudy, attempt: AttemptState, sighting: Sighting) -> float:
    """As the scheduler allocated it; from the exit record; without one, up to the last sign of life."""
    if sighting.placement is not None and sighting.placement.allocated_seconds is not None:
        return sighting.placement.allocated_seconds
    if sighting.exit is not None:
        return sighting.exit.wall_seconds
    if sighting.never_began:
        return 0.0
    return _seconds_to_last_sign(opened, attempt)


def _seconds_to_last_sign(opened: OpenStudy, attempt: AttemptState) -> float:
    """Up to the last sample of the shim, by its own clock, or the last file written; never longer than time passed."""
    folder = opened.folder.attempt(attempt.name)
    runs = [opened.run(Cell.parse(text)).heartbeat for text in attempt.cells]
    written = [modified(path) or 0.0 for path in (folder.output, folder.memory, folder.shim, *runs)]
    began = attempt.placed_at or attempt.began
    sampled = _sampled_seconds(folder.memory)
    now = read_moment()
    life = Life.until(began, now)
    if life is None:  # another boot: files are believed as far as the samples reach, or where there are none
        longest = now.unix_seconds - began.unix_seconds
        limit = sampled + 2 * LONGEST_SAMPLE_GAP_SECONDS if sampled else longest
        life = Life(began.unix_seconds, began.unix_seconds + limit, max(0.0, limit))
    return max([sampled, *(seconds for time in written for seconds in life.seconds_at(time))])


def _sampled_seconds(path: Path) -> float:
    """Seconds of an attempt at the last sample in its memory.jsonl; 0 without any."""
    times = [row.get("seconds") for row in read_rows(path)]
    return max([float(time) for time in times if isinstance(time, int | float)], default=0.0)
