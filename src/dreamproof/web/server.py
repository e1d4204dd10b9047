"""Runs the dashboard: binds the address, prints where it is, and serves until it is interrupted."""

import errno
import getpass
import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from dreamproof.base.errors import BadInput
from dreamproof.web.application import ServedSite, make_application
from dreamproof.web.found import Studies
from dreamproof.web.guard import HEAD_BYTES, Access, host_name, is_loopback
from dreamproof.web.protocol import LimitedProtocol

GRACE_SECONDS = 2
TOKEN_BYTES = 32


@dataclass(frozen=True)
class ServeOptions:
    """Where and how studies are served."""

    host: str = "127.0.0.1"
    port: int = 8765
    token: bool = False
    """Ask for a token on loopback too; any other address always does."""
    more_hosts: tuple[str, ...] = ()


def bind(options: ServeOptions) -> socket.socket:
    """A listening socket, or why there is none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        way = f"--port {options.port + 1}" if taken else "--host 127.0.0.1"
        raise BadInput(
            f"{options.host}:{options.port}: cannot be used: {reason}", f"dreamproof serve STUDY {way}"
        ) from None
    return bound


def make_site(places: list[Path], options: ServeOptions, port: int) -> ServedSite:
    """The site of the named studies; a token is made where one is needed."""
    needs_token = options.token or not is_loopback(options.host)
    for name in options.more_hosts:
        if host_name(name) != name.lower():
            raise BadInput(f"--allow-host '{name}': is no plain name of a server", "--allow-host gpu1.example.org")
    token = secrets.token_urlsafe(TOKEN_BYTES) if needs_token else None
    return ServedSite(Studies(places), Access(options.host, port, token, options.more_hosts))


def address_of(site: ServedSite) -> str:
    """What a person opens. The token stands behind #, which browsers do not send and servers do not log."""
    host = site.access.host
    shown = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
    token = f"#token={site.access.token}" if site.access.token is not None else ""
    return f"http://{shown}:{site.access.port}/{token}"


def ssh_line(port: int, environment: dict[str, str]) -> str | None:
    """The command that brings the page to the machine from which somebody is connected; None without SSH."""
    parts = environment.get("SSH_CONNECTION", "").split()
    if len(parts) != 4:
        return None
    ssh_port = f" -p {parts[3]}" if parts[3] != "22" else ""
    return f"ssh -L {port}:127.0.0.1:{port}{ssh_port} {getpass.getuser()}@{parts[2]}"


def serve(
    places: list[Path], options: ServeOptions, show: Callable[[str], None], opened: Callable[[str], None]
) -> None:
    """Serves until Ctrl-C; once the server listens, `show` gets what a person reads and `opened` the address."""
    bound = bind(options)
    try:
        port = int(bound.getsockname()[1])
        site = make_site(places, options, port)
        address = address_of(site)

        def listening() -> None:
            for line in _introduction(site, address):
                show(line)
            opened(address)

        DashboardServer(site, listening).run(sockets=[bound])
    finally:
        bound.close()


def _introduction(site: ServedSite, address: str) -> list[str]:
    count = len(site.studies.by_name)
    lines = [f"studies     {count}: {', '.join(list(site.studies.by_name)[:8])}{', …' if count > 8 else ''}"]
    lines.append(f"open        {address}")
    line = ssh_line(site.access.port, dict(os.environ)) if is_loopback(site.access.host) else None
    if line is not None:
        local = address.replace("127.0.0.1", "localhost")
        lines.append(f"over SSH    {line}    then open {local}")
    return [*lines, "stop        Ctrl-C; nothing is written to the studies"]


def _config(site: ServedSite) -> uvicorn.Config:
    return uvicorn.Config(
        make_application(site),
        http=LimitedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class DashboardServer(uvicorn.Server):
    """Calls back when it listens, and ends the streams of events before it waits for requests to end."""

    def __init__(self, site: ServedSite, listening: Callable[[], None]) -> None:
        super().__init__(_config(site))
        self._site, self._listening = site, listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts to listen."""
        await super().startup(sockets)
        self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops."""
        self._site.watcher.close()
        await super().shutdown(sockets)
