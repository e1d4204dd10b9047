"""What is wrong with a file of settings, in sentences that name its keys and lines."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from dreamproof.base.text import nearest_word

Place = tuple[str | int, ...]
Lines = Mapping[Place, int]

MEMBER = re.compile(r"(function-|tagged-).*|[a-z-]+\[.*|str|int|float|bool|[A-Z]\w*")
"""What pydantic adds to a place to say which member of a union it tried."""

EXPECTED = {
    "string": "text",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping of keys",
    "model": "a mapping of keys",
}
"""The first word of a type of error → what was expected."""

SHOWN_CHARACTERS = 60


def complaints(model: type[BaseModel], value: Any, error: ValidationError, source: str, lines: Lines) -> list[str]:
    """A sentence for every wrong key of `value`, in the order of the model's fields."""
    found = [(_shown(detail["loc"], value), detail) for detail in error.errors()]
    kept = [(place, detail) for place, detail in found if not _of_another_form(place, detail, found)]
    return list(dict.fromkeys(_complaint(model, place, detail, source, lines) for place, detail in kept))


def sentence(detail: Mapping[str, Any]) -> str:
    """What is wrong with one value: must be a whole number, not 'ten'."""
    kind, value = str(detail["type"]), detail.get("input")
    expected = (
        EXPECTED.get(kind.split("_")[0]) if kind.endswith(("_type", "_parsing", "_number", "_from_float")) else None
    )
    if expected is not None:
        quoting = "; put it in quotation marks" if expected == "text" and isinstance(value, int | float) else ""
        return f"must be {expected}, not {_value(value)}{quoting}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    for begin in ("Input should ", "List should ", "Dictionary should ", "String should ", "Tuple should "):
        if message.startswith(begin):
            known = isinstance(value, str | int | float) and ", not " not in message
            return f"must {message.removeprefix(begin)}" + (f", not {_value(value)}" if known else "")
    return message[0].lower() + message[1:]


def _value(value: Any) -> str:
    """A wrong value, or the kind of a wrong list or mapping."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping | BaseModel):
        return "a mapping of keys"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 2]}…'"


def _shown(place: Place, value: Any) -> Place:
    """The place of an error as `value` has it, without the members of unions."""
    shown: list[str | int] = []
    for part in place:
        inside = isinstance(value, Mapping) and part in value
        if inside or not (isinstance(part, str) and MEMBER.fullmatch(part)):
            shown.append(part)
            listed = isinstance(value, list) and isinstance(part, int) and part < len(value)
            value = value[part] if inside or listed else None
    return tuple(shown)


def _of_another_form(place: Place, detail: Mapping[str, Any], found: Sequence[tuple[Place, Mapping[str, Any]]]) -> bool:
    """Whether the file chose another member of the union than the one that complains here."""
    if not _of_whole_value(detail) or len(place) == len(detail["loc"]):
        return False
    if isinstance(detail["input"], Mapping):  # the other members looked into it
        return any(
            where[: len(place)] == place and not (where == place and _of_whole_value(other)) for where, other in found
        )
    return detail["type"] == "model_type" and any(where == place and other is not detail for where, other in found)


def _of_whole_value(detail: Mapping[str, Any]) -> bool:
    return detail["type"] == "literal_error" or str(detail["type"]).endswith("_type")


def _fields_at(model: type[BaseModel], place: Place) -> list[str]:
    """Names valid beside the last key of `place`, following nested models as far as they are plain."""
    current: Any = model
    for part in place[:-1]:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            return []
        field = current.model_fields.get(str(part))
        current = field.annotation if field else None
        options = [option for option in getattr(current, "__args__", ()) if isinstance(option, type)]
        models = [option for option in options if issubclass(option, BaseModel)]
        current = models[0] if models else current
    if isinstance(current, type) and issubclass(current, BaseModel):
        return list(current.model_fields)
    return []


def _line_of(place: Place, lines: Lines) -> int:
    """The line of the deepest known ancestor of `place`."""
    for length in range(len(place), 0, -1):
        if place[:length] in lines:
            return lines[place[:length]]
    return 1


def _complaint(model: type[BaseModel], place: Place, detail: Mapping[str, Any], source: str, lines: Lines) -> str:
    where = f"{source}:{_line_of(place, lines)}" if lines else source
    key = ".".join(map(str, place)) or "the whole file"
    if detail["type"] == "extra_forbidden":
        options = _fields_at(model, place)
        near = nearest_word(str(place[-1]), options)
        hint = f"did you mean '{near}'?" if near else f"valid here: {', '.join(sorted(options))}" if options else ""
        return f"{where}: unknown key '{key}'{'; ' + hint if hint else ''}"
    if detail["type"] == "missing":
        return f"{where}: the key '{key}' is missing"
    return f"{where}: {key}: {sentence(detail)}"
