"""The JSON API under /api/v1: what `--json` prints, and what the pages show beyond it; tables also as CSV."""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.versioned import versioned
from dreamproof.report.language import LANGUAGES
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.views.exporting import ATTEMPT_COLUMNS, attempt_row, table
from dreamproof.study.views.manifests import TRAIN_COLUMNS
from dreamproof.study.views.values import Values, cell_values, money_values, status_values
from dreamproof.web import cells, payloads, results
from dreamproof.web.served import ServedStudy

Query = Mapping[str, str]
Rows = tuple[tuple[str, ...], Iterable[Values]]
CSV = "text/csv; charset=utf-8"
JSON = "application/json"
PNG = "image/png"
TEXT_CHARACTERS = 200
MONEY_COLUMNS = ("part", "name", "useful_ms", "wasted_ms", "running_ms", "money", "currency")
CURVE_COLUMNS = ("arm", "seed", "agent_steps", "metric", "value", "mean_of_last")


class NotFound(BadInput):
    """An address names something that is not there."""


class BadQuery(BadInput):
    """A parameter of an address is not valid."""


@dataclass(frozen=True)
class Endpoint:
    """One address below a study: what it answers, and the same as a table."""

    path: str
    make: Callable[[ServedStudy, Query], Any]
    rows: Callable[[ServedStudy, Query], Rows] | None = None
    meaning: str = ""
    parameters: tuple[str, ...] = field(default=())
    ledger_only: bool = False
    """Whether it changes with the ledger alone."""
    asks_scheduler: bool = False
    """Whether it asks a cluster's scheduler, which must not be asked with every change."""


def text_of(query: Query, name: str, usual: str = "") -> str:
    """A short text of a query."""
    text = query.get(name, usual)
    if len(text) > TEXT_CHARACTERS:
        raise BadQuery(f"{name}: is longer than {TEXT_CHARACTERS} characters", "shorten it")
    return text


def whole_of(query: Query, name: str, usual: int | None = None) -> int | None:
    """A whole number of a query."""
    text = query.get(name)
    if text is None or text == "":
        return usual
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise BadQuery(f"{name}={text[:20]!r}: is not a whole number from 0 on", f"{name}=10")
    return int(text)


def language_of(query: Query) -> str:
    """A language of the reports."""
    language = query.get("language", "en")
    if language not in LANGUAGES:
        raise BadQuery(f"language={language[:20]!r}: is not a language of reports", f"language={'|'.join(LANGUAGES)}")
    return language


def _cell(served: ServedStudy, query: Query) -> Any:
    return cells.find_cell(served.followed.opened, query["arm"], query["seed"])


def _status(served: ServedStudy, query: Query) -> Values:
    return status_values(served.followed.opened, served.overview())


def _status_rows(served: ServedStudy, query: Query) -> Rows:
    return TRAIN_COLUMNS, _status(served, query)["cells"]


def _overview(served: ServedStudy, query: Query) -> Values:
    return served.summary() | {"overview": served.overview().as_json()}


def _matrix(served: ServedStudy, query: Query) -> Values:
    return payloads.matrix(served.followed, served.overview())


def _money(served: ServedStudy, query: Query) -> Values:
    return money_values(served.followed.opened, read_moment())


def _money_rows(served: ServedStudy, query: Query) -> Rows:
    """Cells and idle time, which add up to the total; what was wasted is listed once more by its cause."""
    values = _money(served, query)
    whole = values["total_ms"]
    rows = [
        *({"part": "cell", "name": cell, **part} for cell, part in values["cells"].items()),
        {"part": "idle", "wasted_ms": values["idle_ms"]},
        {"part": "total", "useful_ms": values["useful_ms"], "wasted_ms": whole - values["useful_ms"]},
        *({"part": "cause", "name": cause, "wasted_ms": ms} for cause, ms in values["wasted_by_cause"].items()),
    ]
    price = values["total_money"] / whole if whole else 0.0
    return MONEY_COLUMNS, [
        {**row, "money": round(price * _spent_ms(row), 6), "currency": values["currency"]} for row in rows
    ]


def _spent_ms(row: Values) -> float:
    return float(row.get("useful_ms", 0)) + float(row.get("wasted_ms", 0))


def _why(served: ServedStudy, query: Query) -> Values:
    return cell_values(served.followed.opened, _cell(served, query))


def _log(served: ServedStudy, query: Query) -> Values:
    return cells.log_tail(served.followed.opened, _cell(served, query), query.get("attempt"))


def _trace(served: ServedStudy, query: Query) -> Values:
    cell = _cell(served, query)
    memory = cells.memory_trace(served.followed.opened, cell, query.get("attempt"))
    return {**memory, "gpu": served.gpu_trace(str(cell))}


def _evaluations(served: ServedStudy, query: Query) -> Values:
    return {"evaluations": cells.evaluations(served.followed.opened, _cell(served, query))}


def _cell_curve(served: ServedStudy, query: Query) -> Values:
    metric = text_of(query, "metric", served.followed.opened.study.metric.name)
    return results.cell_curve(served.results, _cell(served, query), metric)


def _cell_curve_rows(served: ServedStudy, query: Query) -> Rows:
    values = _cell_curve(served, query)
    pairs = zip(values["agent_steps"], values["values"], strict=True)
    return ("agent_steps", values["metric"]), [{"agent_steps": s, values["metric"]: v} for s, v in pairs]


def _metrics(served: ServedStudy, query: Query) -> Values:
    return {"metrics": results.metric_names(served.results)}


def _curves(served: ServedStudy, query: Query) -> Values:
    metric = text_of(query, "metric", served.followed.opened.study.metric.name)
    arms = [arm for arm in text_of(query, "arms").split(",") if arm]
    return results.curves(served.results, metric, whole_of(query, "smooth", 1) or 1, arms)


def _curve_rows(served: ServedStudy, query: Query) -> Rows:
    """Every value of every seed; `mean_of_last` is the number of logged values behind it, 1 without smoothing."""
    values = _curves(served, query)
    common = {"metric": values["metric"], "mean_of_last": values["smoothed"]}
    rows = (
        {"arm": arm["name"], "seed": seed, "agent_steps": step, "value": value, **common}
        for arm in values["arms"]
        for seed, row in arm["seeds"].items()
        for step, value in zip(values["agent_steps"], row, strict=True)
        if value is not None
    )
    return CURVE_COLUMNS, rows


def _conditions(served: ServedStudy, query: Query) -> Values:
    return results.conditions(served.results, language_of(query))


def _condition_rows(served: ServedStudy, query: Query) -> Rows:
    """A row for each seed, and one for each arm with its mean, 95 % intervals and what is shown about the limits."""
    values = _conditions(served, query)
    limited = [limit["name"] for limit in values["constraints"]]
    rows = [
        {"condition": one["name"], "kind": one["kind"], "decides": one["decides"], "arm": arm, **row}
        for one in values["conditions"]
        for arm, found in one["arms"].items()
        if found["score"] is not None
        for row in (*_seed_rows(found), _mean_row(found))
    ]
    ends = ("", "_low", "_high")
    costs = [f"{name}{end}" for name in limited for end in (*ends, "_limit")]
    return ("condition", "kind", "decides", "arm", "seed", *(f"score{end}" for end in ends), *costs), rows


def _seed_rows(found: Values) -> list[Values]:
    scores = found["score"]["seeds"].items()
    return [
        {"seed": seed, "score": score} | {name: _at(group, seed) for name, group in found["costs"].items()}
        for seed, score in scores
    ]


def _mean_row(found: Values) -> Values:
    ends = {"mean": "", "low": "_low", "high": "_high"}
    known = {name: group for name, group in {"score": found["score"], **found["costs"]}.items() if group is not None}
    means = {f"{what}{end}": group[name] for what, group in known.items() for name, end in ends.items()}
    return {"seed": "mean", **{f"{name}_limit": verdict for name, verdict in found["limits"].items()}, **means}


def _at(group: Values | None, seed: str) -> float | None:
    return group["seeds"].get(seed) if group is not None else None


def _timeline(served: ServedStudy, query: Query) -> Values:
    return payloads.timeline(served.followed.opened, text_of(query, "arm") or None)


def _timeline_rows(served: ServedStudy, query: Query) -> Rows:
    return ATTEMPT_COLUMNS, map(attempt_row, served.followed.opened.state.attempts.values())


def _decision(served: ServedStudy, query: Query) -> Values:
    return results.decision_values(served.results, language_of(query))


def _decision_rows(served: ServedStudy, query: Query) -> Rows:
    return ("key", "value", "text", "cells"), results.number_rows(served.results)


def _ledger(served: ServedStudy, query: Query) -> Values:
    filters = {name: text_of(query, name) for name in ("event", "cell", "attempt", "text")}
    return cells.ledger(served.followed, filters, whole_of(query, "before"), whole_of(query, "limit", 100) or 100)


def _ledger_rows(served: ServedStudy, query: Query) -> Rows:
    rows = _ledger(served, {"limit": str(cells.MAX_EVENTS), **query})["events"]
    fields = ("n", "t", "event", "cell", "attempt", "rest")
    return fields, [{**row, "rest": json.dumps({k: v for k, v in row.items() if k not in fields})} for row in rows]


CELL = "/cells/{arm}/{seed}"
ENDPOINTS = (
    Endpoint("/status", _status, _status_rows, "what `status --json` prints"),
    Endpoint("/overview", _overview, None, "the study in the list of all, and `status --json` without its cells"),
    Endpoint("/matrix", _matrix, None, "one letter per cell and eval cell, causes, steps of running cells"),
    Endpoint("/money", _money, _money_rows, "what `money --json` prints"),
    Endpoint(CELL, _why, None, "what `why CELL --json` prints", asks_scheduler=True),
    Endpoint(f"{CELL}/log", _log, None, "the end of what an attempt printed", ("attempt",)),
    Endpoint(f"{CELL}/trace", _trace, None, "memory of an attempt, GPU use seen so far", ("attempt",)),
    Endpoint(f"{CELL}/evaluations", _evaluations, None, "mean, sd and episodes by condition, checkpoint and metric"),
    Endpoint(f"{CELL}/curve", _cell_curve, _cell_curve_rows, "all values of a metric", ("metric",)),
    Endpoint("/metrics", _metrics, None, "names of logged metrics"),
    Endpoint("/curves", _curves, _curve_rows, "seeds, means and 95 % intervals", ("metric", "smooth", "arms")),
    Endpoint("/conditions", _conditions, _condition_rows, "score and cost by condition", ("language",), True),
    Endpoint("/timeline", _timeline, _timeline_rows, "attempts and supervisors", ("arm",)),
    Endpoint("/decision", _decision, _decision_rows, "the decision report as blocks", ("language",), True),
    Endpoint(
        "/ledger", _ledger, _ledger_rows, "events, newest first",
        ("event", "cell", "attempt", "text", "before", "limit"), True,
    ),
)  # fmt: skip


def json_body(value: Any) -> bytes:
    """A value as JSON; numbers that JSON does not have become null."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), default=str)
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def body_of(endpoint: Endpoint, served: ServedStudy, query: Query) -> tuple[bytes, str]:
    """The body of an answer and its type; made with the study held still."""
    with served.followed.lock:
        _ = served.followed.opened  # a study that cannot be read says why
        try:
            return _body(endpoint, served, query)
        except BadQuery:
            raise
        except BadInput as error:  # a cell, an attempt or an arm that the study does not have
            raise NotFound(error.seen, error.hint) from None


def _body(endpoint: Endpoint, served: ServedStudy, query: Query) -> tuple[bytes, str]:
    if query.get("format") != "csv":
        return json_body(versioned(endpoint.make(served, query))), JSON
    if endpoint.rows is None:
        raise BadQuery(f"{endpoint.path} is not a table", "leave out format=csv")
    columns, rows = endpoint.rows(served, query)
    return table(columns, rows).encode("utf-8", "replace"), CSV
