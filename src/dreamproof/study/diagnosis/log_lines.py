"""Lines of a program's output: cleaned, quoted, and sorted into work, noise and the rest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dreamproof.base.safe_text import mask_secrets, one_line, printable

LONGEST_LINE = 800
KEPT_OF_EACH_END = LONGEST_LINE // 2
LONGEST_QUOTE = 300
QUOTED_LAST_LINES = 3
# So many lines of any kind after a traceback show that the program continued.
MANY_LINES = 12

STAMP = re.compile(r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?:: | - |\s?\|\s?| |$)")
RANK = re.compile(
    r"^(?:\[(?:rank|default)(?P<a>\d+)\]:? ?|\[(?P<b>\d+)\]: ?|\[(?P<c>\d+,\d+)\]<std(?:err|out)>: ?"
    r"|\((?P<d>[\w.]* ?pid=\d+)(?:, ip=[\d.]+)?\) ?|\[(?P<e>\d+)\] (?=Traceback|  File|\S+(?:Error|Exception)))"
)
LABEL = re.compile(r"^(?P<a>\d{1,5}): ?")
LABELLED_TRACEBACK = re.compile(r"^\d{1,5}: ?Traceback", re.MULTILINE)
GROUP = re.compile(r"^\s+\| ?")

PROGRESS_BAR = re.compile(
    r"\d+%\s?\||\d\s?(?:it|s|steps?|batch(?:es)?|ep)/(?:it|s|step|batch)\b[^\n]*\]|━{3,}|[█▏▎▍▌▋▊▉]"
)
BAR_COUNT = re.compile(r"\b(\d+)/\d+\b|\b(\d+)%")
FRAME = re.compile(
    r"^\s(?!\s*what\(\):)|^#\d+\s|^frame #\d+|^(?:\s*@\s+)?0x[0-9a-f]+|^\S+\(\+0x|^File \"|^(?:Current t|T)hread 0x"
    r"|^Extension modules:|^stack backtrace:|^note: (?:run with|Some details)|^goroutine \d+|^\+[-+]+|^[-=*─╭╰│┃]{3,}$"
    r"|^Python runtime state:|^=+ *$",
    re.IGNORECASE,
)
EPILOGUE = re.compile(
    r"^(?:wandb: (?!ERROR)|srun: |slurmstepd: |mpirun|prterun|make(?:\[\d+\])?: \*\*\*|real\s|user\s|sys\s|sys:1: "
    r"|Exception ignored|Set the environment variable|To see the full|For debugging consider|Compile with `TORCH_USE"
    r"|CUDA kernel errors might|You may need to|Search for `|ERROR conda\.cli|Command exited with|\S+ FAILED$"
    r"|Failures:$"
    r"|Root Cause|<NO_OTHER_FAILURES>|Sending process \d+|Traceback \(most recent|During handling|The above exception"
    r"|-{3,}|={3,}|\*{3,}$)"
    r"|^[WI]\d{4} |^\[[WI]\d{4} |^[WI] external/|\b(?:User|Resource|Runtime|Deprecation|Future|Import)Warning: "
)
QUIET_LEVEL = re.compile(
    r"^(?:\S+ ){0,3}\[?\(?(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE|HINT)\b|(?:^|\s|\[)(?:WARNING|WARN|INFO"
    r"|DEBUG)(?:\]|:|\s-)"
    r"|^[WI]\d{4} |^[WI] external/|\bWarning: |^wandb: (?!ERROR)",
)
LOGGED_QUIETLY = re.compile(r"(?:^|\s|\[)(?:WARNING|WARN|INFO|DEBUG)(?:\]|:|\s-|\s)", re.IGNORECASE)
WORK = re.compile(
    r"\b(?:global_)?(?:steps?|iter(?:ation)?s?|epochs?|episodes?|ep|frames?|updates?|timesteps?|total_timesteps|loss|"
    r"reward|return|fps|R)\b[\"']?\s*[:=#|]?\s*\[?-?\d|^\[\s*\d+(?:\s*/\s*\d+)?\s*\]|^\|\s+[\w/]+\s*\|\s*-?[\d.]",
    re.IGNORECASE,
)
SURVIVED = re.compile(
    r"\bfall(?:s|ing)? ?back\b|\busing (?:the |a )?(?:slow|default|cpu|pure|reference|python|\S+ instead)|"
    r"(?<!cannot )(?<!unable to )(?<!not )\bcontinu(?:e|es|ing)\b|\bretrying\b|\bwill retry\b|\btry(?:ing)? again\b|"
    r"\bskip(?:s|ped|ping)?\b|\bignor(?:ed|ing)\b|\bdisabl(?:ed|ing)\b|\brecovered\b|\bproceeding\b|\bgoing on\b|"
    r"\bwill be slow|\bslow path\b|\boptional\b|\bnon-?fatal\b|\bnot fatal\b|\bworking around\b",
    re.IGNORECASE,
)
ECHO = re.compile(
    r"^\s*[\w.\-/ ]+[:=]\s*[\[{(].*[\]})],?$|^\s*(?:- |--)?[\w.\-/]+\s*[:=]\s*\S+$|^[\w.]+=\S+(?: [\w.]+=\S+)+$"
)
ERROR_NAME = re.compile(r"(?:Error|Exception|Interrupt|Exit)\b|\b(?:error|fatal|panic)\b")


@dataclass(frozen=True)
class Log:
    """The end of an output: each line as printed, and as read without stamp, rank and drawing."""

    printed: Sequence[str]
    lines: Sequence[str]
    ranks: Sequence[str]

    def last_lines(self, besides: list[str]) -> list[str]:
        """The last lines as quotes, the very last one named so; earlier ones only if they are not quoted already."""
        if not self.printed:
            return ["its output is empty"]
        *before, last = [quote(line) for line in self.printed[-QUOTED_LAST_LINES:]]
        return [*(f"before it: {line}" for line in before if line not in besides), f"last line: {last}"]


def quote(line: str) -> str:
    """One line of evidence: printable, without secrets, short enough to read."""
    text = mask_secrets(one_line(line)).strip()
    return text if len(text) <= LONGEST_QUOTE else text[: LONGEST_QUOTE - 1] + "…"


def read_log(tail: str) -> Log:
    """The lines of an output without colours and progress-bar returns."""
    text = tail.replace("\x00", "")
    parts = [_shortened(printable(part).rstrip()) for part in re.split(r"[\n\r]+", text)]
    printed = [part for part in parts if part]
    labelled = LABELLED_TRACEBACK.search(text) is not None
    read = [_without_prefix(line, labelled) for line in printed]
    return Log(printed, [line for line, _ in read], [rank for _, rank in read])


def _shortened(line: str) -> str:
    """A line without end keeps its first and its last part."""
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:KEPT_OF_EACH_END]} … {line[-KEPT_OF_EACH_END:]}"


def _without_prefix(line: str, labelled: bool) -> tuple[str, str]:
    """A line without time stamp, rank and the drawing of exception groups; and its rank."""
    line = STAMP.sub("", line, count=1)
    found = RANK.match(line) or (LABEL.match(line) if labelled else None)
    rank = next((value for value in found.groupdict().values() if value), "") if found else ""
    line = line[found.end() :] if found else line
    return GROUP.sub("", STAMP.sub("", line, count=1)), rank


def is_noise(line: str) -> bool:
    """Whether a line carries no information about the end: stack frames, drawings, lines of launchers."""
    return bool(FRAME.search(line) or EPILOGUE.search(line) or PROGRESS_BAR.search(line))


def is_quiet(line: str) -> bool:
    """Whether a line is only a warning, an echoed setting, or states that the program continues."""
    if QUIET_LEVEL.search(line) or SURVIVED.search(line):
        return True
    return ECHO.match(line) is not None and ERROR_NAME.search(line) is None


def significant(lines: Sequence[str]) -> list[str]:
    """The lines that are not noise."""
    return [line for line in lines if not is_noise(line)]


def continued_after(log: Log, end: int, rank: str = "", logged_quietly: bool = False) -> bool:
    """Whether the lines from `end` show that the program worked on; those of other ranks show nothing."""
    rows = [line for line, other in zip(log.lines[end:], log.ranks[end:], strict=True) if other in ("", rank)]
    after = significant(rows)
    if logged_quietly and after:
        return True
    if any(SURVIVED.search(line) for line in after[:2]):
        return True
    bars = {found[0] for line in rows if PROGRESS_BAR.search(line) for found in BAR_COUNT.findall(line) if found[0]}
    work = {line for line in after if WORK.search(line) and not ERROR_NAME.search(line)}
    return len(work) >= 2 or len(bars) >= 3 or len(after) >= MANY_LINES
