"""Injects faults into running studies and proves that nothing is lost, repeated or misnamed. `make faults` runs it."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.process import cgroup
from dreamproof.study.views.verify import verify
from dreamproof.testing.fault_driver import STUDY_SECONDS, Driver
from dreamproof.testing.fault_kinds import EXPECTED, MAIN_KINDS, RARE, WRAPPED_STUDY_KINDS, Fault
from dreamproof.testing.fault_study import SAVE_EVERY, declare

QUIET_SECONDS = 0.12
MEMORY_LIMIT_BYTES = 96 << 20
TMPFS_BYTES = 24 << 20

Show = Callable[[str], None]


@dataclass
class FaultResult:
    """What a campaign did and found."""

    faults: list[Fault] = field(default_factory=list)
    cells: int = 0
    attempts: int = 0
    seconds: float = 0.0
    repeated_steps: int = 0
    unknown: int = 0
    faults_found: list[str] = field(default_factory=list)
    impossible: dict[str, str] = field(default_factory=dict)


def check_study(driver: Driver, result: FaultResult) -> None:
    """Compares what the ledger and the trainers' own logs say with what must be true."""
    opened = driver.opened()
    wrong = list(driver.wrong)
    missing = [str(cell.cell) for cell in opened.state.cells.values() if not opened.state.trained(cell)]
    missing += [
        f"{one.cell} {one.condition}" for one in opened.state.eval_cells.values() if not opened.state.evaluated(one)
    ]
    wrong += [f"{text} is not proven" for text in missing]
    wrong += verify(opened).faults
    wrong += check_causes(driver, opened, result)
    for cell in opened.state.cells.values():
        text = str(cell.cell)
        repeated, faults = check_steps(opened, text, driver.damaged_checkpoints[text])
        result.repeated_steps += repeated
        wrong += faults
    result.faults_found += [f"{driver.file.stem}: {fault}" for fault in wrong]
    result.faults += driver.faults
    result.cells += len(opened.state.cells)
    result.attempts += len(opened.state.attempts)


def check_causes(driver: Driver, opened: OpenStudy, result: FaultResult) -> list[str]:
    """Every attempt that was hit bears the right name; every other one is completed."""
    wrong: list[str] = []
    by_attempt = {fault.attempt: fault for fault in driver.faults if fault.attempt is not None}
    disk = any(fault.kind == "full disk" for fault in driver.faults)
    stopped = any(fault.kind in ("Ctrl-C", "stop") for fault in driver.faults)
    for attempt in opened.state.attempts.values():
        fault = by_attempt.get(attempt.name)
        allowed = {"completed"} | (EXPECTED[fault.kind] if fault is not None else set())
        if disk:
            allowed.add("disk_full")
        if stopped:
            allowed.add("stopped_by_user")
        if attempt.cause == "vanished" and any("did not start" in text for text in attempt.evidence):
            continue  # ordered by a supervisor that was killed before it could start anything
        result.unknown += attempt.cause == "unknown"
        if attempt.cause not in allowed:
            hit = f"after '{fault.kind}'" if fault is not None else "though nothing hit it"
            wrong.append(f"{attempt.name} is called {attempt.cause} {hit}: {attempt.evidence}")
    return wrong + [fault.wrong for fault in driver.faults if fault.wrong is not None]


def check_steps(opened: OpenStudy, cell: str, damaged: int) -> tuple[int, list[str]]:
    """Reads the trainer's own log: one process at a time, each from the last checkpoint of the one before."""
    path = opened.folder.runs / cell.replace("/", "-seed") / "steps.log"
    segments: list[tuple[str, int, int]] = []
    for line in path.read_text().splitlines():
        fields = line.split()
        if len(fields) != 2:
            continue  # torn by a kill
        process, step = fields[0], int(fields[1])
        if segments and segments[-1][0] == process and step == segments[-1][2] + 1:
            segments[-1] = (process, segments[-1][1], step)
        else:
            segments.append((process, step, step))
    wrong: list[str] = []
    seen = [process for process, _, _ in segments]
    if len(set(seen)) < len(seen):
        wrong.append(f"{cell}: two processes trained it at the same time")
    repeated = 0
    for (_, _, reached), (_, first, _) in pairwise(segments):
        again = max(0, reached - first + 1)
        repeated += again
        # A kill may fall between a step and its saving; every damaged checkpoint costs up to two more distances.
        allowed = SAVE_EVERY * (1 + 2 * damaged)
        if again > allowed:
            wrong.append(f"{cell}: {again} steps were trained again, {allowed} may be")
    starts = [
        one.from_agent_steps.get(cell, 0)
        for name in opened.state.known_cell(cell).attempts
        if (one := opened.state.attempts[name])
    ]
    strange = [first - 1 for _, first, _ in segments if first - 1 not in starts]
    if strange:
        wrong.append(f"{cell}: a process continued from step {strange[0]}, which no attempt of the ledger did")
    return repeated, wrong


def run_study(file: Path, kinds: list[str], count: int, chance: random.Random) -> Driver:
    """Injects `count` faults into one study, or as many as it lasts for, then lets it end."""
    driver = Driver(file, chance)
    until = time.monotonic() + STUDY_SECONDS
    while len(driver.faults) < count and time.monotonic() < until:
        if driver.supervisor.poll() is not None:
            break
        # What was injected least comes most, so that every kind gets its share.
        done = Counter(fault.kind for fault in driver.faults)
        weights = [RARE.get(kind, 1.0) / (1 + done[kind]) for kind in kinds]
        if not driver.inject(chance.choices(kinds, weights)[0]):
            time.sleep(0.05)
        time.sleep(chance.uniform(0.0, 2 * QUIET_SECONDS))
    driver.finish()
    return driver


def memory_limits_are_possible() -> bool:
    """Whether this user may make a limited memory group."""
    group = cgroup.make_limited_group(cgroup.find_own_group(), f"dreamproof-try-{os.getpid()}", 1 << 24)
    if group is None:
        return False
    cgroup.remove(group)
    return True


class SmallDisk:
    """A small tmpfs, where this user may mount one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.why_not = ""

    def __enter__(self) -> "SmallDisk":
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(self.folder)]
        try:
            done = subprocess.run(command, capture_output=True, check=False)
            self.why_not = done.stderr.decode().strip() if done.returncode else ""
        except FileNotFoundError:
            self.why_not = "there is no mount command"
        return self

    def __exit__(self, *error: object) -> None:
        if not self.why_not:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)


def campaign(folder: Path, count: int, seed: int, show: Show = print) -> FaultResult:
    """Runs studies until `count` faults were injected, and checks each of them."""
    started = time.monotonic()
    chance = random.Random(seed)
    result = FaultResult()
    special = max(2, count // 20)
    _memory_study(folder, special, chance, result, show)
    _disk_study(folder, special, chance, result, show)
    number = 0
    while len(result.faults) < count:
        number += 1
        wanted = min(60, count - len(result.faults))
        is_wrapped = number % 4 == 0
        file = declare(folder / f"study{number}", f"study{number}", max(4, wanted // 3), is_wrapped=is_wrapped)
        driver = run_study(file, WRAPPED_STUDY_KINDS if is_wrapped else MAIN_KINDS, wanted, chance)
        check_study(driver, result)
        show(_progress_line(driver, result))
    result.seconds = time.monotonic() - started
    return result


def _progress_line(driver: Driver, result: FaultResult) -> str:
    """Counts so far; what was wrong in this study, with the order of its faults."""
    name = driver.file.stem
    line = f"{name}: {len(driver.faults)} faults, {len(result.faults)} in all, {len(result.faults_found)} wrong so far"
    wrong = [fault for fault in result.faults_found if fault.startswith(f"{name}: ")]
    order = ", ".join(fault.kind for fault in driver.faults)
    return "\n".join([line, *wrong, *([f"order: {order}"] if wrong else [])])


def _memory_study(folder: Path, count: int, chance: random.Random, result: FaultResult, show: Show) -> None:
    if not memory_limits_are_possible():
        result.impossible["memory hog"] = "this user may not make a limited memory group"
        return
    file = declare(folder / "memory", "memory", 2 * count, MEMORY_LIMIT_BYTES)
    driver = run_study(file, ["memory hog"], count, chance)
    check_study(driver, result)
    show(_progress_line(driver, result))


def _disk_study(folder: Path, count: int, chance: random.Random, result: FaultResult, show: Show) -> None:
    with SmallDisk(folder / "disk") as disk:
        if disk.why_not:
            result.impossible["full disk"] = disk.why_not
            return
        file = declare(disk.folder, "disk", max(4, count))
        driver = run_study(file, ["full disk"], count, chance)
        check_study(driver, result)
    show(_progress_line(driver, result))


def table(result: FaultResult) -> str:
    """The campaign as a table."""
    injected = Counter(fault.kind for fault in result.faults)
    lines = [f"{'fault':<34}{'injected':>9}  must be called"]
    for kind, causes in EXPECTED.items():
        if kind in result.impossible:
            lines.append(f"{kind:<34}{'–':>9}  not possible here: {result.impossible[kind]}")
        else:
            called = " or ".join(sorted(causes)) or "no attempt ends"
            lines.append(f"{kind:<34}{injected[kind]:>9}  {called}")
    proven = "no" if any("not proven" in one for one in result.faults_found) else "yes"
    lines += [
        f"{'total':<34}{len(result.faults):>9}",
        "",
        f"cells {result.cells}, all proven: {proven}",
        f"attempts {result.attempts}, called unknown: {result.unknown} (only those that left no evidence)",
        f"steps trained again after a death, within a checkpoint's distance: {result.repeated_steps}",
        f"wrong: {len(result.faults_found)}",
        *(f"  {one}" for one in result.faults_found[:30]),
        f"wall time {result.seconds:.0f} s",
    ]
    return "\n".join(lines)


def main() -> None:
    """Runs the campaign and prints its table; ends with 1 where something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="kept; a temporary one is used and removed if left out")
    options = parser.parse_args()
    if options.folder is not None:
        result = campaign(options.folder, options.faults, options.seed)
    else:
        with tempfile.TemporaryDirectory(prefix="dreamproof-faults-") as folder:
            result = campaign(Path(folder), options.faults, options.seed)
    print(table(result))
    sys.exit(1 if result.faults_found else 0)


if __name__ == "__main__":
    main()
