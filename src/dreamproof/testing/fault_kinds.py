"""The faults of a campaign: their names, the causes they must be recorded with, and how often each is injected."""

from dataclasses import dataclass

# What each fault must be called; a trainer that reached its end just before it was hit is `completed`.
EXPECTED = {
    "kill -9 trainer": {"killed"},
    "kill -9 shim": {"completed", "vanished"},
    "kill -9 shim and trainer": {"vanished"},
    "kill -9 supervisor": set[str](),
    "kill -9 supervisor as it starts": set[str](),
    "SIGSTOP": {"stalled"},
    "spinning hang": {"stalled"},
    "hang that ignores signals": {"stalled"},
    "exception": {"bug"},
    "not a number": {"nan"},
    "quiet exit": {"unknown"},
    "torn checkpoint": {"killed"},
    "corrupted checkpoint": {"killed"},
    "torn ledger": set[str](),
    "lost ledger line": set[str](),
    "edited ledger": set[str](),
    "two supervisors": set[str](),
    "supervisor in a second container": set[str](),
    "SIGTERM supervisor": set[str](),
    "Ctrl-C": {"stopped_by_user"},
    "stop": {"stopped_by_user"},
    "stop of a copy": set[str](),
    "SIGHUP shim": set[str](),
    "SIGSTOP shim": set[str](),
    "kill -9 wrapper": {"killed"},
    "kill -9 shim and wrapper": {"completed", "vanished"},
    "SIGSTOP and SIGCONT": set[str](),
    "odd checkpoint names": set[str](),
    "heartbeat is a pipe": set[str](),
    "heartbeat is a link loop": set[str](),
    "heartbeat of garbage": set[str](),
    "survived warning, then an exception": {"bug"},
    "Rust panic": {"bug"},
    "abort": {"crashed", "bug"},
    "memory hog": {"host_oom"},
    "full disk": {"disk_full"},
}
SCRIPTED = {
    "spinning hang": "spin",
    "hang that ignores signals": "spin_without_signals",
    "exception": "exception",
    "not a number": "nan",
    "quiet exit": "quiet_exit",
    "survived warning, then an exception": "survived",
    "Rust panic": "rust",
    "abort": "abort",
    "memory hog": "hog",
    "full disk": "disk",
}
# The same deterministic cause twice stops a cell by design, so that a cell gets each of these once.
ONCE_A_CELL = {"not a number", "quiet exit", "memory hog"}
ONCE_A_CELL_TOGETHER = {"exception", "survived warning, then an exception", "Rust panic", "abort"}
"""All of these may be called a bug, of which a cell may have one."""
WRAPPED_KINDS = {"kill -9 wrapper", "kill -9 shim and wrapper"}
SPECIAL_KINDS = {"memory hog", "full disk"}
MAIN_KINDS = [kind for kind in EXPECTED if kind not in SPECIAL_KINDS | WRAPPED_KINDS]
# Behind a shell the command is the shell: what hits the trainer itself shows as its shell's exit.
WRAPPED_STUDY_KINDS = [
    kind
    for kind in EXPECTED
    if kind not in SPECIAL_KINDS | set(SCRIPTED) | {"kill -9 trainer", "SIGSTOP", "SIGSTOP and SIGCONT"}
    and "checkpoint" not in kind.replace("odd checkpoint", "")
]
# Hangs cost seconds of patience each; faults of the supervisor always find it, those of attempts need one that runs.
RARE = {
    "SIGSTOP": 0.6,
    "spinning hang": 0.5,
    "hang that ignores signals": 0.4,
    "kill -9 supervisor": 0.5,
    "kill -9 supervisor as it starts": 0.4,
    "torn ledger": 0.4,
    "lost ledger line": 0.4,
    "edited ledger": 0.2,
    "two supervisors": 0.3,
    "supervisor in a second container": 0.2,
    "SIGTERM supervisor": 0.4,
    "Ctrl-C": 0.2,
    "stop": 0.2,
    "stop of a copy": 0.3,
}
ODD_BEATS = ['{"agent_steps": ' + "9" * 400 + "}", "[" * 5000, "\ud800", '{"agent_steps": NaN}', "", "null"]


@dataclass
class Fault:
    """One injected fault; `attempt` is whom it hit, where it hit one."""

    kind: str
    attempt: str | None = None
    note: str = ""
    wrong: str | None = None
