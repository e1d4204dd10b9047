"""Text from logs, run folders and received files, made safe to print, to record and to open in a spreadsheet."""

import re

# Colours, cursor movements, window titles and clipboard writes: what a terminal would obey instead of show.
ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,4000}(?:\x07|\x1b\\)?|[PX^_][^\x1b\n]{0,4000}(?:\x1b\\)?"
    r"|[ -/]*[0-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
# Control characters except tab and newline, marks that turn the reading direction, and halves of characters.
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
PLAIN_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z|[+-]?(?:inf|nan)\Z")
MASK = "[secret]"

SECRET_NAME = re.compile(
    r"(?:^|[_.-])(?:api_?key|access_?key|secret|secrets|token|passw(?:or)?d|passphrase|private_?key|credentials?)"
    r"(?:$|[_.-])|^.*(?:apikey|_key_id|authtoken)$",
    re.IGNORECASE,
)
# Names that match but hold counts, paths or switches, not secrets.
HARMLESS_NAME = re.compile(
    r"(?:_file|_path|_dir|_len|_length|_size|_count|_limit|_dim|_parallelism)$|^(?:max|min|num|n)_|tokenizers?_",
    re.IGNORECASE,
)
SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{18,}|sk-[A-Za-z0-9_-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{35}|local-[0-9a-f]{40}|wandb_v\d_\w{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})|-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^/\s:@]+:[^/\s:@]{3,}@"
)
SECRET_SETTING = re.compile(
    r"(?P<name>\b[\w.-]*(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|passphrase|private[_-]?key))"
    r"(?P<equals>[\"']?\s*[:=]\s*[\"']?)(?![$<{~/])(?P<value>[^\s\"',;]{12,})",
    re.IGNORECASE,
)
BEARER = re.compile(r"\b(?P<kind>Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{12,}")


def printable(text: str) -> str:
    """The text without escape sequences and control characters; tabs and newlines stay."""
    if text.isascii() and text.isprintable():
        return text
    return CONTROLS.sub(_control_mark, ESCAPES.sub("", text))


def _control_mark(found: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= found[0] <= "\udfff" else ""


def one_line(text: str) -> str:
    """A printable text without line breaks and tabs."""
    return re.sub(r"[\t\n]+", " ", printable(text))


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable's name or its value is that of a password, key or token."""
    named = SECRET_NAME.search(name) is not None and HARMLESS_NAME.search(name) is None
    return bool(value) and (named or SECRET_VALUE.search(value) is not None)


def mask_secrets(text: str) -> str:
    """The text with passwords, keys and tokens replaced; for lines that are recorded permanently."""
    text = BEARER.sub(lambda found: f"{found['kind']} {MASK}", text)
    text = SECRET_VALUE.sub(lambda found: f"://{MASK}@" if found[0].startswith("://") else MASK, text)
    return SECRET_SETTING.sub(lambda found: f"{found['name']}{found['equals']}{MASK}", text)


def spreadsheet_text(text: str) -> str:
    """A text that no spreadsheet takes for a formula: such a beginning gets an apostrophe before it."""
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULA) and not PLAIN_NUMBER.match(text) else text
