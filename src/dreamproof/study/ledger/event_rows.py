"""Checks that a row of a ledger has the form of the event that it is named after."""

import functools
import math
from dataclasses import MISSING, fields
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from dreamproof.study.ledger import outside_events  # noqa: F401  its events are found as subclasses
from dreamproof.study.ledger.events import Event, Row

LATEST_UNIX_SECONDS = 1e11


@functools.cache
def _form(name: str) -> type[BaseModel] | None:
    """The fields of an event as rows must hold them: no text for a number, no number for a text."""
    kind = next((kind for kind in Event.__subclasses__() if kind.name == name), None)
    if kind is None:
        return None
    known = {one.name: (one.type, ... if one.default is MISSING else one.default) for one in fields(kind)}
    return create_model(kind.__name__, __config__=ConfigDict(strict=True), **cast(dict[str, Any], known))


def row_fault(row: Row) -> str | None:
    """Why a row of a ledger is not the event that it is named after; a name that is not known here is no fault."""
    moment, name = row.get("t"), row.get("event")
    if not isinstance(name, str) or isinstance(moment, bool) or not isinstance(moment, int | float):
        return "has no name or no time"
    if not math.isfinite(moment) or abs(moment) > LATEST_UNIX_SECONDS:
        return f"has the time {moment}"
    form = _form(name)
    try:
        if form is not None:
            form.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
    return None
