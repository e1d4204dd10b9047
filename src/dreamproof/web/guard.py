"""Who may ask for what: GET only, known Host and Origin, a token away from loopback, strict headers."""

import hmac
import ipaddress
import json
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
API = "/api/"
HEAD_BYTES = 16384
SESSION = "/api/v1/session"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str | None:
    """The name or address of a Host header, without its port; None if it is not a plain one."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    plain = parts.hostname is not None and not parts.path and not parts.query and "@" not in header
    return parts.hostname.lower() if plain and parts.hostname else None


@dataclass(frozen=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    message: str
    hint: str


@dataclass
class Access:
    """The rules of one server."""

    host: str
    port: int
    token: str | None = None
    more_hosts: Iterable[str] = ()
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    """What the token is exchanged for; another one with every start."""

    def __post_init__(self) -> None:
        names = {*LOOPBACK_NAMES, self.host, *self.more_hosts}
        if not is_loopback(self.host):
            names |= {socket.gethostname(), socket.getfqdn()}
        self._hosts = {name.lower() for name in names}

    @property
    def cookie_name(self) -> str:
        """Cookies are shared by all ports of a host, so each server has its own name."""
        return f"dreamproof_{self.port}"

    def refusal(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Why this request is refused; None if it is not."""
        if _head_bytes(scope) > HEAD_BYTES:
            return Refusal(431, f"the head of this request has more than {HEAD_BYTES:,} bytes", "send fewer headers")
        if scope["method"] not in ("GET", "HEAD"):
            return Refusal(405, f"{scope['method'][:20]}: only GET is answered", "the dashboard is read-only")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return Refusal(413, "a request with a body is not accepted", "send a GET request without a body")
        return self._foreign(scope, headers) or self._without_token(scope, headers)

    def _foreign(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        host = host_name(headers.get("host", ""))
        local = str(scope["server"][0]) if scope.get("server") else ""
        if host is None or (host not in self._hosts and host != local):
            return Refusal(421, "this Host is not served here", "dreamproof serve STUDY --allow-host NAME")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            return Refusal(403, "requests from pages of another origin are not answered", "open the dashboard itself")
        if scope["path"].startswith(API) and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return Refusal(403, "requests from pages of another site are not answered", "open the dashboard itself")
        return None

    def _without_token(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Pages and static files hold nothing of a study; all data needs the token or its cookie."""
        if self.token is None or not scope["path"].startswith(API) or self.is_known(headers):
            return None
        return Refusal(401, "the token is missing or wrong", "open the address that `dreamproof serve` printed")

    def is_known(self, headers: dict[str, str]) -> bool:
        """Whether a request carries the token or the cookie that it was exchanged for; in constant time."""
        given = headers.get("authorization", "").removeprefix("Bearer ")
        by_token = hmac.compare_digest(given.encode(), (self.token or "").encode())
        by_cookie = hmac.compare_digest(self._cookie(headers).encode(), self.session.encode())
        return by_token or by_cookie

    def _cookie(self, headers: dict[str, str]) -> str:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def set_cookie(self) -> str:
        """The header that gives a browser its session."""
        return f"{self.cookie_name}={self.session}; Path=/; HttpOnly; SameSite=Strict"


class Guard:
    """Stands before the application: refuses what the rules refuse, and adds the headers that keep pages safe."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; a WebSocket is closed."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_encoded(SAFE_HEADERS)]
            await send(message)

        refusal = self.access.refusal(scope, headers)
        if refusal is None:
            await self.app(scope, receive, send_safely)
        else:
            await _refuse(refusal, send_safely)


def _head_bytes(scope: Scope) -> int:
    """Bytes of the address and of all headers."""
    sizes = (len(name) + len(value) for name, value in scope["headers"])
    return len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") + sum(sizes)


def error_body(message: str, hint: str) -> bytes:
    """An error as `--json` prints it."""
    return json.dumps({"error": {"message": message, "hint": hint}}, ensure_ascii=False).encode("utf-8", "replace")


async def _refuse(refusal: Refusal, send: Send) -> None:
    body = error_body(refusal.message, refusal.hint)
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    if refusal.status == 405:
        headers["allow"] = "GET, HEAD"
    await send({"type": "http.response.start", "status": refusal.status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": body})


def _encoded(headers: dict[str, str]) -> list[Any]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
