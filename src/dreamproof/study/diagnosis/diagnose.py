"""Names the cause of an attempt's end from evidence alone, and quotes it. Pure: the caller gathers the evidence."""

import errno
import re
import signal
from dataclasses import dataclass, field

from dreamproof.base.text import bytes_text
from dreamproof.runs.records import ExitRecord, FrozenRecord, Heartbeat
from dreamproof.study.diagnosis.log_lines import Log, quote, read_log, significant
from dreamproof.study.diagnosis.log_rules import (
    Cause,
    Finding,
    ends_with_exception,
    read_exception,
    read_fatal_line,
    read_system_line,
)

__all__ = ["Cause", "Diagnosis", "AttemptEvidence", "SlurmEvidence", "TRANSIENT", "diagnose", "is_transient"]

# Starting again from the last checkpoint may well succeed: what ended the attempt lay outside the program.
TRANSIENT = frozenset(
    {
        Cause.DISK_FULL,
        Cause.NETWORK,
        Cause.KILLED,
        Cause.HANGUP,
        Cause.TIMEOUT,
        Cause.PREEMPTED,
        Cause.NODE_LOST,
        Cause.LOCKED,
        Cause.STALLED,
        Cause.STOPPED_BY_USER,
        Cause.VANISHED,
    }
)

# First word of the reason of a stop; any other reason is a user's request.
ASKED = {
    "stalled": Cause.STALLED,
    "timeout": Cause.TIMEOUT,
    "preempted": Cause.PREEMPTED,
    "memory": Cause.HOST_OOM,
    "fenced": Cause.NODE_LOST,
    "locked": Cause.LOCKED,
}

FAULT_SIGNALS = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGSYS}
SPECIFIC = {
    Cause.IMPORT_ERROR,
    Cause.BAD_CONFIG,
    Cause.NAN,
    Cause.DEVICE_OOM,
    Cause.DISK_FULL,
    Cause.HOST_OOM,
    Cause.NETWORK,
}
# In its last lines a program reports that it was asked to end.
STOPPED_BY_SIGNAL = re.compile(
    r"\b(?:stopped|ended|terminated|interrupted|asked) by (?:signal 15|SIGTERM)\b"
    r"|\b(?:caught|received|got|handling|on) (?:signal )?(?:15\b|SIGTERM\b|signal 15\b)|\bSIGTERM (?:received"
    r"|caught)\b",
    re.IGNORECASE,
)
STOP_LINES = 5
NOT_FINITE_TEXT = "trained to its end, and what it learned is not finite"
LITTLE_DISK_BYTES = 16 << 20
SIGNAL_TO_SHIM = "a signal to the shim"
# Slurm reports signal 53 for a batch job that its node could not start.
LAUNCH_FAILED = 53
# States in which a job's exit code is not that of the process: it never ran, or on a lost node.
NO_EXIT_STATES = frozenset({"CANCELLED", "REFUSED", "PENDING", "UNKNOWN", "REQUEUED", "NODE_FAIL", "BOOT_FAIL"})
NEARLY_ALL = 0.97


@dataclass(frozen=True)
class SlurmEvidence:
    """A job as scontrol or sacct report it; exit codes as `code:signal`."""

    job_state: str
    exit_code: str = "0:0"
    derived_exit_code: str = "0:0"
    reason: str = ""
    step_states: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AttemptEvidence:
    """Everything known about the end of one attempt; what is not known keeps its default."""

    exit: ExitRecord | None = None
    output_tail: str = ""
    proven: bool = False
    unproven_reason: str = ""
    not_saved: bool = False
    """Whether it was trained to its end, and only a checkpoint of the end is missing."""
    not_finite: bool = False
    """Whether it was trained to its end, and what it learned is not finite."""
    asked_to_stop: str | None = None
    machine_restarted: bool = False
    heartbeat: Heartbeat | None = None
    frozen: FrozenRecord | None = None
    disk_free_bytes: int | None = None
    memory_limit_bytes: int | None = None
    others_killed_for_memory: int = 0
    slurm: SlurmEvidence | None = None


@dataclass(frozen=True)
class Diagnosis:
    """A cause, the lines that show it, and whether trying again may help."""

    cause: Cause
    quotes: list[str]
    transient: bool
    key_quote: str = ""
    """The most informative quote."""


def is_transient(cause: Cause) -> bool:
    """Whether the same start may succeed where this one ended."""
    return cause in TRANSIENT


def diagnose(evidence: AttemptEvidence) -> Diagnosis:
    """The cause of an attempt's end, by the strongest evidence there is."""
    log = read_log(evidence.output_tail)
    finding = _find(evidence, log)
    last = [] if evidence.proven else log.last_lines(besides=finding.quotes)
    quotes = list(dict.fromkeys([*finding.quotes, *last, *_last_progress(evidence)]))
    return Diagnosis(finding.cause, quotes, is_transient(finding.cause), _key_quote(finding, log))


def _key_quote(finding: Finding, log: Log) -> str:
    """What follows the text about the exit; else the last line, or that text."""
    if len(finding.quotes) > 1:
        return finding.quotes[1]
    return quote(log.printed[-1]) if log.printed else finding.quotes[0]


def _find(evidence: AttemptEvidence, log: Log) -> Finding:
    if evidence.proven:
        return _completed(evidence)
    status = _exit_status(evidence)
    if status is None:
        return _find_without_exit(evidence, log)
    code, number = status
    if evidence.exit is not None and evidence.exit.spawn_error is not None:
        return _spawn_failure(evidence.exit.spawn_error)
    asked = _asked(evidence, log)
    if asked is not None and asked.cause is Cause.LOCKED:
        return Finding(Cause.LOCKED, ["its command was not started", *asked.quotes])
    if number is None and code == 0:
        return _find_after_exit_zero(evidence, log)
    if number is None:
        return _find_after_exit_code(evidence, log, code)
    return _find_after_signal(evidence, log, number)


def _completed(evidence: AttemptEvidence) -> Finding:
    quotes = ["every cell is proven"]
    if evidence.exit is None and evidence.slurm is None:
        quotes.append("how the process ended was not recorded")
    status = _exit_status(evidence)
    if status is not None and status != (0, None):
        quotes.append(f"its process then ended otherwise: {_exit_text(evidence, *status)}")
    if _memory_kills(evidence) > 0:
        quotes.append(f"meanwhile {_memory_text(evidence)}")
    return Finding(Cause.COMPLETED, quotes)


def _exit_status(evidence: AttemptEvidence) -> tuple[int, int | None] | None:
    """(exit code, signal) of the process, from its parent or else from the scheduler; a shell's 128 + n is signal n."""
    record = evidence.exit
    if record is not None:
        if record.signal is not None:
            return 0, record.signal
        return _unfold(record.exit_code if record.exit_code is not None else -1)
    if evidence.slurm is None:
        return None
    if _state(evidence.slurm.job_state) in NO_EXIT_STATES:
        return None
    code, number = _slurm_code(evidence.slurm.exit_code)
    return (0, number) if number else _unfold(code)


def _unfold(code: int) -> tuple[int, int | None]:
    return (code, code - 128) if 128 < code < 160 else (code, None)


def _slurm_code(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d+):(\d+)\s*", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _last_progress(evidence: AttemptEvidence) -> list[str]:
    beat = evidence.heartbeat
    if beat is None or evidence.proven:
        return []
    return [f"last heartbeat: {beat.agent_steps:,} agent steps, {beat.gradient_steps:,} updates, phase {beat.phase}"]


def _exit_text(evidence: AttemptEvidence, code: int, number: int | None) -> str:
    after = f" after {evidence.exit.wall_seconds:.1f} s" if evidence.exit is not None else " (according to Slurm)"
    if number is None:
        return f"exit code {code}{after}"
    through = f" (exit code {code} of a shell)" if code else ""
    return f"signal {number} ({_signal_name(number)}){through}{after}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unnamed"


def _memory_kills(evidence: AttemptEvidence) -> int:
    if evidence.exit is None or evidence.exit.oom_kills is None:
        return 0
    return max(0, evidence.exit.oom_kills - evidence.others_killed_for_memory)


def _memory_text(evidence: AttemptEvidence) -> str:
    count = _memory_kills(evidence)
    return f"the memory controller killed {count} process{'es' if count > 1 else ''} (oom_kill counter rose by {count})"


def _memory_finding(evidence: AttemptEvidence, log: Log) -> Finding | None:
    """Host memory as proven by counter, kernel, scheduler state or scheduler line; None if nothing proves it."""
    quotes = []
    if _memory_kills(evidence) > 0:
        quotes.append(_memory_text(evidence))
    kernel = [] if evidence.exit is None else evidence.exit.kernel_lines
    quotes += [quote(line) for line in kernel if re.search(r"oom|out of memory", line, re.IGNORECASE)]
    quotes += _slurm_memory(evidence.slurm)
    finding = read_system_line(log)
    if finding is not None and finding.cause is Cause.HOST_OOM:
        quotes += finding.quotes
    if not quotes:
        return None
    return Finding(Cause.HOST_OOM, quotes + _peak_text(evidence))


def _slurm_memory(slurm: SlurmEvidence | None) -> list[str]:
    if slurm is None:
        return []
    quotes = []
    if _state(slurm.job_state) == "OUT_OF_MEMORY":
        quotes.append(f"Slurm: job state {slurm.job_state}, exit {slurm.exit_code}")
    quotes += [f"Slurm: step {name} {state}" for name, state in slurm.step_states.items() if "OUT_OF_ME" in state]
    if "0:125" in (slurm.derived_exit_code, slurm.exit_code) and not quotes:
        quotes.append(f"Slurm: exit {slurm.exit_code}, derived exit {slurm.derived_exit_code} (125 is out of memory)")
    return quotes


def _peak_text(evidence: AttemptEvidence) -> list[str]:
    peak = evidence.exit.peak_bytes if evidence.exit is not None else None
    limit = evidence.memory_limit_bytes
    if peak is None:
        return []
    return [f"peak memory {bytes_text(peak)}" + (f" of {bytes_text(limit)} allowed" if limit else "")]


def _state(text: str) -> str:
    """`CANCELLED by 0` and `CANCELLED+` as CANCELLED."""
    return text.split()[0].rstrip("+") if text.split() else ""


def _slurm_finding(evidence: AttemptEvidence) -> Finding | None:
    """States of the scheduler that name a cause by themselves."""
    slurm = evidence.slurm
    if slurm is None:
        return None
    if evidence.asked_to_stop is not None and _state(slurm.job_state) == "CANCELLED":
        return None  # it was we who cancelled it
    exit_text = "" if _state(slurm.job_state) in NO_EXIT_STATES else f", exit {slurm.exit_code}"
    text = f"Slurm: job state {slurm.job_state}{exit_text}" + (f", {slurm.reason}" if slurm.reason else "")
    causes = {
        "TIMEOUT": Cause.TIMEOUT,
        "DEADLINE": Cause.TIMEOUT,
        "PREEMPTED": Cause.PREEMPTED,
        "NODE_FAIL": Cause.NODE_LOST,
        "BOOT_FAIL": Cause.NODE_LOST,
        "CANCELLED": Cause.STOPPED_BY_USER,
        "REFUSED": Cause.BAD_CONFIG,
        "PENDING": Cause.BAD_CONFIG,
        "UNKNOWN": Cause.VANISHED,
    }
    cause = causes.get(_state(slurm.job_state))
    if "launch" in slurm.reason.lower() and "requeued" in slurm.reason.lower():
        cause = Cause.NODE_LOST
    elif _slurm_code(slurm.exit_code)[1] == LAUNCH_FAILED and evidence.exit is None:
        text += " (the node could not start it: its folder or output file is not visible or not writable there)"
        cause = Cause.BAD_CONFIG
    return Finding(cause, [text]) if cause is not None else None


def _asked(evidence: AttemptEvidence, log: Log) -> Finding | None:
    reason = evidence.asked_to_stop
    if reason is None and evidence.exit is not None:
        reason = evidence.exit.asked_to_stop
    if reason == SIGNAL_TO_SHIM and evidence.slurm is not None:
        return _scheduler_signal(evidence.slurm, log)
    if reason is None:
        return None
    first = re.split(r"[\s:,;]+", reason.strip().lower(), maxsplit=1)[0]
    lines = [f"asked to stop: {quote(reason)}"]
    if evidence.exit is not None and evidence.exit.killed_after_seconds is not None:
        lines.append(f"did not end within {evidence.exit.killed_after_seconds:g} s after SIGTERM, so it was killed")
    return Finding(ASKED.get(first, Cause.STOPPED_BY_USER), lines)


def _scheduler_signal(slurm: SlurmEvidence, log: Log) -> Finding:
    """A stop from outside on a cluster: the scheduler's own line gives the reason, if any."""
    finding = read_system_line(log) or _requeued(slurm)
    return finding if finding is not None else Finding(Cause.KILLED, ["a signal to the shim, sender unknown"])


def _requeued(slurm: SlurmEvidence | None) -> Finding | None:
    if slurm is None or _state(slurm.job_state) != "REQUEUED":
        return None
    return Finding(Cause.PREEMPTED, [f"Slurm requeued the job ({slurm.reason})"])


def _spawn_failure(error: str) -> Finding:
    if f"Errno {errno.ENOMEM}]" in error:
        cause = Cause.HOST_OOM
    elif f"Errno {errno.ENOSPC}]" in error:
        cause = Cause.DISK_FULL
    else:
        cause = Cause.BAD_CONFIG
    return Finding(cause, [f"the command could not be started: {quote(error)}"])


def _frozen(evidence: AttemptEvidence) -> Finding | None:
    if evidence.frozen is None:
        return None
    where = f"{evidence.frozen.agent_steps:,} agent steps, {evidence.frozen.gradient_steps:,} updates"
    return Finding(Cause.NAN, [f"frozen at {where}: {quote(evidence.frozen.reason)}"])


def _with_exit(finding: Finding, text: str) -> Finding:
    return Finding(finding.cause, [text, *finding.quotes])


def _find_without_exit(evidence: AttemptEvidence, log: Log) -> Finding:
    if evidence.machine_restarted:
        return Finding(Cause.NODE_LOST, ["the machine was restarted (its boot id changed); no exit was recorded"])
    gone = "the process is gone and its exit was not recorded"
    finding = _memory_finding(evidence, log) or read_system_line(log)
    finding = finding or _slurm_finding(evidence) or _requeued(evidence.slurm)
    if finding is not None:
        return finding if evidence.slurm is not None else _with_exit(finding, gone)
    raised = read_exception(log)
    if raised is not None and raised.cause in SPECIFIC:
        return _with_exit(raised, gone)
    asked = _asked(evidence, log)
    if asked is not None:
        return _with_exit(asked, gone)
    return Finding(Cause.VANISHED, [gone, *([*raised.quotes] if raised is not None else [])])


def _find_after_exit_zero(evidence: AttemptEvidence, log: Log) -> Finding:
    text = _exit_text(evidence, 0, None)
    strong = _frozen(evidence) or _memory_finding(evidence, log) or _slurm_finding(evidence)
    if strong is not None:
        return _with_exit(strong, text)
    asked = _asked(evidence, log) or _requeued(evidence.slurm)
    if asked is not None:
        return _with_exit(asked, text)
    stopped = [line for line in significant(log.lines)[-STOP_LINES:] if STOPPED_BY_SIGNAL.search(line)]
    if stopped:
        return Finding(Cause.KILLED, [text, quote(stopped[-1]), "sender unknown"])
    if evidence.not_saved:
        lost, free = f"trained to its end and not saved: {evidence.unproven_reason}", evidence.disk_free_bytes
        if free is not None and free < LITTLE_DISK_BYTES:
            return Finding(Cause.DISK_FULL, [text, lost, f"{bytes_text(free)} free on the disk"])
        return Finding(Cause.NOT_SAVED, [text, lost])
    if evidence.not_finite and evidence.unproven_reason:
        return Finding(Cause.NAN, [text, f"{NOT_FINITE_TEXT}: {evidence.unproven_reason}"])
    missing = f"but the proof is missing: {evidence.unproven_reason or 'the last step was not reached'}"
    raised = read_exception(log) if ends_with_exception(log) else None
    if raised is not None:
        return Finding(raised.cause, [text, missing, *raised.quotes])
    return Finding(Cause.UNKNOWN, [text, missing])


def _find_after_exit_code(evidence: AttemptEvidence, log: Log, code: int) -> Finding:
    text = _exit_text(evidence, code, None)
    raised = read_exception(log)
    if raised is not None and raised.cause in SPECIFIC:
        return _with_exit(raised, text)
    strong = _memory_finding(evidence, log) or _slurm_finding(evidence) or read_system_line(log)
    if strong is None:
        strong = _frozen(evidence) or (raised if raised is not None else read_fatal_line(log))
    if strong is None and code in (126, 127):
        strong = Finding(Cause.BAD_CONFIG, ["the shell did not find the command"])
    asked = _asked(evidence, log)
    if asked is not None and (strong is None or strong.cause in (Cause.BUG, Cause.KILLED, Cause.STOPPED_BY_USER)):
        return _with_exit(asked, text)
    strong = strong or _requeued(evidence.slurm)
    if strong is not None:
        return _with_exit(strong, text)
    return Finding(Cause.UNKNOWN, [text, "no traceback and no fatal line in its output"])


def _find_after_signal(evidence: AttemptEvidence, log: Log, number: int) -> Finding:
    code = evidence.exit.exit_code if evidence.exit is not None and evidence.exit.signal is None else 0
    text = _exit_text(evidence, code or 0, number)
    asked = _asked(evidence, log)
    strong = _memory_finding(evidence, log) or (asked if evidence.asked_to_stop is not None else None)
    strong = strong or _slurm_finding(evidence) or asked or read_system_line(log)
    if strong is None and number not in FAULT_SIGNALS:
        strong = _requeued(evidence.slurm)
    if strong is not None:
        return _with_exit(strong, text)
    if number == signal.SIGHUP:
        return Finding(Cause.HANGUP, [text, "its terminal was closed"])
    if number == signal.SIGXCPU:
        return Finding(Cause.TIMEOUT, [text, "its limit of CPU seconds was reached"])
    if number == signal.SIGXFSZ:
        return Finding(Cause.DISK_FULL, [text, "a file reached the largest size allowed"])
    if number in FAULT_SIGNALS:
        return _with_exit(_fault(evidence, log, number), text)
    return Finding(Cause.KILLED, [text, *_killed_text(evidence, number)])


def _fault(evidence: AttemptEvidence, log: Log, number: int) -> Finding:
    """A fault inside the program; memory or disk may stand behind an abort or a bus error."""
    raised = read_exception(log) or read_fatal_line(log)
    if raised is not None:
        return Finding(raised.cause, raised.quotes)
    free = evidence.disk_free_bytes
    if number == signal.SIGBUS and free is not None and free < LITTLE_DISK_BYTES:
        return Finding(Cause.DISK_FULL, [f"{bytes_text(free)} free on the disk when a mapped file was written"])
    return Finding(Cause.BUG, [])


def _killed_text(evidence: AttemptEvidence, number: int) -> list[str]:
    """What can be reported where no evidence names the sender; nearness to a limit is a hint, not a proof."""
    text = ["sender unknown"]
    record = evidence.exit
    if number == signal.SIGKILL and record is not None:
        counter = "not readable" if record.oom_kills is None else "did not rise"
        text = [f"sender unknown (oom_kill counter {counter}, no kernel line)"]
        limit = evidence.memory_limit_bytes
        if record.oom_kills is None and limit and record.peak_bytes and record.peak_bytes > NEARLY_ALL * limit:
            text.append(f"hint, no proof: {_peak_text(evidence)[0]}")
    return text
