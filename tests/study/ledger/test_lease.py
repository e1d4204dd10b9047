"""One supervisor a study, whatever happens to process ids."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dreamproof.base.errors import BadInput, Busy
from dreamproof.study.ledger.lease import Lease, living_holder
from dreamproof.study.process.processes import ProcessIdentity, is_alive

TAKE = """
import sys, time
from pathlib import Path
from dreamproof.study.ledger.lease import Lease
Lease(Path(sys.argv[1])).take()
print("taken", flush=True)
time.sleep(1200)
"""


def own() -> ProcessIdentity:
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    return identity


def other_process_takes(path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", TAKE, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"taken\n"
    return process


def test_a_second_supervisor_is_refused_and_shown_who_holds_the_study(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    process = other_process_takes(path)
    try:
        with pytest.raises(Busy, match=f"process {process.pid}"):
            Lease(path).take()
        holder = living_holder(path)
        assert holder is not None and holder.process_id == process.pid
    finally:
        process.kill()
        process.wait()
    Lease(path).take()


def test_a_lease_of_a_dead_process_whose_id_was_reused_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    parent = ProcessIdentity.of(os.getppid())
    assert parent is not None
    reused = dataclasses.replace(parent, start_ticks=parent.start_ticks - 1)
    path.write_text(json.dumps(reused.as_json()))
    assert living_holder(path) is None
    Lease(path).take()


def test_a_lease_from_before_a_reboot_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    parent = ProcessIdentity.of(os.getppid())
    assert parent is not None
    path.write_text(json.dumps({**parent.as_json(), "boot_id": "another boot"}))
    Lease(path).take()


def test_a_living_holder_is_respected_even_where_the_kernel_lock_is_not_seen(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    parent = ProcessIdentity.of(os.getppid())
    assert parent is not None
    path.write_text(json.dumps(parent.as_json()))
    with pytest.raises(Busy):
        Lease(path).take()


def test_a_lease_of_another_machine_needs_a_person_to_say_that_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text(json.dumps({**own().as_json(), "host": "elsewhere", "boot_id": "other"}))
    with pytest.raises(Busy, match="--from-lost-host"):
        Lease(path).take()
    Lease(path).take(from_lost_host=True)


def test_a_released_lease_is_free_and_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    lease = Lease(path)
    lease.take()
    assert living_holder(path) == own()
    lease.release()
    assert living_holder(path) is None


def test_half_a_lease_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text('{"boot_id": "x", "proc')
    assert living_holder(path) is None
    Lease(path).take()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        Lease(blocked / "study" / "lease.json").take()


def test_a_zombie_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(identity)
    process.wait()


def test_a_machine_that_only_changed_its_name_is_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text(json.dumps({**own().as_json(), "host": "old-name", "start_ticks": 1}))
    assert living_holder(path) is None
    Lease(path).take()
