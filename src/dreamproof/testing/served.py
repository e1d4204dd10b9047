"""A dashboard that runs in a thread of this process, and plain requests to it, for tests and measurements."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dreamproof.web.application import ServedSite
from dreamproof.web.server import DashboardServer, ServeOptions, bind, make_site


@dataclass(frozen=True)
class Reply:
    """A response as a client sees it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Dashboard:
    """A running server."""

    site: ServedSite
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, method: str = "GET", **headers: str) -> Reply:
        """One request over a connection of its own; names of headers with _ for -."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            response = connection.getresponse()
            found = {name.lower(): text for name, text in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def data(self, path: str) -> Any:
        """The JSON at an address below /api/v1."""
        reply = self.get(f"/api/v1{path}")
        assert reply.status == 200, reply.body
        return reply.json


@contextmanager
def dashboard(*places: Path, host: str = "127.0.0.1", token: bool = False, port: int = 0) -> Iterator[Dashboard]:
    """Serves studies, on a free port unless one is given, until the block ends."""
    options = ServeOptions(host, port, token)
    bound = bind(options)
    port = int(bound.getsockname()[1])
    site = make_site(list(places), options, port)
    listening = threading.Event()
    server = DashboardServer(site, listening.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        assert listening.wait(60)
        yield Dashboard(site, port)
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
