"""What an attacker may try: nothing leaks, nothing executes, nothing is written, nobody is kept from the pages."""

import json
import os
import socket
import time
from pathlib import Path

import pytest

from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.testing.made_study import Plan, make_study
from dreamproof.testing.served import Dashboard, dashboard
from dreamproof.testing.waiting import wait_for
from dreamproof.web import protocol
from dreamproof.web.guard import CONTENT_POLICY, Access, host_name, is_loopback
from dreamproof.web.server import ServeOptions, address_of, make_site, ssh_line

SECRET = "root:x:0:0"


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time and inode of every file and folder."""
    found = [folder, *folder.rglob("*")]
    return {str(path): (s.st_size, s.st_mtime_ns, s.st_ino) for path in found if (s := path.lstat())}


def raw(port: int, content: bytes, seconds: float = 20.0) -> bytes:
    """Sends bytes as they are and reads until the server closes or is silent."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(content)
        received = b""
        try:
            while piece := connection.recv(65536):
                received += piece
                if b"\r\n\r\n" in received and b"connection: close" not in received.lower():
                    return received
        except (TimeoutError, ConnectionResetError):
            return received
    return received


TRAVERSALS = [
    "/static/../../../../../../etc/passwd",
    "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/static/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/static//etc/passwd",
    "/static/vendor/..\\..\\..\\api.py",
    "/static/../api.py",
    "/static/%00",
    "/api/v1/studies/../../etc/passwd/status",
    "/api/v1/studies/..%2f..%2fetc/status",
    "/api/v1/studies/whole/cells/..%2f..%2f..%2fetc/0/log",
    "/api/v1/studies/whole/cells/../0/log",
    "/api/v1/studies/whole/cells/full/1/log?attempt=../../../../etc/passwd",
    "/api/v1/studies/whole/cells/full/1/log?attempt=..%2f..%2fledger.jsonl",
    "/api/v1/studies/whole/cells/full/1/trace?attempt=/etc/passwd",
    "/api/v1/studies/whole/figures/..%2f..%2fledger.png",
    "/api/v1/studies/whole/curves?arms=../../etc",
    "/studies/whole/../../etc/passwd",
]


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_of_a_request_reaches_the_file_system(served: Dashboard, path: str) -> None:
    reply = raw(served.port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    status = int(reply.split(b" ", 2)[1])
    assert status in (400, 404), reply[:200]
    assert SECRET.encode() not in reply and b"def " not in reply


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "user@localhost",
        "",
        "localhost/x",
        "[::1",
        "a:b:c",
    ],
)
def test_a_foreign_host_is_refused(served: Dashboard, host: str) -> None:
    for path in ("/", "/api/v1/studies", "/static/app.js"):
        reply = raw(served.port, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert int(reply.split(b" ", 2)[1]) in (400, 421), reply[:100]
        assert b"whole" not in reply


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "[::1]:8765", "LOCALHOST"])
def test_names_of_this_machine_are_served_on_any_forwarded_port(served: Dashboard, host: str) -> None:
    assert served.get("/api/v1/studies", host=host).status == 200


def test_a_foreign_origin_is_refused(served: Dashboard) -> None:
    own = f"127.0.0.1:{served.port}"
    for origin in ("http://evil.example", "null", f"http://{own}.evil.example", "http://localhost:1", "file://"):
        reply = served.get("/api/v1/studies", origin=origin)
        assert reply.status == 403 and "access-control-allow-origin" not in reply.headers
    assert served.get("/api/v1/studies", origin=f"http://{own}").status == 200
    assert served.get("/api/v1/studies", sec_fetch_site="cross-site").status == 403
    assert served.get("/", sec_fetch_site="cross-site").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_only_get_is_answered(served: Dashboard, method: str) -> None:
    reply = raw(served.port, f"{method} /api/v1/studies HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert int(reply.split(b" ", 2)[1]) in (400, 405)
    assert b"baseline" not in reply


def test_every_response_has_the_headers_that_keep_pages_safe(served: Dashboard) -> None:
    for path in ("/", "/static/app.js", "/api/v1/studies", "/nothing", "/api/v1/studies/x/status"):
        headers = served.get(path).headers
        assert headers["content-security-policy"] == CONTENT_POLICY
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    assert "unsafe" not in CONTENT_POLICY and "default-src 'none'" in CONTENT_POLICY


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    import re

    from dreamproof.web.assets import FOLDER

    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|style=|<script(?![^>]*\bsrc=)|\son\w+=", page)
    for path in FOLDER.rglob("*.js"):
        text = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path
        )
        assert not re.search(r"https?://(?!www\.w3\.org)", text) or "vendor" in path.parts, path


def test_a_request_with_a_body_is_refused_without_waiting_for_it(served: Dashboard) -> None:
    began = time.monotonic()
    for header in ("Content-Length: 99999999999", "Transfer-Encoding: chunked"):
        reply = raw(served.port, f"GET /api/v1/studies HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n".encode())
        assert reply.startswith(b"HTTP/1.1 413")
    assert time.monotonic() - began < 60


def test_a_head_that_is_too_large_is_refused(served: Dashboard) -> None:
    for content in (b"GET /" + b"a" * 70_000, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000):
        assert raw(served.port, content).startswith(b"HTTP/1.1 400")
    whole = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000 + b"\r\n\r\n"
    assert raw(served.port, whole).startswith(b"HTTP/1.1 431")
    assert served.get("/api/v1/studies/whole/ledger?text=" + "a" * 300).status == 400


def test_a_head_that_does_not_come_is_not_waited_for(served: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol.LimitedProtocol, "head_seconds", 0.5)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert slow.recv(100) == b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as slow:
        slow.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.recv(65536).startswith(b"HTTP/1.1 200")
        slow.sendall(b"GET / HTT")
        while piece := slow.recv(65536):
            assert b"HTTP/1.1" not in piece


def test_more_connections_than_allowed_are_closed_and_the_others_work(
    served: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_now = len(served.site.watcher.studies.by_name)  # any number: the limit counts what is open at the time
    monkeypatch.setattr(protocol.LimitedProtocol, "max_connections", open_now + 6)
    crowd = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(20)]
    closed = 0
    for one in crowd:
        one.settimeout(1.0)
        try:
            closed += one.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionResetError:
            closed += 1
    assert closed >= 10
    for one in crowd:
        one.close()
    wait_for(lambda: _works(served))


def _works(served: Dashboard) -> bool:
    try:
        return served.get("/api/v1/studies").status == 200
    except OSError:
        return False


def test_too_many_streams_are_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamproof.web.application.MAX_STREAMS", 2)
    with dashboard(made) as running:
        request = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
        streams = [socket.create_connection(("127.0.0.1", running.port), timeout=30) for _ in range(2)]
        for one in streams:
            one.sendall(request)
            assert one.recv(1000).startswith(b"HTTP/1.1 200")
        wait_for(lambda: running.site.watcher.followers == 2)
        assert raw(running.port, request).startswith(b"HTTP/1.1 503")
        for one in streams:
            one.close()
        wait_for(lambda: running.site.watcher.followers == 0)


def test_without_the_token_no_data_is_given(made: Path) -> None:
    with dashboard(made, token=True) as running:
        token = running.site.access.token
        assert token is not None and len(token) >= 40
        wrong = [
            {},
            {"authorization": "Bearer "},
            {"authorization": f"Bearer {token[:-1]}"},
            {"authorization": token + "x"},
        ]
        wrong += [{"cookie": f"{running.site.access.cookie_name}=guess"}, {"cookie": "a=\x01;;=="}]
        for headers in wrong:
            for path in (
                "/api/v1",
                "/api/v1/studies",
                "/api/v1/events",
                "/api/v1/session",
                "/api/v1/studies/whole/status",
            ):
                reply = running.get(path, **headers)
                assert reply.status == 401 and b"whole" not in reply.body and "set-cookie" not in reply.headers
        assert running.get(f"/api/v1/studies?token={token}").status == 401
        assert running.get("/").status == 200 and b"whole" not in running.get("/").body


def test_the_token_is_exchanged_for_a_cookie_of_this_site_alone(made: Path) -> None:
    with dashboard(made, token=True) as running:
        bearer = {"authorization": f"Bearer {running.site.access.token}"}
        reply = running.get("/api/v1/session", **bearer)
        cookie = reply.headers["set-cookie"]
        assert reply.status == 204 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert str(running.site.access.token) not in cookie
        assert running.get("/api/v1/studies", cookie=cookie.split(";")[0]).status == 200
        assert running.get("/api/v1/studies", **bearer).status == 200


def test_any_address_but_loopback_needs_a_token(made: Path) -> None:
    assert make_site([made], ServeOptions(), 1).access.token is None
    for host in ("0.0.0.0", "192.168.1.5", "example.org", "::"):
        site = make_site([made], ServeOptions(host=host), 8765)
        assert site.access.token is not None
        before, _, fragment = address_of(site).partition("#")
        assert site.access.token not in before and site.access.token in fragment
    assert is_loopback("127.0.0.1") and is_loopback("::1") and not is_loopback("0.0.0.0")


def test_the_token_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("hmac.compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    access = Access("0.0.0.0", 1, token="secret")
    assert access.is_known({"authorization": "Bearer secret"}) and not access.is_known({"authorization": "Bearer no"})
    assert len(compared) == 4  # token and cookie, whatever the first comparison gave


def test_hosts_are_read_strictly() -> None:
    assert host_name("Example.org:80") == "example.org" and host_name("[::1]:8") == "::1"
    assert [host_name(text) for text in ("", "a@b", "a/b", "a?b", "a:b", ":80")] == [None] * 6


def test_over_ssh_the_forwarding_command_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    assert ssh_line(8765, {"SSH_CONNECTION": "10.0.0.9 51000 10.0.0.5 22"}) == "ssh -L 8765:127.0.0.1:8765 ann@10.0.0.5"
    assert ssh_line(80, {"SSH_CONNECTION": "a 1 b 2222"}) == "ssh -L 80:127.0.0.1:80 -p 2222 ann@b"
    assert ssh_line(80, {}) is None


def test_links_in_a_received_folder_leak_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    folder = StudyFolder(make_study(tmp_path / "studies" / "received", Plan(arms=("baseline", "full"), seeds=1)))
    name = "efull-0"
    folder.attempt(name).root.mkdir(parents=True)
    folder.attempt(name).output.symlink_to(secret)
    folder.attempt(name).memory.symlink_to(secret)
    (tmp_path / "studies" / "linked").symlink_to(tmp_path)
    with dashboard(tmp_path / "studies") as running:
        assert [one["study"] for one in running.data("/studies")["studies"]] == ["received"]
        paths = [f"/studies/received/cells/full/0{part}" for part in ("", "/log", "/trace", "/curve", "/evaluations")]
        assert all(SECRET not in json.dumps(running.data(path)) for path in paths)


def test_nothing_is_written_to_a_study(tmp_path: Path) -> None:
    make_study(tmp_path / "study", Plan(missing=("full/3",)))
    before = snapshot(tmp_path)
    with dashboard(tmp_path) as running:
        read_everything(running, "study")
    assert snapshot(tmp_path) == before


def read_everything(running: Dashboard, study: str) -> None:
    """Asks for every address of the API, as JSON and as a table."""
    from dreamproof.report.figures import NAMES
    from dreamproof.web.api import ENDPOINTS

    for endpoint in ENDPOINTS:
        path = f"/api/v1/studies/{study}{endpoint.path.format(arm='full', seed=1)}"
        assert running.get(path).status == 200
        assert running.get(f"{path}?format=csv").status == (200 if endpoint.rows else 400)
    for name in NAMES[:4]:
        assert running.get(f"/api/v1/studies/{study}/figures/{name}.png").status in (200, 404)


def test_a_study_that_may_not_be_written_is_served(tmp_path: Path) -> None:
    if os.getuid() == 0:  # root writes everywhere: the check above is the one that counts
        return
    make_study(tmp_path / "study")
    for path in [tmp_path / "study", *(tmp_path / "study").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with dashboard(tmp_path / "study") as running:
        read_everything(running, "study")


HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def test_hostile_content_of_a_study_is_data_and_nothing_else(tmp_path: Path) -> None:
    """Names, questions, metrics, logs and files of somebody else; the browser test shows that none executes."""
    root = hostile_study(tmp_path / "hostile")
    with dashboard(root) as running:
        for path in ("/status", "/overview", "/cells/full/0", "/cells/full/0/log", "/metrics", "/ledger", "/decision"):
            reply = running.get(f"/api/v1/studies/hostile{path}")
            assert reply.status == 200 and reply.headers["content-type"] == "application/json"
        assert HOSTILE in running.data("/studies/hostile/metrics")["metrics"]
        assert "\x1b" not in running.data("/studies/hostile/cells/full/0/log")["text"]
        csv = running.get("/api/v1/studies/hostile/ledger?format=csv")
        assert csv.headers["content-disposition"] == "attachment"


def hostile_study(root: Path) -> Path:
    """A study whose question, metrics and log are markup."""
    make_study(root, Plan(arms=("baseline", "full"), seeds=1, more={"question": HOSTILE, "task": HOSTILE}))
    folder = StudyFolder(root)
    with folder.run(Cell("full", 0)).metrics.open("a") as file:
        file.write(
            json.dumps({"agent_steps": 1, HOSTILE: 1.0}) + "\n" + json.dumps({"agent_steps": 2, HOSTILE: 2.0}) + "\n"
        )
    folder.attempt("efull-0").root.mkdir(parents=True)
    folder.attempt("efull-0").output.write_text(f"\x1b]0;owned\x07{HOSTILE}\n\x1b[2J")
    return root
