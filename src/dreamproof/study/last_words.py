"""Reads the end of a program's output: the last exception and the fatal lines, and what they say about its death."""

import re
from dataclasses import dataclass
from enum import StrEnum

LONGEST_LINE = 2000
LONGEST_QUOTE = 300
# What stands further from the end was survived: the program went on after it.
LAST_LINES = 80


class Cause(StrEnum):
    """Why an attempt ended."""

    COMPLETED = "completed"
    IMPORT_ERROR = "import_error"
    BAD_CONFIG = "bad_config"
    BUG = "bug"
    NAN = "nan"
    HOST_OOM = "host_oom"
    DEVICE_OOM = "device_oom"
    DISK_FULL = "disk_full"
    KILLED = "killed"
    HANGUP = "hangup"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    STALLED = "stalled"
    STOPPED_BY_USER = "stopped_by_user"
    VANISHED = "vanished"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Finding:
    """A cause and the lines that show it."""

    cause: Cause
    quotes: list[str]


Rule = tuple[Cause, re.Pattern[str]]


def _rules(*pairs: tuple[Cause, str]) -> list[Rule]:
    return [(cause, re.compile(pattern, re.IGNORECASE)) for cause, pattern in pairs]


# Lines written by the scheduler or the kernel, not by the program: they count however the program ended.
SYSTEM_LINES = _rules(
    (Cause.HOST_OOM, r"oom[-_]kill(?:ed process| event|er|:)|\bslurmstepd: error: .*oom[-_]kill"),
    (Cause.HOST_OOM, r"\b(?:step|job)(?:id)?[ =]?\S* exceeded (?:job |step )?memory limit"),
    (Cause.HOST_OOM, r"srun: error: .*\bout of memory\b|\bOut of memory: Killed process\b|Memory cgroup out of memory"),
    (Cause.HOST_OOM, r"step tasks have been OOM Killed"),
    (Cause.TIMEOUT, r"\bDUE TO TIME[ _]?LIMIT\b"),
    (Cause.PREEMPTED, r"\bDUE TO PREEMPTION\b|\bjob \S+ (?:was )?preempted\b"),
    (Cause.NODE_LOST, r"\bDUE TO NODE FAILURE\b|\bNODE_FAIL\b"),
    (Cause.BAD_CONFIG, r"^dreamproof: .+ cannot be seen from node "),
)

DEVICE_MEMORY = (
    r"RESOURCE_EXHAUSTED\b.*(?:memory|alloc)|\btorch\.(?:cuda\.)?OutOfMemoryError\b|\bCUDA out of memory\b"
    r"|\bCUDA error: out of memory\b|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
    r"|\bHIP out of memory\b|\bcudaErrorMemoryAllocation\b"
)
HOST_MEMORY = (
    r"\bstd::bad_alloc\b|Cannot allocate memory|\bUnable to allocate [\d.]+ [KMGTP]i?B\b|\bArrayMemoryError\b"
    r"|^MemoryError\b|insufficient shared memory|\bDefaultCPUAllocator: .*memory"
)
DISK = r"No space left on device|Disk quota exceeded|\bErrno (?:28|122)\b|\bENOSPC\b|\bEDQUOT\b"
MISSING_MODULE = r"\bModuleNotFoundError\b|\bNo module named\b|\bImportError\b|\bcannot import name\b"
DEVICE_LOST = r"uncorrectable ECC|GPU has fallen off the bus|\bCUDA_ERROR_ECC_UNCORRECTABLE\b|\bNVRM: Xid\b"
NOT_FINITE = (
    r"\b(?:loss|reward|value|grad\w*|param\w*|weight\w*|state|action|output|norm|tensor\w*|invalid values)\b"
    r"[^\n]{0,120}\b(?:nans?|inf|infs|not finite|non-?finite)\b"
    r"|\b(?:nans?|non-?finite)\b[^\n]{0,60}\b(?:loss|detected|found|encountered|in|values?)\b"
    r"|\bnot finite\b|\bFloatingPointError\b|\bfloat (?:NaN|infinity)\b"
)
WRONG_SETTINGS = (
    r"\bomegaconf\.|\bhydra\.errors\.|\bConfig(?:Key|Attribute|Type|Composition)?(?:Error|Exception)\b"
    r"|\bMissingMandatoryValue\b|\bMissingConfigException\b|\bpydantic\S*ValidationError\b|\byaml\.\w+\.\w*Error\b"
    r"|\bBadInput\b|\bjsonschema\S*ValidationError\b|\bArgumentError\b"
    r"|'\w*(?:Namespace|Config|Settings|Options|AttrDict|EasyDict)' object has no attribute"
    r"|\bUnrecognized(?:Flag)?Error\b|\btoml\w*\.\w*DecodeError\b"
)
FILE_OF_SETTINGS = (
    r"No such file or directory: '[^']*(?:\.(?:ya?ml|toml|ini|cfg|gin)|(?:config|settings|args|params)[^'/]*\.json)'"
)

EXCEPTION_RULES = _rules(
    (Cause.DEVICE_OOM, DEVICE_MEMORY),
    (Cause.DISK_FULL, DISK),
    (Cause.HOST_OOM, HOST_MEMORY),
    (Cause.IMPORT_ERROR, MISSING_MODULE),
    (Cause.BAD_CONFIG, WRONG_SETTINGS),
    (Cause.BAD_CONFIG, FILE_OF_SETTINGS),
    (Cause.NAN, NOT_FINITE),
    (Cause.NODE_LOST, DEVICE_LOST),
    (Cause.KILLED, r"^KeyboardInterrupt\b"),
)

# Lines of a program that ended badly without a Python traceback.
FATAL_LINES = _rules(
    (Cause.DEVICE_OOM, DEVICE_MEMORY),
    (Cause.DISK_FULL, DISK),
    (Cause.HOST_OOM, r"\bstd::bad_alloc\b|Cannot allocate memory|insufficient shared memory|^MemoryError\b"),
    (Cause.IMPORT_ERROR, r"\bModuleNotFoundError: |: No module named |error while loading shared libraries"),
    (Cause.BAD_CONFIG, r"\berror: (?:unrecognized arguments|the following arguments are required|argument )"),
    (Cause.BAD_CONFIG, r"\bNo such option\b|\bMissing option\b|\bError: Invalid value for\b|FATAL Flags parsing error"),
    (Cause.BAD_CONFIG, r"^dreamproof: \S+ cannot be seen from node "),
    (Cause.BAD_CONFIG, r"can't open file '|: command not found$|: unknown key '|: the key '[^']*' is missing"),
    (Cause.BAD_CONFIG, r"\bCould not override '|\bMissing mandatory value: |^Key '[^']*' is not in struct"),
    (Cause.NAN, NOT_FINITE),
    (Cause.NODE_LOST, DEVICE_LOST),
    (Cause.BUG, r"^Segmentation fault|^Fatal Python error: |^Bus error|^Aborted\b|\bterminate called after throwing"),
    (Cause.BUG, r"^(?:Syntax|Indentation|Tab)Error: |\b[A-Z]\w*(?:Error|Exception): "),
)

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RANK = re.compile(r"^(?:\[(?:rank)?\d+\]:? ?|\d+: (?=Traceback|  File|\S+(?:Error|Exception)))")
TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
LINK = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([\w.]+\))?(?:: |:$|$)")
GROUP = re.compile(r"^\s+\| ?")
# These only say that another process failed; its own words stand before them.
MESSENGERS = re.compile(
    r"\b(?:ChildFailedError|BrokenProcessPool|ProcessExitedException|ProcessRaisedException|CalledProcessError)\b"
)
FRAME = re.compile(r'^\s*File "(?:[^"]*/)?([^"/]*)"')
SETTINGS_WORD = re.compile(
    r"\b(?:cfg|conf|config|configs|settings|options|opts|args|hparams|hyperparams|flags|argparse)\b|_(?:cfg|config)\b",
    re.IGNORECASE,
)
MISSING_KEY = re.compile(r"^KeyError: ['\"]|^TypeError: .*(?:missing \d+ required|unexpected keyword argument)")


def quote(line: str) -> str:
    """One line of evidence, short enough to read."""
    text = line.strip()
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def clean_lines(tail: str) -> list[str]:
    """Lines of an output without colours and progress-bar returns; a line without end keeps its last part."""
    lines = re.split(r"[\n\r]+", ESCAPES.sub("", tail.replace("\x00", "")))
    return [GROUP.sub("", RANK.sub("", line[-LONGEST_LINE:])).rstrip() for line in lines if line.strip()]


@dataclass(frozen=True)
class Raised:
    """One exception of a traceback: its line with the message, and the frame it came from."""

    line: str
    frame: str
    message: str
    about: str
    """File name and source line of the frame, without the folders that happen to hold it."""


def _block(lines: list[str], start: int) -> tuple[Raised | None, int]:
    """The exception of the traceback that opens at `start`, and where it ends."""
    frame, about, place = "", "", start + 1
    while place < len(lines):
        line = lines[place]
        if TRACEBACK.search(line):
            break
        found = FRAME.match(line)
        if found:
            code = lines[place + 1].strip() if place + 1 < len(lines) and lines[place + 1].startswith(" ") else ""
            frame, about = f"{line.strip()} {code}".strip(), f"{found[1]} {code}"
        elif line and line[0].isalpha() and EXCEPTION.match(line):
            more = _message(lines, place)
            return Raised(line, frame, "\n".join([line, *more]), about), place + 1 + len(more)
        place += 1
    return None, place


def _message(lines: list[str], place: int) -> list[str]:
    """Further lines of an exception's message, until something else begins."""
    more: list[str] = []
    for line in lines[place + 1 : place + 12]:
        if TRACEBACK.search(line) or LINK.match(line):
            break
        more.append(line)
    return more


def raised(lines: list[str]) -> list[list[Raised]]:
    """The exceptions of every traceback near the end, in order; linked ones form one chain, the outermost last."""
    chains: list[list[Raised]] = []
    place, end_of_last = 0, -1
    while place < len(lines):
        if not TRACEBACK.search(lines[place]):
            place += 1
            continue
        linked = end_of_last >= 0 and any(LINK.match(line) for line in lines[end_of_last:place])
        found, place = _block(lines, place)
        if found is None:
            continue
        if linked:
            chains[-1].append(found)
        else:
            chains.append([found])
        end_of_last = place
    return chains if len(lines) - end_of_last <= LAST_LINES else []


def _cause_of(found: Raised) -> Cause:
    for cause, pattern in EXCEPTION_RULES:
        if pattern.search(found.message):
            return cause
    if MISSING_KEY.match(found.line) and SETTINGS_WORD.search(found.about):
        return Cause.BAD_CONFIG
    return Cause.BUG


def read_exception(lines: list[str]) -> Finding | None:
    """What the last traceback says, the most telling exception of its chain first; None where there is none."""
    chains = raised(lines)
    while len(chains) > 1 and MESSENGERS.search(chains[-1][-1].line):
        chains.pop()
    if not chains:
        return None
    told = [(found, _cause_of(found)) for found in reversed(chains[-1])]
    found, cause = next((pair for pair in told if pair[1] is not Cause.BUG), told[0])
    frame = [quote(found.frame)] if found.frame else []
    telling = next((line for line in reversed(found.message.splitlines()) if _tells(cause, line)), found.line)
    extra = [quote(telling)] if telling != found.line else []
    return Finding(cause, [quote(found.line), *extra, *frame])


def _tells(cause: Cause, line: str) -> bool:
    return any(rule == cause and pattern.search(line) for rule, pattern in EXCEPTION_RULES)


def _last_match(lines: list[str], rules: list[Rule]) -> Finding | None:
    for line in reversed(lines):
        for cause, pattern in rules:
            if pattern.search(line):
                return Finding(cause, [quote(line)])
    return None


def read_system_line(lines: list[str]) -> Finding | None:
    """What the scheduler or the kernel wrote about this death; memory is told before what followed from it."""
    memory = [rule for rule in SYSTEM_LINES if rule[0] is Cause.HOST_OOM]
    return _last_match(lines, memory) or _last_match(lines, SYSTEM_LINES)


def read_fatal_line(lines: list[str]) -> Finding | None:
    """What the program itself wrote before it gave up, without a traceback; only its end counts."""
    return _last_match(lines[-LAST_LINES:], FATAL_LINES)
