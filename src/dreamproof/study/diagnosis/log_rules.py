"""Rules that find the cause of an end in the last lines of an output: for exceptions and for fatal lines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dreamproof.study.diagnosis.log_lines import ERROR_NAME, Log, continued_after, is_quiet, quote, significant
from dreamproof.study.diagnosis.tracebacks import ExceptionChain, Raised, ending_chain, without_tracebacks

# A fatal line is among the last informative lines; an abort prints more after its first line.
FATAL_LINES = 6
ABORT_LINES = 14
SYSTEM_LINES = 80


class Cause(StrEnum):
    """Why an attempt ended."""

    COMPLETED = "completed"
    IMPORT_ERROR = "import_error"
    BAD_CONFIG = "bad_config"
    BUG = "bug"
    NAN = "nan"
    NOT_SAVED = "not_saved"
    HOST_OOM = "host_oom"
    DEVICE_OOM = "device_oom"
    DISK_FULL = "disk_full"
    NETWORK = "network"
    KILLED = "killed"
    HANGUP = "hangup"
    TIMEOUT = "timeout"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    LOCKED = "locked"
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


# Lines in the form that the scheduler and the kernel use; the same text in a line of the program are no evidence.
KERNEL = r"^(?:\[ *\d+\.\d+\] |\w{3} +\d+ [\d:]+ \S+ kernel: (?:\[ *\d+\.\d+\] )?|kernel: )?"
SCHEDULER = r"^(?:slurmstepd|srun|slurmd)(?:-\S+)?: (?:error: )?"
SYSTEM_RULES = _rules(
    (Cause.HOST_OOM, SCHEDULER + r".*\boom[-_]kill(?: event|ed|er)"),
    (Cause.HOST_OOM, SCHEDULER + r".*\bexceeded (?:job |step )?memory limit"),
    (Cause.HOST_OOM, SCHEDULER + r".*: (?:task \S+: )?Out Of Memory$"),
    (Cause.HOST_OOM, KERNEL + r"(?:oom-kill:constraint=|oom_reaper: reaped process \d|\S+ invoked oom-killer:)"),
    (Cause.HOST_OOM, KERNEL + r"(?:Memory cgroup out of memory|Out of memory): Killed process \d+"),
    (Cause.TIMEOUT, SCHEDULER + r"\*\*\* (?:JOB|STEP) \S+ .*DUE TO TIME ?LIMIT"),
    (Cause.PREEMPTED, SCHEDULER + r"\*\*\* (?:JOB|STEP) \S+ .*DUE TO PREEMPTION"),
    (Cause.PREEMPTED, SCHEDULER + r"job \S+ (?:was )?preempted\b"),
    (Cause.NODE_LOST, SCHEDULER + r"\*\*\* (?:JOB|STEP) \S+ .*DUE TO NODE FAILURE"),
    (Cause.NODE_LOST, SCHEDULER + r"Node failure on \S+"),
    (Cause.BAD_CONFIG, r"^dreamproof: .+ cannot be seen from node "),
)

DEVICE_MEMORY = (
    r"RESOURCE_EXHAUSTED\b[^\n]*(?:\bmemory\b|\balloc)|\btorch\.(?:cuda\.)?OutOfMemoryError\b"
    r"|\b(?:CUDA|HIP|XPU|MPS backend) out of memory\b|\bCUDA (?:runtime |driver )?error(?: \d+"
    r"| \(\d+\))?: out of memory\b"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER)_STATUS_ALLOC_FAILED"
    r"|\bcupy\S*OutOfMemoryError\b|\bOOM when allocating tensor\b[^\n]*\bGPU\b|\bout_of_memory: CUDA error\b"
    r"|\bFailed to allocate (?:request for )?[\d.,]+ ?\w* ?(?:bytes )?(?:\([^)]*\) )?on (?:device|GPU)\b"
    r"|GPUassert: out of memory"
    r"|\bINTERNAL: (?:Failed to allocate \d+ bytes|[^\n]*failed to allocate device memory)"
)
HOST_MEMORY = (
    r"\bstd::bad_alloc\b|\bCannot allocate memory\b|\bUnable to allocate [\d.]+ [KMGTP]i?B\b|\bArrayMemoryError\b"
    r"|^MemoryError\b|insufficient shared memory|workers are out of shared memory|\bDefaultCPUAllocator: [^\n]*memory"
    r"|^memory allocation of \d+ bytes failed|\bjava\.lang\.OutOfMemoryError\b|^fatal error: runtime: out of memory"
    r"|JavaScript heap out of memory|\bout of memory\b[^\n]*\bon (?:the )?(?:host|CPU)\b|\bpyarrow\S*ArrowMemoryError\b"
)
DISK = (
    r"No space left on device|Disk quota exceeded|\[Errno (?:28|122)\]|\(os error (?:28|122)\)|\bkind: StorageFull\b"
    r"|\bENOSPC\b|\bEDQUOT\b|database or disk is full"
)
MISSING_MODULE = (
    r"^(?:[\w.]*\.)?(?:ModuleNotFoundError|ImportError)\b|\bDLL load failed\b|: cannot open shared object file"
    r"|: undefined symbol: |version `(?:GLIBC|GLIBCXX|CXXABI)\S*' not found"
)
DEVICE_LOST = (
    r"\buncorrectable ECC|GPU has fallen off the bus|\bGPU is lost\b|CUDA_ERROR_ECC_UNCORRECTABLE"
    r"|cudaErrorECCUncorrectable"
    r"|\bNVRM: Xid \([^)]*\): (?:48|62|63|64|74|79|92|94|95|119|120)\b|\bhardware stack error\b|NVLink error"
)
DISK_LOST = r"\[Errno (?:5|116|107|121)\]|\(os error (?:5|116|107)\)|\bStale (?:NFS )?file handle\b"
r"|\bTransport endpoint is not connected"
SUBJECT = (
    r"(?:loss\w*|rewards?|returns?|values?|grad\w*|param\w*|weights?|states?|actions?|outputs?|inputs?|logits|norms?"
    r"|tensors?|targets?|predictions?|critic|actor|policy|observations?|std|mean|kl)"
)
NOT_FINITE = (
    r"\bFloatingPointError\b|\bfloat (?:NaN|infinity) to integer\b|\breturned nan values\b"
    r"|found invalid values[\s\S]*\bnan\b"
    rf"|\b{SUBJECT}\b[^\n]{{0,60}}?(?:\b(?:is|are|was|were|became|become|has|have|contains?|went|got|turned"
    rf"|hit)\b|=|:) ?"
    r"(?:now |become |all |an? |some |to )?(?:nans?|infs?|infinite|not (?:all )?finite|non-?finite)\b"
    rf"|\b(?:nans?|non-?finite)\b(?:[ /](?:or|and)?[ /]?inf\w*)? ?(?:values? |numbers? )?(?:(?:was "
    rf"|were )?(?:found|detected"
    rf"|encountered)|(?:in|for|of) (?:the )?[\w ]{{0,30}}{SUBJECT}|{SUBJECT})\b"
    r"|\bcontains? (?:NaN|infinity)\b|\bmjWARN_BADQ(?:ACC|POS|VEL)\b|\bNan, Inf or huge value in Q(?:ACC|POS|VEL)\b"
)
SPACES = re.compile(r"\bBox\(|\bspace\b|\bbounds?\b|\brange\b", re.IGNORECASE)
WRONG_SETTINGS = (
    r"\bomegaconf\.|\bhydra\.errors\.|\bConfig(?:Key|Attribute|Type|Composition|Load)?(?:Error|Exception)\b"
    r"|\bMissingMandatoryValue\b|\bMissingConfigException\b|\bpydantic\S*ValidationError\b|\byaml\.\w+\.\w*Error\b"
    r"|\bBadInput\b|\bjsonschema\S*ValidationError\b|^argparse\.ArgumentError\b|\bOverrideParseException\b"
    r"|'\w*(?:Namespace|Config|Settings|Options|AttrDict|EasyDict)' object has no attribute"
    r"|\bUnrecognized(?:Flag)?Error\b|\btoml\w*\.\w*DecodeError\b|\bgin\b[^\n]*(?:doesn't have a parameter"
    r"|No configurable)"
    r"|\bConfigurable '[^']*' doesn't have a parameter"
)
WRONG_MACHINE = (
    r"CUDA driver version is insufficient|Driver/library version mismatch|no kernel image is available|driver on your "
    r"system is too old|Found no NVIDIA driver|no CUDA-capable device|Torch not compiled with CUDA|CUDA_ERROR_NO_DEVICE"
    r"|forward compatibility was attempted|gladLoadGL error|OpenGL platform library has not been loaded"
)
NOT_ALLOWED = r"^PermissionError\b|\[Errno (?:1|13|30)\] |\(os error (?:13|30)\)"
NO_CREDENTIALS = (
    r"\bapi_key not configured\b|\b(?:invalid|missing|expired) (?:api[ _]?key|(?:user |access |auth\w* )?token"
    r"|credentials?)\b"
    r"|\bGatedRepoError\b|\b(?:401|403) (?:Client Error|Unauthorized|Forbidden)\b|\bNo API key\b"
    r"|\bUnable to locate credentials\b"
)
FILE_OF_SETTINGS = (
    r"No such file or directory: '[^']*(?:\.(?:ya?ml|toml|ini|cfg|gin)|(?:config|settings|args|params)[^'/]*\.json)'"
)
NO_NETWORK = (
    r"^(?:requests\.exceptions\.\w*(?:Connection|Connect|Timeout|SSL|Proxy|Chunked)\w*|urllib3\.exceptions\.\w+"
    r"|(?:urllib\.error\.)?URLError|http\.client\.(?:RemoteDisconnected|IncompleteRead)|(?:socket\.)?gaierror"
    r"|Connection(?:Reset|Refused|Aborted)?Error|wandb\.errors\.(?:\w+\.)?CommError|http(?:x"
    r"|core)\.\w*(?:Connect|Timeout|Protocol|Read)\w*"
    r"|aiohttp\.\S+|botocore\.exceptions\.\w*(?:Connect|Endpoint|Timeout)\w*)\b"
    r"|Temporary failure in name resolution|Name or service not known|\bMax retries exceeded with url\b"
    r"|Network is unreachable|No route to host|\b50[0234] (?:Server Error|Bad Gateway|Service Unavailable|Gateway Time)"
    r"|\bStatusCode\.UNAVAILABLE\b|\bTimeoutError: \[Errno 110\]|\bCould not resolve host\b"
)
WORKER_KILLED = (
    r"is killed by signal: (?:Killed|Terminated)|died with <Signals\.SIG(?:KILL|TERM)"
    r"|terminated with signal SIG(?:KILL|TERM)"
)

EXCEPTION_RULES = _rules(
    (Cause.DEVICE_OOM, DEVICE_MEMORY),
    (Cause.DISK_FULL, DISK),
    (Cause.HOST_OOM, HOST_MEMORY),
    (Cause.IMPORT_ERROR, MISSING_MODULE),
    (Cause.BAD_CONFIG, WRONG_SETTINGS),
    (Cause.BAD_CONFIG, FILE_OF_SETTINGS),
    (Cause.BAD_CONFIG, WRONG_MACHINE),
    (Cause.BAD_CONFIG, NO_CREDENTIALS),
    (Cause.BAD_CONFIG, NOT_ALLOWED),
    (Cause.NODE_LOST, DEVICE_LOST),
    (Cause.NODE_LOST, DISK_LOST),
    (Cause.NETWORK, NO_NETWORK),
    (Cause.NAN, NOT_FINITE),
    (Cause.KILLED, r"^KeyboardInterrupt\b"),
    (Cause.KILLED, WORKER_KILLED),
)

WORKER_SIGNAL = re.compile(r"\bSignal \d+ \(SIG(\w+)\) received by PID \d+")

# How a line begins in which a program reports its own failure.
REPORTED = (
    r"^(?:(?:[\w.]+:)?\[?(?:ERROR|FATAL|CRITICAL|E|F)\b\]?.*?|(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception): .*?"
    r"|\s*what\(\):.*?|.*\bCheck failed: .*?|(?:Warp )?(?:CUDA|HIP) error.*?|Error\b.*?|thread '[^']*' panicked.*?"
    r"|called `Result::unwrap\(\)`.*?)"
)
# As above, or in the form of a shell tool: `cp: error writing 'x': No space left on device`.
FAILED = rf"(?:{REPORTED}|^[\w./ -]+: .*?)"
STOPS = (
    r"\b(?:stop(?:ping|ped)?|abort(?:ing|ed)?|exit(?:ing)?|giv(?:ing|en|e) up|terminat\w+|halt\w*|quit\w*"
    r"|fatal|diverged)\b"
)
SHELL = r"^\S+: line \d+: +\d+ "

FATAL_RULES = _rules(
    (Cause.DEVICE_OOM, f"{REPORTED}(?:{DEVICE_MEMORY})"),
    (Cause.DEVICE_OOM, r"^\s*what\(\):.*\bout of memory\b"),
    (Cause.DISK_FULL, f"{FAILED}(?:{DISK})"),
    (Cause.HOST_OOM, r"^\s*what\(\):\s+std::bad_alloc|^terminate called .*'std::bad_alloc'"),
    (Cause.HOST_OOM, r"^memory allocation of \d+ bytes failed|^fatal error: runtime: out of memory|^MemoryError\b"),
    (Cause.HOST_OOM, r"\bjava\.lang\.OutOfMemoryError\b|^FATAL ERROR: .*JavaScript heap out of memory"),
    (Cause.HOST_OOM, r"^(?:\S+: )+(?:\S+ )*(?:\[Errno 12\] )?Cannot allocate memory$|insufficient shared memory"),
    (
        Cause.IMPORT_ERROR,
        r"^(?:\S*/)?python[\d.]*: No module named |^(?:\S*/)?python[\d.]*: Error while finding module",
    ),
    (Cause.IMPORT_ERROR, r"^(?:ModuleNotFoundError|ImportError): |: error while loading shared libraries: "),
    (Cause.IMPORT_ERROR, r": symbol lookup error: |: version `GLIBC\S*' not found"),
    (
        Cause.BAD_CONFIG,
        (
            r"^\S+(?: \S+){0,2}: error: (?:unrecognized arguments|the following arguments|argument |one of the"
            r"|.*not allowed with)"
        ),
    ),
    (
        Cause.BAD_CONFIG,
        (
            r"\bNo such option\b|\bMissing (?:option|argument|parameter)\b|\bError: Invalid value for\b"
            r"|\bNo such command\b"
        ),
    ),
    (Cause.BAD_CONFIG, r"\bGot unexpected extra argument|FATAL Flags parsing error|^ERROR: Could not consume arg"),
    (
        Cause.BAD_CONFIG,
        (
            r"\bUnrecognized (?:options?|arguments?)\b|^error: (?:unexpected argument|invalid value"
            r"|the following required)"
        ),
    ),
    (Cause.BAD_CONFIG, r"^dreamproof: \S+ cannot be seen from node "),
    (Cause.BAD_CONFIG, r"can't open file '|: command not found$|: unknown key '|: the key '[^']*' is missing"),
    (
        Cause.BAD_CONFIG,
        r"^Could not override '|^Missing mandatory value: |^Key '[^']*' is not in struct|: Could not find '",
    ),
    (
        Cause.BAD_CONFIG,
        (
            r"^(?:Cannot find primary config|Primary config (?:module|directory)|You must specify '"
            r"|Error merging override)"
        ),
    ),
    (Cause.BAD_CONFIG, r"^(?:LexerNoViableAlt|no viable alternative|mismatched input|Error parsing override)"),
    (
        Cause.BAD_CONFIG,
        rf"^(?:pydantic\S*ValidationError|\S*ConfigError|\S*ConfigException)\b|^\S+Error: .*(?:{WRONG_MACHINE})",
    ),
    (Cause.BAD_CONFIG, rf"{FAILED}(?:{NO_CREDENTIALS})|^wandb: ERROR .*api_key not configured"),
    (
        Cause.BAD_CONFIG,
        (
            r"^(?:PermissionError: |(?:\S+: )+(?:\S+ )*(?:Permission denied|Read-only file system)$)"
            r"|Driver/library version mismatch$"
        ),
    ),
    (Cause.NODE_LOST, f"{FAILED}(?:{DEVICE_LOST}|{DISK_LOST})|{KERNEL}(?:{DEVICE_LOST})|: Input/output error$"),
    (Cause.NETWORK, f"{NO_NETWORK}"),
    (Cause.KILLED, r"^KeyboardInterrupt\b|^Aborted!$|^\^C$|" + SHELL + r"(?:Killed|Terminated)\b|" + WORKER_KILLED),
    (Cause.BUG, SHELL + r"(?:Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)"),
)
# First lines of an abort; later lines may be more specific.
ABORT_RULES = _rules(
    (
        Cause.BUG,
        r"^thread '[^']*' (?:\(\d+\) )?panicked at |^panic: |^fatal error: |^fatal runtime error: |\bpanicked at '",
    ),
    (
        Cause.BUG,
        (
            r"\bterminate called (?:after throwing|without an active)|^libc\+\+abi: terminating"
            r"|\bpure virtual method called"
        ),
    ),
    (
        Cause.BUG,
        r"^Fatal Python error: |^\*\*\* SIG\w+ received|\*\*\* Process received signal \*\*\*|Caught signal \d+ \(",
    ),
    (
        Cause.BUG,
        (
            r"^(?:\S+: )?(?:Segmentation fault|Bus error|Illegal instruction|Floating point exception"
            r"|Aborted)(?: \(core dumped\))?$"
        ),
    ),
    (
        Cause.BUG,
        (
            r"\bAssertion [`'].*' failed|\bCheck failed: |\b(?:Address|Undefined\w*|Thread)Sanitizer:"
            r"|^\*\*\* stack smashing"
        ),
    ),
    (
        Cause.BUG,
        (
            r"^(?:\S+: )?(?:double free or corruption|free\(\): |malloc\(\): |munmap_chunk\(\)|corrupted (?:size"
            r"|double)|malloc_consol)"
        ),
    ),
    (
        Cause.BUG,
        (
            r"\bCUDA (?:runtime |driver )?error\b|CUDA_ERROR_|cudaError[A-Z]|\billegal memory access\b"
            r"|device-side assert triggered"
        ),
    ),
    (
        Cause.BUG,
        (
            r"\bWatchdog caught collective operation timeout|\bNCCL WARN .*(?:error|failed)|\bDistBackendError\b"
            r"|\bCUDNN_STATUS_"
        ),
    ),
    (
        Cause.BUG,
        (
            r"^ERROR: LoadError: |^Unhandled exception|^Uncaught \w+|^Exception in thread|^mujoco\S*: "
            r"|^(?:Mu[Jj]o[Cc]o|MJX) (?:fatal )?error"
        ),
    ),
)
# A last line in the form of an exception, where the traceback itself is not in the log.
EXCEPTION_LINE = re.compile(
    r"^(?:[\w.]+: ?|\[?(?:ERROR|CRITICAL|FATAL)\]?:? ?(?:[\w.]+: ?)?)?(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): "
)
EXCEPTION_LINES = 3
USAGE_ERROR = re.compile(r"^\S+(?: \S+){0,2}: error: ")
USAGE_LINES = 30

SETTINGS_NAME = re.compile(
    r"\b(?:cfg|conf|config|configs|settings|options|opts|args|hparams|hyperparams|flags|argparse)\b|_(?:cfg|config)\b",
    re.IGNORECASE,
)
MISSING_KEY = re.compile(r"^KeyError: ['\"]|^TypeError: .*(?:missing \d+ required|unexpected keyword argument)")
# What breaks a program from outside also breaks the code that handles the first exception.
FOLLOWED_BY_OTHERS = {Cause.DEVICE_OOM, Cause.HOST_OOM, Cause.DISK_FULL, Cause.NAN, Cause.NODE_LOST, Cause.KILLED}


def _cause_of(found: Raised) -> Cause:
    for cause, pattern in EXCEPTION_RULES:
        if pattern.search(found.message) and not (cause is Cause.NAN and SPACES.search(found.line)):
            return cause
    if MISSING_KEY.match(found.line) and SETTINGS_NAME.search(found.about):
        return Cause.BAD_CONFIG
    return Cause.BUG


def _deciding_exception(chain: ExceptionChain) -> tuple[Raised, Cause]:
    """The exception of a chain that names the cause: the last, or the one that it wraps."""
    causes = [_cause_of(found) for found in chain.raised]
    place = len(causes) - 1
    while place > 0:
        last, before = chain.raised[place], chain.raised[place - 1]
        stands_for = last.is_messenger or (last.wraps(before) and causes[place - 1] is not Cause.BUG)
        follows = causes[place] is Cause.BUG and causes[place - 1] in FOLLOWED_BY_OTHERS
        if not (stands_for or follows):
            break
        place -= 1
    return chain.raised[place], causes[place]


def read_exception(log: Log) -> Finding | None:
    """The cause from the traceback that ended the program; None if there is none."""
    chain = ending_chain(log)
    if chain is None:
        return None
    found, cause = _deciding_exception(chain)
    before = _of_a_worker(log, chain) if found.is_messenger else None
    frame = [quote(found.frame)] if found.frame else []
    if before is not None:
        return Finding(before.cause, [*before.quotes, quote(found.line)])
    deciding = next((line for line in reversed(found.message.splitlines()) if _shows(cause, line)), found.line)
    extra = [quote(deciding)] if deciding != found.line else []
    return Finding(cause, [quote(found.line), *extra, *frame])


def _of_a_worker(log: Log, chain: ExceptionChain) -> Finding | None:
    """How the worker ended whose failure the traceback only reports: by a signal, or with its own fatal line."""
    for line in log.lines[chain.start :]:
        found = WORKER_SIGNAL.search(line)
        if found:
            cause = Cause.KILLED if found[1] in ("KILL", "TERM") else Cause.BUG
            return Finding(cause, [quote(line)])
    return _last_match([line for line in significant(log.lines[: chain.start])[-3:] if not is_quiet(line)], FATAL_RULES)


def ends_with_exception(log: Log) -> bool:
    """Whether nothing but noise follows the traceback that ended the program."""
    chain = ending_chain(log)
    return chain is not None and not significant(log.lines[chain.end :])


def _shows(cause: Cause, line: str) -> bool:
    return any(rule == cause and pattern.search(line) for rule, pattern in EXCEPTION_RULES)


def _last_match(lines: Sequence[str], rules: list[Rule]) -> Finding | None:
    for line in reversed(lines):
        for cause, pattern in rules:
            if pattern.search(line):
                return Finding(cause, [quote(line)])
    return None


def read_system_line(log: Log) -> Finding | None:
    """What the scheduler or the kernel wrote about this end; memory goes before what followed from it."""
    lines = log.lines[-SYSTEM_LINES:]
    memory = [rule for rule in SYSTEM_RULES if rule[0] is Cause.HOST_OOM]
    return _last_match(lines, memory) or _last_match(lines, SYSTEM_RULES)


def read_fatal_line(log: Log) -> Finding | None:
    """What the program itself wrote before it gave up, without a traceback; what it survived does not count."""
    log = without_tracebacks(log)
    last = significant(log.lines)
    reported = [line for line in last[-FATAL_LINES:] if not is_quiet(line)]
    found = _last_match([line for line in reported if _is_last(log, line)], FATAL_RULES)
    found = found or _refusal(log) or _usage_error(last)
    return found or _stopped_for_nan(last) or _abort(log, last) or _exception_line(reported)


def _refusal(log: Log) -> Finding | None:
    """What our own trainers refuse: an error and a hint as the last two lines."""
    *_, seen, hint = ["", "", *(line for line in log.lines if line.strip())]
    if not seen.startswith("error: ") or not hint.startswith("  hint: "):
        return None
    return Finding(Cause.BAD_CONFIG, [quote(seen), quote(hint)])


def _usage_error(last: list[str]) -> Finding | None:
    """A command line that was refused: the usage, then the error as the last line."""
    shown = any(line.startswith("usage: ") for line in last[-USAGE_LINES:])
    if not shown or not USAGE_ERROR.match(last[-1]):
        return None
    return Finding(Cause.BAD_CONFIG, [quote(last[-1])])


def _is_last(log: Log, line: str) -> bool:
    """Whether no work follows the line."""
    place = max(place for place, other in enumerate(log.lines) if other == line)
    return not continued_after(log, place + 1, log.ranks[place])


def _stopped_for_nan(last: list[str]) -> Finding | None:
    """A program that reports in its last lines that it stops because something is not finite."""
    for line in reversed(last[-EXCEPTION_LINES:]):
        if re.search(NOT_FINITE, line, re.IGNORECASE) and re.search(STOPS, line, re.IGNORECASE):
            return Finding(Cause.NAN, [quote(line)])
    return None


def _abort(log: Log, last: list[str]) -> Finding | None:
    opened = [line for line in last[-ABORT_LINES:] if not is_quiet(line) and _is_last(log, line)]
    found = _last_match(opened, ABORT_RULES)
    if found is None:
        return None
    # The first line of an abort is the most informative, e.g. what was thrown.
    first = next(line for line in opened if any(pattern.search(line) for _, pattern in ABORT_RULES))
    return Finding(found.cause, list(dict.fromkeys([quote(first), *found.quotes])))


def _exception_line(reported: list[str]) -> Finding | None:
    found = [line for line in reported[-EXCEPTION_LINES:] if EXCEPTION_LINE.match(line) and ERROR_NAME.search(line)]
    if not found:
        return None
    cause = next((cause for cause, pattern in EXCEPTION_RULES if pattern.search(found[-1])), Cause.BUG)
    return Finding(cause, [quote(found[-1])])
