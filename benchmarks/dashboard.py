"""Load on the dashboard: many pages on one growing study. Latency of events, memory and CPU of the server.

`python -m benchmarks.dashboard --seconds 300` is the measurement of docs/dashboard.md; `--idle` measures a study of
10,000 cells in which nothing changes.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dreamproof.base.lines import json_line
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.study.ledger import events
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.ledger.clock import Moment
from dreamproof.testing.lively_study import LivelyStudy, lively_study
from dreamproof.testing.made_study import Plan, declaration

FETCH_SECONDS = 1.0
"""A page asks for its data at most so often."""
WARM_SECONDS = 20.0


@contextmanager
def server(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """`dreamproof serve` as its own process, and its port."""
    command = [sys.executable, "-m", "dreamproof.cli", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = next(int(found[1]) for line in process.stdout if (found := re.search(r"http://[^/]*:(\d+)/", line)))
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait()


class Writer(threading.Thread):
    """Writes so many updates per second to logs of running cells, and one event per second to the ledger."""

    def __init__(self, study: LivelyStudy, per_second: float) -> None:
        super().__init__(daemon=True)
        self.study, self.per_second = study, per_second
        self.written: dict[int, float] = {}
        """By number of the event: when it was written."""
        self.updates = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        """Writes until it is stopped."""
        runs = [self.study.folder.run(Cell.parse(cell)) for cell in ("full/3", "full/4")]
        logs = [run.metrics.open("a", buffering=1) for run in runs]
        began = next_event = time.perf_counter()
        while not self.stopping.is_set():
            due = (time.perf_counter() - began) * self.per_second
            while self.updates < due:
                row = {"agent_steps": 20_000 + self.updates, "return": float(self.updates % 97), "cost": 1.0}
                logs[self.updates % len(logs)].write(json_line(row))
                self.updates += 1
            if time.perf_counter() >= next_event:
                next_event += 1.0
                self._append_event()
            time.sleep(0.005)

    def _append_event(self) -> None:
        self.study.now = time.time()
        event = events.LivenessChanged("a000103", "running", f"update {self.updates}")
        row = self.study.ledger.append(event, durable=False)
        self.written[row["n"]] = time.time()


class Page:
    """What one open page does: follows the events, and asks for its data after a change, at most once a second."""

    def __init__(self, port: int, writer: Writer) -> None:
        self.port, self.writer = port, writer
        self.latencies: list[float] = []
        self.fetches: list[float] = []
        self._seen = 0
        self._tags: dict[str, str] = {}

    async def follow(self) -> None:
        """Reads the stream until it is cancelled."""
        reader, _ = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        _.write(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        last_fetch = 0.0
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            now = time.time()
            self._take(json.loads(line[6:])["safe_navigation"]["events"], now)
            if now - last_fetch >= FETCH_SECONDS:
                last_fetch = now
                await self._fetch("overview")
                await self._fetch("matrix")
                self.fetches.append(time.time() - now)

    def _take(self, count: int, now: float) -> None:
        for number in range(self._seen + 1, count + 1):
            written = self.writer.written.get(number)
            if written is not None and self._seen:
                self.latencies.append(now - written)
        self._seen = max(self._seen, count)

    async def _fetch(self, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        tag = f"If-None-Match: {self._tags[name]}\r\n" if name in self._tags else ""
        path = f"/api/v1/studies/safe_navigation/{name}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{tag}\r\n".encode())
        content = await reader.read()
        found = re.search(rb'etag: ("[^"]+")', content)
        if found:
            self._tags[name] = found[1].decode()
        writer.close()


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def spread(values: list[float]) -> str:
    return f"{len(values):,}, p50 {quantile(values, 0.5):.3f} s, p95 {quantile(values, 0.95):.3f} s"


async def load(port: int, process: psutil.Process, writer: Writer, clients: int, seconds: float) -> list[str]:
    """Follows with so many pages for so long; returns lines of results."""
    pages = [Page(port, writer) for _ in range(clients)]
    tasks = [asyncio.create_task(page.follow()) for page in pages]
    await asyncio.sleep(min(WARM_SECONDS, seconds / 4))
    began, cpu, memory = time.time(), process.cpu_times(), [process.memory_info().rss]
    while time.time() - began < seconds:
        await asyncio.sleep(min(10.0, seconds / 6))
        memory.append(process.memory_info().rss)
        print(f"  {time.time() - began:5.0f} s  {memory[-1] / 2**20:7.1f} MiB", flush=True)
    used = process.cpu_times()
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    faults = [one for one in ended if one is not None and not isinstance(one, asyncio.CancelledError)]
    if faults:
        raise faults[0]
    latencies = [value for page in pages for value in page.latencies]
    fetches = [value for page in pages for value in page.fetches]
    share = (used.user + used.system - cpu.user - cpu.system) / (time.time() - began)
    half = len(memory) // 2
    growth = sum(memory[half:]) / len(memory[half:]) - sum(memory[:half]) / max(1, half)
    return [
        f"pages {clients}, {writer.updates:,} updates ({writer.per_second:g}/s asked for), {seconds:.0f} s",
        f"events received: {spread(latencies)}",
        f"data after an event: {spread(fetches)}",
        f"memory {memory[0] / 2**20:.1f} → {memory[-1] / 2**20:.1f} MiB, later half less first {growth / 2**20:+.1f}",
        f"server CPU {100 * share:.0f} % of a core",
    ]


def idle(folder: Path, seconds: float) -> list[str]:
    """CPU of a server of 10,000 cells in which nothing changes, and how long its answers take."""
    study = declaration(Plan(arms=tuple(f"arm{n}" for n in range(100)), seeds=100, conditions=()))
    ledger = Ledger(StudyFolder(folder / "big").ledger, clock=lambda: Moment(time.time()))
    ledger.append(events.StudyDeclared(study.hash(), study.model_dump(mode="json")), durable=False)
    ledger.close()
    with server(folder) as (process, port):
        began = time.perf_counter()
        subprocess.run(
            ["curl", "-s", "-o", "/dev/null", f"http://127.0.0.1:{port}/api/v1/studies/big/matrix"], check=True
        )
        first = time.perf_counter() - began
        time.sleep(3)
        cpu = process.cpu_times()
        time.sleep(seconds)
        used = process.cpu_times()
        share = (used.user + used.system - cpu.user - cpu.system) / seconds
    return [
        f"10,000 cells: first matrix after {first:.2f} s; idle CPU {100 * share:.2f} % of a core over {seconds:.0f} s"
    ]


def main() -> None:
    """Prints the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--updates", type=float, default=200)
    parser.add_argument("--idle", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.idle:
            print("\n".join(idle(folder, given.seconds)))
            return
        with lively_study(folder / "safe_navigation") as study, server(folder) as (process, port):
            writer = Writer(study, given.updates)
            writer.start()
            lines = asyncio.run(load(port, process, writer, given.clients, given.seconds))
            writer.stopping.set()
            writer.join()
        print("\n".join(lines))


if __name__ == "__main__":
    main()
