"""The parent of all settings, and errors that name file, line and the nearest valid key."""

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from dreamproof.base.errors import BadInput
from dreamproof.base.files import FaultKind, Unreadable, encodable, read_file
from dreamproof.base.text import quoted
from dreamproof.settings.complaints import Place, complaints
from dreamproof.settings.renames import current_names
from dreamproof.settings.yaml_guard import Loader, check_yaml

Model = TypeVar("Model", bound="Settings")
YAML_BYTES = 4 << 20


class Settings(BaseModel):
    """Frozen; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    old_names: ClassVar[dict[str, str]] = {}
    """Old name → current name of renamed keys; both are read."""
    added: ClassVar[dict[str, Any]] = {}
    """Keys that came later, each with the value (as JSON) that means what was done before it existed."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, value: Any) -> Any:
        return current_names(cls, value)


def _duplicate_key(node: yaml.MappingNode) -> yaml.Node | None:
    seen: set[str] = set()
    keys: list[yaml.Node] = [key for key, _ in node.value]
    for key in keys:
        name = str(key.value)  # a key may itself be a list, which the loader refuses
        if name in seen:
            return key
        seen.add(name)
    return None


def _lines(node: yaml.Node | None, place: Place, found: dict[Place, int]) -> None:
    """Fills `found` with the 1-based line of every key and list item below `node`."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            found[(*place, str(key.value))] = key.start_mark.line + 1
            _lines(value, (*place, str(key.value)), found)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found[(*place, index)] = value.start_mark.line + 1
            _lines(value, (*place, index), found)


def _refuse_duplicates(node: yaml.Node | None, path: Path) -> None:
    if isinstance(node, yaml.MappingNode):
        twice = _duplicate_key(node)
        if twice is not None:
            line = twice.start_mark.line + 1
            raise BadInput(
                f"{path}:{line}: the key '{twice.value}' is given twice", f"keep one of them in {quoted(path)}"
            )
        for _, value in node.value:
            _refuse_duplicates(value, path)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_duplicates(value, path)


def _is_tab(text: str, mark: yaml.Mark | None) -> bool:
    """Whether a tab is what the parser of YAML does not understand, at the mark or in the line's indentation."""
    lines = text.split("\n")
    if mark is None or mark.line >= len(lines):
        return False
    line = lines[mark.line]
    indentation = line[: len(line) - len(line.lstrip())]
    return "\t" in indentation or line[mark.column : mark.column + 1] == "\t"


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[Place, int]]:
    """The mapping in a YAML file, and the line of every key."""
    content = read_file(path, YAML_BYTES)
    if isinstance(content, Unreadable):
        if content.fault is FaultKind.ABSENT:
            raise BadInput(f"{path}: no such file", "ls studies/")
        raise BadInput(f"{path}: {content.reason}", f"ls -ld {quoted(path)}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: is not UTF-8 text ({error.reason} at byte {error.start})", f"file {quoted(path)}"
        ) from None
    try:
        check_yaml(text, path)
        node = yaml.compose(text, Loader=Loader)
        _refuse_duplicates(node, path)
        value = yaml.load(text, Loader=Loader)  # a SafeLoader
    except (RecursionError, ValueError) as error:  # ValueError: a date or a number that there is not
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise BadInput(f"{path}: not valid YAML: {reason}", f"head {quoted(path)}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(error, "problem", None) or str(error)
        if _is_tab(text, mark):
            problem = "a tab stands where YAML takes only spaces; replace every tab by spaces"
        raise BadInput(
            f"{path}:{line}: not valid YAML: {problem}", f"sed -n {max(1, line - 2)},{line + 2}p {quoted(path)}"
        ) from None
    if not isinstance(value, dict):
        kind = "empty" if value is None else f"a {type(value).__name__}"
        raise BadInput(f"{path}:1: a mapping of keys was expected, the file is {kind}", "dreamproof schema")
    if "\\" in text and encodable(value) != value:
        raise BadInput(
            f"{path}: holds a control character or half of a surrogate pair (\\u202e, \\ud800 or the like)",
            f"head {quoted(path)}",
        )
    found: dict[Place, int] = {}
    _lines(node, (), found)
    return value, found


def validate(
    model: type[Model],
    value: dict[str, Any],
    source: str,
    lines: dict[Place, int] | None = None,
    hint: str = "dreamproof schema",
) -> Model:
    """Builds `model` from `value`, or raises BadInput with the hint that lists every wrong key with its line."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        wrong = complaints(model, value, error, source, lines or {})
    raise BadInput("\n".join(wrong), hint)
