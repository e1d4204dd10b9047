"""Finds the Python traceback that ended a program: its exceptions, their links, and whether it was survived."""

import re
from dataclasses import dataclass, replace

from dreamproof.study.diagnosis.log_lines import LOGGED_QUIETLY, PROGRESS_BAR, WORK, Log, continued_after

# A traceback further from the end than this many lines was survived whatever follows it.
LAST_LINES = 400
MESSAGE_LINES = 12

TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
DURING = re.compile(r"^During handling of the above exception")
CAUSED = re.compile(r"^The above exception was the direct cause")
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([\w.]+\))?(?:: |:$|$)")
FRAME = re.compile(r'^\s*File "([^"]*)", line \d+(?:, in (.+))?')
REMOTE = re.compile(r"\bRayTaskError\(\w+\): ray::|^multiprocessing\.pool\.RemoteTraceback:")
CONTINUED = re.compile(r"^(?:\s|tensor\(|array\(|\[\[)")
# Python prints these and continues.
IGNORED_HEADER = re.compile(r"^(?:Exception ignored (?:in|on)|--- Logging error ---)")
# These only report that another process failed; its own output is before them.
MESSENGER = re.compile(
    r"\b(?:ChildFailedError|BrokenProcessPool|ProcessExitedException|ProcessRaisedException|CalledProcessError"
    r"|InstantiationException|WorkerCrashedError|ActorDiedError|DistBackendError|DistNetworkError)\b"
    r"|NCCL error|DataLoader worker \(pid[^)]*\)[^)]*\)? exited unexpectedly|[Cc]onnection closed by peer"
)
PIPE_OF_A_WORKER = re.compile(r"^(?:ConnectionResetError|BrokenPipeError|EOFError)\b")


@dataclass(frozen=True)
class Raised:
    """One exception of a traceback."""

    line: str
    message: str
    """The exception's line and those that belong to its message."""
    frame: str
    """The innermost frame with its source line, as printed."""
    file: str
    function: str
    code: str
    catcher: tuple[str, str]
    """File and function of the outermost frame: where it was caught, if it was."""
    link: str = ""
    """How it follows from the exception before it: `during`, `caused`, or nothing."""

    @property
    def is_messenger(self) -> bool:
        """Whether it only reports the failure of another process."""
        of_a_worker = PIPE_OF_A_WORKER.match(self.line) and "multiprocessing" in self.file
        return bool(MESSENGER.search(self.line) or of_a_worker)

    @property
    def about(self) -> str:
        """File name and source line, without the folders that happen to hold the file."""
        return f"{self.file.rpartition('/')[2]} {self.code}"

    def wraps(self, before: "Raised") -> bool:
        """Whether it was raised on purpose in place of the one before it."""
        if self.link == "caused":
            return True
        return self.code.startswith("raise ") and (self.file, self.function) == before.catcher


@dataclass(frozen=True)
class ExceptionChain:
    """The exceptions of one traceback, the outermost last, and its position in the log."""

    raised: tuple[Raised, ...]
    start: int
    end: int
    rank: str
    harmless: bool
    """Whether Python printed it and continued."""
    logged_quietly: bool


def _block(log: Log, start: int) -> tuple[Raised | None, int]:
    """The exception of the traceback that opens at `start`, and where it ends."""
    prefix = log.lines[start][: TRACEBACK.search(log.lines[start]).start()]  # type: ignore[union-attr]
    lines = [line.removeprefix(prefix) for line in log.lines[start : start + LAST_LINES]]
    frames: list[tuple[str, str, str, str]] = []
    remote = ""
    for place in range(1, len(lines)):
        line = lines[place]
        if TRACEBACK.search(line):
            return None, start + place
        found = FRAME.match(line)
        if found:
            code = lines[place + 1].strip() if place + 1 < len(lines) and lines[place + 1].startswith(" ") else ""
            frames.append((f"{line.strip()} {code}".strip(), found[1], found[2] or "", code))
        elif REMOTE.search(line):
            remote = line
        elif line[:1].isalpha() and EXCEPTION.match(line) and not WORK.search(line):
            more = _message(lines, place)
            return _raised(line, more, frames), start + place + 1 + len(more)
    return (_raised(remote, [], frames) if remote else None), start + len(lines)


def _raised(line: str, more: list[str], frames: list[tuple[str, str, str, str]]) -> Raised:
    text, file, function, code = frames[-1] if frames else ("", "", "", "")
    catcher = (frames[0][1], frames[0][2]) if frames else ("", "")
    return Raised(line, "\n".join([line, *more]), text, file, function, code, catcher)


def _message(lines: list[str], place: int) -> list[str]:
    """Further lines of an exception's message: indented ones, printed arrays, and the line after a colon."""
    more: list[str] = []
    for line in lines[place + 1 : place + 1 + MESSAGE_LINES]:
        open_ended = (more[-1] if more else lines[place]).rstrip().endswith(":") and not WORK.search(line)
        if TRACEBACK.search(line) or PROGRESS_BAR.search(line) or not (CONTINUED.match(line) or open_ended):
            break
        more.append(line)
    return more


def find_chains(log: Log) -> list[ExceptionChain]:
    """Every traceback near the end, in order; linked ones form one chain."""
    chains: list[ExceptionChain] = []
    place = max(0, len(log.lines) - LAST_LINES)
    while place < len(log.lines):
        if not TRACEBACK.search(log.lines[place]):
            place += 1
            continue
        start = place
        found, place = _block(log, start)
        if found is None:
            continue
        link = _link(log, chains[-1].end, start) if chains else ""
        if link:
            last = chains[-1]
            chains[-1] = replace(last, raised=(*last.raised, replace(found, link=link)), end=place)
        else:
            chains.append(_new_chain(log, found, start, place))
    return chains


def _new_chain(log: Log, found: Raised, start: int, end: int) -> ExceptionChain:
    header = log.lines[start - 1] if start > 0 else ""
    return ExceptionChain(
        (found,),
        start,
        end,
        log.ranks[start],
        IGNORED_HEADER.match(header) is not None,
        LOGGED_QUIETLY.search(header) is not None,
    )


def _link(log: Log, end: int, start: int) -> str:
    between = log.lines[end:start]
    if any(CAUSED.match(line) for line in between):
        return "caused"
    return "during" if any(DURING.match(line) for line in between) else ""


def ending_chain(log: Log) -> ExceptionChain | None:
    """The traceback that ended the program; None if there is none or the program continued after it."""
    chains = [chain for chain in find_chains(log) if not chain.harmless]
    if not chains:
        return None
    last = chains[-1]
    if continued_after(log, last.end, last.rank, last.logged_quietly):
        return None
    if last.raised[-1].is_messenger and len(last.raised) == 1:
        # Of several workers the first to fail pulled the others down.
        earlier = [chain for chain in chains[:-1] if not chain.raised[-1].is_messenger]
        return _first_of_the_last(log, earlier) or last
    return last


def _first_of_the_last(log: Log, chains: list[ExceptionChain]) -> ExceptionChain | None:
    """The first of the tracebacks that stand together at the end, with no work of the same worker between them."""
    chosen: ExceptionChain | None = None
    for chain in reversed(chains):
        if chosen is None:
            survived = continued_after(log, chain.end, chain.rank, chain.logged_quietly)
        else:
            between = Log(log.printed[: chosen.start], log.lines[: chosen.start], log.ranks[: chosen.start])
            survived = chain.rank == chosen.rank or continued_after(
                between, chain.end, chain.rank, chain.logged_quietly
            )
        if survived:
            break
        chosen = chain
    return chosen


def without_tracebacks(log: Log) -> Log:
    """The log without the lines of any traceback."""
    inside = {place for chain in find_chains(log) for place in range(chain.start, chain.end)}
    kept = [place for place in range(len(log.lines)) if place not in inside]
    parts = ([lines[place] for place in kept] for lines in (log.printed, log.lines, log.ranks))
    return Log(*parts)
