"""Writes docs/reference.md from the code: `python -m dreamproof.testing.reference`; `--check` compares only."""

import json
import sys
import tempfile
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.testing import CliRunner

from dreamproof.cli.main import app
from dreamproof.settings.cell import DreamerCell, PwmCell, PwmOfflineCell
from dreamproof.settings.pwm_recipes import RECIPES
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.testing.json_fields import MEANINGS, WRITTEN
from dreamproof.testing.made_study import make_study

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"
NAMED = ("train", "evaluate", "cells", "wasted_by_cause", "evaluations", "_agent_steps")
"""Mappings whose keys are names of arms, cells, conditions, statuses or causes."""
HEAD = """# Reference

Generated from the code by `make reference`; do not edit. The same keys as JSON Schema: `dreamproof schema`.
"""

RECIPE_NOTE = (
    "What `recipe` of `trainer: pwm` sets ([PWM](pwm.md)); `dreamproof` is the defaults. Settings that are not listed "
    "have their defaults in all three."
)
JSON_NOTE = (
    "Every mapping begins with `json_version`, which is raised when a key is renamed or removed; keys do not vanish "
    "when a count is 0. An error, also one of usage, is printed as `error` with `message`, `hint` and `exit_code`, "
    "and as text on stderr."
)


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## Verbs", *_verbs(), "## Study keys", _keys(Study)]
    parts += ["### `trainer` as a command", _keys(CommandTrainer, "trainer.")]
    for name, cell in (("dreamer", DreamerCell), ("pwm", PwmCell), ("pwm_offline", PwmOfflineCell)):
        parts += [f"### `settings` of `trainer: {name}`", _keys(cell)]
    parts += ["### Values of `recipe`", RECIPE_NOTE, _recipes()]
    return "\n\n".join([*parts, "## JSON fields", JSON_NOTE, *_json_fields()]) + "\n"


def _recipes() -> str:
    """Every setting that a recipe sets, with its value in all of them."""
    cells = {name: dict(_leaves(PwmCell.model_validate({"recipe": name}).model_dump(mode="json"))) for name in RECIPES}
    keys = dict.fromkeys(key for values in RECIPES.values() for key, _ in _leaves(values))
    rows = [(f"`{key}`", *(f"`{json.dumps(values[key])}`" for values in cells.values())) for key in keys]
    return _table(("key", *(f"`{name}`" for name in RECIPES)), rows)


def _leaves(values: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        yield from _leaves(value, f"{above}{key}.") if isinstance(value, dict) else [(above + key, value)]


def verbs() -> dict[str, Any]:
    """Every verb that is shown, by what a person types."""
    group: Any = typer.main.get_command(app)
    shown: dict[str, Any] = {name: verb for name, verb in group.commands.items() if not verb.hidden}
    inner = {f"{name} {below}": verb for name, one in shown.items() for below, verb in _commands(one).items()}
    return {name: verb for name, verb in (shown | inner).items() if not _commands(verb)}


def _commands(verb: Any) -> dict[str, Any]:
    return getattr(verb, "commands", {})


def _verbs() -> Iterator[str]:
    for name, verb in verbs().items():
        yield f"### `dreamproof {name}`\n\n{_line(verb.help or '')}"
        rows = [
            (_option(item), _default(item.default), _line(getattr(item, "help", "") or ""))
            for item in verb.params
            if item.name != "help"
        ]
        if rows:
            yield _table(("argument or option", "default", "meaning"), rows)


def _option(item: Any) -> str:
    return f"`{', '.join(item.opts)}`" if item.opts[0].startswith("-") else f"`{item.name.upper()}`"


def _default(value: object) -> str:
    if value is None or value is False or callable(value) or "Sentinel" in type(value).__name__:
        return "–"
    return f"`{json.dumps(value, default=str)}`"


def _keys(model: type[BaseModel], prefix: str = "") -> str:
    rows = list(_key_rows(model, prefix))
    return _table(("key", "type", "default", "description"), rows)


def _key_rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        inner = _model_of(field.annotation)
        text = field.description or (_line(inner.__doc__ or "") if inner is not None else "")
        required = field.default is PydanticUndefined and field.default_factory is None
        default = "required" if required else "–" if inner is not None else _field_default(field)
        yield f"`{prefix}{name}`", f"`{_type(field.annotation)}`", default, _line(text)
        if inner is not None and inner is not CommandTrainer:
            mark = "[]." if typing.get_origin(field.annotation) is list else "."
            yield from _key_rows(inner, f"{prefix}{name}{mark}")


def _field_default(field: Any) -> str:
    value = field.default_factory() if field.default_factory is not None else field.default
    return f"`{json.dumps(value, default=str)}`"


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [_model_of(part) for part in typing.get_args(annotation)]
    return next((model for model in found if model is not None), None)


def _type(annotation: Any) -> str:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(parts[0])
    if origin is typing.Literal:
        return " or ".join(map(str, parts))
    if origin in (typing.Union, types.UnionType):
        return " or ".join("null" if part is type(None) else _type(part) for part in parts)
    if origin is not None and parts:
        return f"{origin.__name__} of {', '.join(_type(part) for part in parts if part is not Ellipsis)}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return getattr(annotation, "__name__", str(annotation))


def _json_fields() -> Iterator[str]:
    """Fields that verbs print for a small complete study, each with its meaning."""
    for verb, fields in printed_fields().items():
        meanings = MEANINGS[verb]
        rows = [(f"`{path}`", " or ".join(sorted(kinds)), _line(meanings[path])) for path, kinds in fields.items()]
        yield f"### `dreamproof {verb} --json`"
        yield _table(("field", "type", "meaning"), rows)
    for verb, meanings in WRITTEN.items():
        yield f"### `dreamproof {verb} --json`"
        pairs = [(f"`{path}`" if path else "", _line(meaning)) for path, meaning in meanings.items()]
        yield _table(("field", "meaning"), pairs)


def printed_fields() -> dict[str, dict[str, set[str]]]:
    """By verb: the path of every field that it prints, with the kinds of its values."""
    found: dict[str, dict[str, set[str]]] = {verb: {} for verb in MEANINGS}
    with tempfile.TemporaryDirectory() as folder:
        root = make_study(Path(folder) / "study")
        for verb, fields in found.items():
            given = [verb, str(root), *(["full/0"] if verb == "why" else []), "--json"]
            printed = json.loads(CliRunner().invoke(app, given).stdout)
            printed.pop("json_version")
            _collect(printed, "", fields)
    return found


def _collect(value: Any, path: str, fields: dict[str, set[str]]) -> None:
    if isinstance(value, dict):
        if path:
            fields.setdefault(path, set()).add("mapping")
        for key, part in value.items():
            name = "NAME" if path.endswith(NAMED) else key
            _collect(part, f"{path}.{name}".lstrip("."), fields)
    elif isinstance(value, list):
        fields.setdefault(path, set()).add("list")
        for part in value:
            _collect(part, f"{path}[]", fields)
    else:
        names = {"str": "text", "int": "number", "float": "number", "bool": "true or false", "NoneType": "null"}
        fields.setdefault(path, set()).add(names[type(value).__name__])


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _line(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("{", "&#123;")


def main() -> None:
    """Writes the page, or with `--check` exits with 1 if it is out of date."""
    text = page()
    if "--check" in sys.argv[1:]:
        if PAGE.read_text(encoding="utf-8") != text:
            raise SystemExit("docs/reference.md is out of date; hint: make reference")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
