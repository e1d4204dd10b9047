"""The web application: pages, static files, the JSON API and its events. It answers GET and writes nothing."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dreamproof.base.errors import DreamproofError
from dreamproof.base.versioned import versioned
from dreamproof.report.figures import NAMES
from dreamproof.study.views.exporting import table
from dreamproof.web.answers import Answer, Answers, Make
from dreamproof.web.api import CSV, ENDPOINTS, JSON, PNG, BadQuery, Endpoint, NotFound, body_of, json_body, language_of
from dreamproof.web.assets import assets
from dreamproof.web.found import Studies
from dreamproof.web.guard import SESSION, Access, Guard, error_body
from dreamproof.web.results import figure_png
from dreamproof.web.served import ServedStudy
from dreamproof.web.watching import Watcher

ROOT = "/api/v1"
VIEWS = ("curves", "conditions", "timeline", "money", "decision", "ledger")
MAX_STREAMS = 200
MAKERS = 4
"""Answers that are made at once; more would only wait for each other."""
SUMMARY_COLUMNS = (
    "study", "name", "state", "trained", "train_cells", "evaluated", "eval_cells", "seconds_left", "spent", "budget",
    "currency", "folder",
)  # fmt: skip
Handler = Callable[[Request], Awaitable[Response]]


class ServedSite:
    """What is served: studies by name, each with its answers, and the watcher that keeps them current."""

    def __init__(self, studies: Studies, access: Access) -> None:
        self.studies, self.access = studies, access
        self.watcher = Watcher(studies)
        self.answers = Answers()
        self.mark = secrets.token_hex(4)
        """Of this start: versions count from 0 with every start."""
        self._served: dict[str, ServedStudy] = {}
        self._makers = anyio.CapacityLimiter(MAKERS)
        self._drawers = anyio.CapacityLimiter(1)

    def served(self, name: str) -> ServedStudy:
        """The study with this name in its address."""
        followed = self.studies.by_name.get(name)
        if followed is None:
            raise NotFound("no such study is served here", f"{ROOT}/studies lists them")
        known = self._served.get(name)
        if known is None:
            known = self._served[name] = ServedStudy(followed)
        return known

    async def answer(
        self, request: Request, kept: Answers, version: int, make: Make, rest: float = 0.0, drawn: bool = False
    ) -> Response:
        """The kept answer to a request, or a new one made in a thread; 304 where the browser has it already."""
        if request.headers.get("if-none-match") == self._tag(version):
            return Response(status_code=304, headers={"etag": self._tag(version)})
        key = str(request.url.path) + "?" + str(request.url.query)
        found = kept.known(key, version)
        if found is None:
            limiter = self._drawers if drawn else self._makers
            found = await anyio.to_thread.run_sync(partial(kept.get, key, version, make, rest), limiter=limiter)
        return self._response(found, version)

    def _response(self, answer: Answer, version: int) -> Response:
        headers = {"etag": self._tag(answer.version), "cache-control": "private, no-cache"}
        if answer.version != version:
            headers["x-fresh-after"] = f"{answer.rests_seconds:.1f}"
        if answer.kind == CSV:
            headers["content-disposition"] = "attachment"
        return Response(answer.body, media_type=answer.kind, headers=headers)

    def _tag(self, version: int) -> str:
        return f'"{self.mark}-{version}"'

    async def study_list(self, request: Request) -> Response:
        """Every study, also those that cannot be read."""
        version = sum(study.version for study in self.studies.by_name.values())
        return await self.answer(request, self.answers, version, partial(self._list_body, dict(request.query_params)))

    def _list_body(self, query: dict[str, str]) -> tuple[bytes, str]:
        found = [self.served(name).summary() for name in list(self.studies.by_name)]
        if query.get("format") == "csv":
            return table(SUMMARY_COLUMNS, map(_summary_row, found)).encode("utf-8", "replace"), CSV
        return json_body(versioned({"studies": found})), JSON

    def endpoint(self, endpoint: Endpoint) -> Handler:
        """The handler of one address below a study."""

        async def handle(request: Request) -> Response:
            served = self.served(request.path_params["study"])
            query = {**request.query_params, **request.path_params}
            followed = served.followed
            version = followed.ledger_version if endpoint.ledger_only else followed.version
            make = partial(body_of, endpoint, served, query)
            rest = served.scheduler_seconds if endpoint.asks_scheduler and followed.fault is None else 0.0
            return await self.answer(request, served.answers, version, make, rest)

        return handle

    async def figure(self, request: Request) -> Response:
        """A figure of the reports as PNG."""
        served = self.served(request.path_params["study"])
        name, language = request.path_params["figure"], language_of(request.query_params)
        if name not in NAMES:
            raise NotFound("the reports have no such figure", f"one of {', '.join(NAMES)}")

        def make() -> tuple[bytes, str]:
            return figure_png(served.results, name, language) or b"", PNG

        response = await self.answer(request, served.answers, served.followed.ledger_version, make, drawn=True)
        if response.status_code == 200 and not response.body:
            raise NotFound("the study has no data for this figure yet", "dreamproof status STUDY")
        return response

    async def events(self, request: Request) -> Response:
        """Server-sent events: which studies changed."""
        if self.watcher.followers >= MAX_STREAMS:
            return Response(error_body("too many open pages", "close some of them"), 503, media_type=JSON)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.watcher.events(), media_type="text/event-stream", headers=headers)

    async def session(self, request: Request) -> Response:
        """Exchanges the token for a cookie; the guard has checked it."""
        headers = {"set-cookie": self.access.set_cookie()} if self.access.token is not None else {}
        return Response(status_code=204, headers={**headers, "cache-control": "no-store"})

    async def index(self, request: Request) -> Response:
        """The addresses of the API with their meaning."""
        listed = [
            _address("/studies", "every study", csv=True),
            _address("/events", "server-sent events: which studies changed"),
            _address("/studies/STUDY/figures/NAME.png", "a figure of the reports", ["language"]),
            *(
                _address(f"/studies/STUDY{one.path}", one.meaning, one.parameters, one.rows is not None)
                for one in ENDPOINTS
            ),
        ]
        return Response(json_body(versioned({"addresses": listed})), media_type=JSON)


def _address(path: str, meaning: str, parameters: Iterable[str] = (), csv: bool = False) -> dict[str, Any]:
    return {"address": f"{ROOT}{path}", "meaning": meaning, "parameters": list(parameters), "csv": csv}


def _summary_row(one: dict[str, Any]) -> dict[str, Any]:
    if one["error"] is not None:
        return one
    money = one["money"]
    return one | {
        "trained": one["train"]["proven"],
        "train_cells": one["train"]["declared"],
        "evaluated": one["evaluate"]["proven"],
        "eval_cells": one["evaluate"]["declared"],
        "spent": round(money["spent"], 4),
        "budget": money["budget"],
        "currency": money["currency"],
    }


async def page(request: Request) -> Response:
    """The one page that shows every view; its script reads the address."""
    return _asset(request, "index.html")


async def static_file(request: Request) -> Response:
    """A file of the package."""
    return _asset(request, request.path_params["name"])


def _asset(request: Request, name: str) -> Response:
    found = assets().get(name)
    if found is None:
        raise NotFound("no such file", "/")
    headers = {"etag": found.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.kind, headers=headers)


async def _error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DreamproofError)
    status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, BadQuery) else 503
    return Response(error_body(error.seen, error.hint), status, media_type=JSON)


async def _unknown(request: Request, error: Exception) -> Response:
    """A program gets an error; a person gets the page, which says so and leads back."""
    if not request.url.path.startswith(("/api/", "/static/")):
        return Response(assets()["index.html"].content, 404, media_type=assets()["index.html"].kind)
    return Response(error_body("there is nothing at this address", "/"), 404, media_type=JSON)


def make_application(site: ServedSite) -> Starlette:
    """The application with its guard; the watcher runs while it does."""

    @asynccontextmanager
    async def watching(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(site.watcher.run())
        yield
        site.watcher.close()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    study = f"{ROOT}/studies/{{study}}"
    routes = [
        Route("/", page),
        Route("/studies/{study}", page),
        *(Route(f"/studies/{{study}}/{view}", page) for view in VIEWS),
        Route("/studies/{study}/cells/{arm}/{seed}", page),
        Route("/static/{name:path}", static_file),
        Route(ROOT, site.index),
        Route(SESSION, site.session),
        Route(f"{ROOT}/events", site.events),
        Route(f"{ROOT}/studies", site.study_list),
        Route(f"{study}/figures/{{figure}}.png", site.figure),
        *(Route(f"{study}{one.path}", site.endpoint(one)) for one in ENDPOINTS),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, access=site.access)],
        exception_handlers={DreamproofError: _error, 404: _unknown},
        lifespan=watching,
    )
