"""Studies that use old names of settings: the committed galleries open, and `plan` reports each old key once."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GALLERY = Path(__file__).parents[2] / "gallery"
STUDIES = sorted(path.parent.name for path in GALLERY.glob("*/study.yaml"))
NOTE = "note: agent.world_model.least_reward_deviation is now agent.world_model.min_reward_std\n"


@pytest.mark.parametrize("name", STUDIES)
def test_a_committed_study_still_opens(dreamproof: Callable[..., Any], tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    for file in ("study.yaml", "ledger.jsonl"):
        shutil.copy(GALLERY / name / file, place / file)
    status = dreamproof("status", place, "--json")
    assert status.code in (0, 3), status.errors
    assert json.loads(status.output)


def test_plan_reports_an_old_key_once_beside_its_json(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copy(GALLERY / "pwm_ant" / "study.yaml", tmp_path / "old.yaml")
    planned = dreamproof("plan", tmp_path / "old.yaml", "--json")
    assert planned.code == 0
    assert planned.errors == NOTE
    assert json.loads(planned.output)["arms"] == ["decoder", "no_decoder"]
