"""Assesses a run made outside the study: proven, alive, or why not."""

import os
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.safe_text import printable
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof, read_settings
from dreamproof.study.adapters import DEFAULT, find_adapter, guess_adapter, study_adapter, study_format
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.plan.importing.found import Found, ImportOptions
from dreamproof.study.plan.importing.living import LivingRun, find_living
from dreamproof.study.plan.importing.slurm_logs import LogReading, read_log_files
from dreamproof.study.plan.on_disk import other_work
from dreamproof.study.plan.open_study import OpenStudy

SUCCESS_STATUSES = ("success", "succeeded", "done", "ok", "completed", "finished", "proven")


def choose_adapter(opened: OpenStudy, root: Path, name: str | None) -> Adapter:
    """What reads a run: the named adapter, the study's, or the first that knows its files."""
    if name is not None:
        return find_adapter(name, study_format(opened.study))
    declared = study_adapter(opened.study)
    if declared.name in (DEFAULT, AutoAdapter.name):
        return guess_adapter(RunFolder(root), study_format(opened.study))
    return declared


@dataclass(frozen=True)
class Candidate:
    """A run made outside the study with its proof, or the reason why there is none."""

    found: Found
    adapter: str
    agent_steps: int
    proof: TrainProof | str
    living: LivingRun | None = None
    """What shows that it still runs."""
    log: LogReading | None = None
    """What its log shows, if nothing but the log is known of it."""


def assess(opened: OpenStudy, found: Found, options: ImportOptions) -> Candidate:
    """Looks at one run: its adapter, its steps, its proof, and whether it still runs."""
    if found.root is None and found.output is not None:
        return _assess_log(opened, found)
    if found.root is None:
        return Candidate(found, "", 0, f"a table reports '{found.status[:80]}' and names no run folder")
    if not os.path.isdir(found.root):
        return Candidate(
            found, "", 0, f"its run folder {printable(str(found.root))[:300]} does not exist" + status_note(found)
        )
    if str(found.root) != printable(str(found.root)):
        return Candidate(found, "", 0, f"the name of its run folder is not UTF-8: {printable(str(found.root))}")
    adapter = choose_adapter(opened, found.root, options.adapter)
    run = RunFolder(found.root)
    if found.status and found.status.strip().lower() not in SUCCESS_STATUSES:
        proof: TrainProof | str = f"its table reports '{found.status[:80]}'"
    else:
        task = opened.study.task_of(found.cell.arm)
        proof = adapter.prove_training(run, opened.study.needed_agent_steps, found.output, task)
    made_for = read_settings(run) if isinstance(proof, TrainProof) else None
    if made_for is not None and (made_for.seed != found.cell.seed or other_work(opened, found.cell, made_for)):
        owner = f"{printable(made_for.arm)[:80]}/{made_for.seed}"
        proof = f"its settings.json is that of {owner}, with other settings or another seed"
    if isinstance(proof, TrainProof):
        return Candidate(found, adapter.name, proof.agent_steps, proof)
    reached = adapter.read(run, found.output).agent_steps
    return Candidate(found, adapter.name, reached, proof, find_living(opened, found.root))


def _assess_log(opened: OpenStudy, found: Found) -> Candidate:
    """A log proves no checkpoint, so a run of which nothing else is known is unproven."""
    log, declared = read_log_files(opened, found), opened.study.agent_steps
    job = f"job {found.job}: " if found.job is not None else ""
    reason = f"{job}{log.text}"
    if log.agent_steps < opened.study.needed_agent_steps and not log.unread_lines:
        reason += f"; the study declares {declared:,}" if log.of_agent_steps != declared else ""
    elif not log.unread_lines:
        reason += "; a log alone proves no checkpoint"
    if log.cause is not None:
        reason += f"; {log.cause}: {log.key_evidence}"
    return Candidate(found, study_adapter(opened.study).name, log.agent_steps, reason, log=log)


def status_note(found: Found) -> str:
    """What a table reports of a run, to be added to a reason."""
    return f"; its table reports '{found.status[:80]}'" if found.status else ""


def rank(candidate: Candidate) -> tuple[bool, bool, int, str]:
    """Proven before living before the others, then the most steps, then the latest by name."""
    place = candidate.found.root or candidate.found.output
    name = place.name if place is not None else ""
    return isinstance(candidate.proof, TrainProof), candidate.living is not None, candidate.agent_steps, name
