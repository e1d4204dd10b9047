"""Errors that a person reads: what was seen, where, and a hint with the next command."""

from enum import IntEnum

from dreamproof.base.text import quoted


class ExitCode(IntEnum):
    """Exit codes of every `dreamproof` verb."""

    OK = 0
    UNEXPECTED = 1
    BAD_INPUT = 2
    GAP_REMAINS = 3
    PREFLIGHT_FAILED = 4
    BUSY = 5
    BROKEN_EVIDENCE = 6
    BUDGET_REACHED = 7
    SHUTDOWN_FAILED = 8
    NO_REPORT = 9
    INTERRUPTED = 130


class DreamproofError(Exception):
    """An error that a person can fix; `seen` is what was found and where, `hint` the command to try."""

    exit_code = ExitCode.UNEXPECTED

    def __init__(self, seen: str, hint: str) -> None:
        super().__init__(seen)
        self.seen = seen
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.seen}\n  hint: {self.hint}"


class BadInput(DreamproofError):
    """A file, an argument or a setting is not valid."""

    exit_code = ExitCode.BAD_INPUT


class Busy(DreamproofError):
    """Another supervisor works on the study."""

    exit_code = ExitCode.BUSY


class BrokenEvidence(DreamproofError):
    """A ledger, a file or a hash does not agree with what was recorded."""

    exit_code = ExitCode.BROKEN_EVIDENCE


class ReportFailed(DreamproofError):
    """The work is done, and a report or a declared document could not be written."""

    exit_code = ExitCode.NO_REPORT


class PreflightError(DreamproofError):
    """An arm cannot do one step in its real environment."""

    exit_code = ExitCode.PREFLIGHT_FAILED


class Stopped(DreamproofError):
    """A stop was requested before anything was started."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self, by: str, study: str) -> None:
        super().__init__(
            f"stopped by {by} during the preflight; nothing was started", f"dreamproof run {quoted(study)}"
        )
        self.by = by
