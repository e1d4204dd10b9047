"""Every command that the program can print as a hint is one that its own parser accepts."""

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import Verb

import dreamproof as package
from dreamproof.base.text import quoted
from dreamproof.cli.main import app
from dreamproof.testing.small_study import declare

SOURCE = Path(package.__file__).parent
SHOWN = ("cli", "study", "settings", "runs", "base", "report")
COMMAND = re.compile(r"dreamproof ([a-z]+(?: (?:(?!dreamproof)[^;`\n])+)?)")
# What stands for a value that is only known when the hint is printed.
VALUE = "VALUE"
# Where the command ends and the sentence continues.
ENDS = re.compile(r"[,)]|\.(?:\s|$)| (?:if|in|to|then|with|and|or|where|lists|repeats|adopts|\()\b.*")


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
    return None


def _docstrings(tree: ast.AST) -> set[int]:
    found = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                found.add(id(one.value))
    return found


def printed_commands() -> Iterator[tuple[str, str]]:
    """(place, command) of everything in the source that looks like a call of the program."""
    for room in SHOWN:
        for path in sorted((SOURCE / room).rglob("*.py")):
            source = path.read_text("utf-8")
            if f"{package.__name__} " not in source:  # parsing is slow, and every worker collects
                continue
            tree = ast.parse(source)
            left_out = _docstrings(tree)
            inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in ast.walk(tree):
                text = _text(node) if isinstance(node, ast.expr) and id(node) not in left_out | inner else None
                for found in COMMAND.finditer(text or ""):
                    yield f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}", found[1]


COMMANDS = sorted(set(printed_commands()))
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def arguments_of(command: str) -> list[str]:
    """The words of a command, without the sentence that follows it and the words that redirect its output."""
    plain = ENDS.sub("", command)
    return shlex.split(re.split(r"\s[>|]\s", plain)[0])


def test_there_are_hints_to_check() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize(("place", "command"), COMMANDS, ids=[f"{place} {text}"[:80] for place, text in COMMANDS])
def test_a_hint_is_accepted_by_the_parser(place: str, command: str) -> None:
    verb, *arguments = arguments_of(command)
    if verb == VALUE:  # a verb that is chosen when it is printed; tests of that verb print it
        return
    assert verb in VERBS, f"{place}: there is no verb '{verb}'"
    options = {"--help"} | {option for parameter in VERBS[verb].params for option in parameter.opts}
    unknown = [word for word in arguments if word.startswith("--") and word.split("=")[0] not in options]
    assert unknown == [], f"{place}: dreamproof {verb} has no {unknown}"
    positional = [word for word in arguments if not word.startswith("-") and word != VALUE]
    values = sum(word.startswith("--") and not _is_flag(VERBS[verb], word) for word in arguments)
    most = sum(parameter.param_type_name == "argument" for parameter in VERBS[verb].params)
    assert len(positional) - values <= most, f"{place}: dreamproof {verb} takes {most} arguments: {positional}"


def _is_flag(verb: Any, option: str) -> bool:
    found = next((one for one in verb.params if option.split("=")[0] in one.opts), None)
    return found is None or bool(getattr(found, "is_flag", False)) or "=" in option


def _unquoted_values() -> Iterator[str]:
    """Values right behind a verb that are put into a hint as they are."""
    for room in SHOWN:
        for path in sorted((SOURCE / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                for text, value in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
                    behind_verb = isinstance(text, ast.Constant) and re.search(r"dreamproof [a-z]+ $", str(text.value))
                    if behind_verb and isinstance(value, ast.FormattedValue):
                        shown = ast.unparse(value.value)
                        if not shown.startswith("quoted("):
                            yield f"{path.relative_to(SOURCE)}: {shown}"


def test_a_path_in_a_hint_is_quoted_for_the_shell() -> None:
    assert set(_unquoted_values()) == {"cli/examples.py: name"}  # a name from our own list
    assert quoted(Path("my studies/研究.yaml")) == "'my studies/研究.yaml'" and quoted("mine.yaml") == "mine.yaml"


def unquoted_paths() -> Iterator[str]:
    """Every hint of an error that names a path to a command as the shell would not take it."""
    command = re.compile(r"(?:^|; |, or |, then )(?:ls(?: -ld)?|file|head|df -h|rm|sed -n [^;]*p|dreamproof [a-z]+) $")
    for path in sorted(SOURCE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            is_error = isinstance(call, ast.Call) and len(call.args) > 1 and ast.unparse(call.func) != "Unreadable"
            hint = call.args[1] if isinstance(call, ast.Call) and is_error else None
            parts = hint.values if isinstance(hint, ast.JoinedStr) else []
            text = ""
            for part in parts:
                if isinstance(part, ast.Constant):
                    text += str(part.value)
                    continue
                shown = ast.unparse(part.value) if isinstance(part, ast.FormattedValue) else ""
                if command.search(text) and not shown.startswith(("quoted(", "name")):
                    yield f"{path.relative_to(SOURCE)}:{call.lineno}: {text}{shown}"
                text += VALUE


def test_every_path_in_a_hint_is_quoted() -> None:
    assert list(unquoted_paths()) == []


def test_a_path_with_spaces_is_quoted_where_it_is_printed(dreamproof: Verb, tmp_path: Path) -> None:
    file = declare(tmp_path / "my studies")
    assert dreamproof("plan", file).output.endswith(f"next        dreamproof run {quoted(file)}\n")
    file.write_text("name: [\n")
    assert f"p '{file}'" in dreamproof("plan", file).errors
    file.write_bytes(b"\xff")
    assert f"hint: file '{file}'" in dreamproof("plan", file).errors
