"""Numbers of a preflight manifest are taken where they are finite, and left out where not."""

import json
from pathlib import Path
from typing import Any

import pytest

from dreamproof.study.backends.slurm.queue import read_snapshot
from dreamproof.study.preflight.measured import Measured, read_measured

ODD: list[Any] = [None, [], 3, "x", {"rates": []}, {"rates": {"low": "fast", "high": float("nan")}}, {"needs": [1]}]


@pytest.mark.parametrize("value", ODD)
def test_a_manifest_of_another_form_says_nothing(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "preflight.json"
    path.write_text(json.dumps(value))
    assert read_measured(path) == Measured()


def test_numbers_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "preflight.json"
    path.write_text(json.dumps({"rates": {"low": 2.5, "high": -1}, "needs": {"host_bytes": 7, "disk_bytes": None}}))
    assert read_measured(path) == Measured({"low": 2.5}, {"host_bytes": 7})


def test_a_snapshot_of_a_queue_is_read_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "queue.json"
    path.write_text(
        json.dumps({"jobs": {"a000001": {"job": "7", "state": "RUNNING"}, "a000002": {"state": 3}, "b": 1}})
    )
    assert {name: place.job for name, place in read_snapshot(path).items()} == {"a000001": "7"}
    path.write_text("[]")
    assert read_snapshot(path) == {}
