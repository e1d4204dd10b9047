"""What `run` will refuse is said by `plan` and `status` before."""

import json
from pathlib import Path

from tests.cli.conftest import Verb

from dreamproof.base.errors import ExitCode
from dreamproof.testing.small_study import QUICK, TRAINER, declare, small_study


def test_plan_and_status_say_what_run_refuses_of_a_changed_setting(dreamproof: Verb, finished: Path) -> None:
    finished.write_text(finished.read_text().replace("level: 2", "level: 3"))
    refused = dreamproof("run", finished, *QUICK)
    assert refused.code == 2 and "arms.high.level: 2 → 3" in refused.errors
    before = (finished.parent / "results" / "small" / "ledger.jsonl").read_bytes()
    plan, status = dreamproof("plan", finished), dreamproof("status", finished)
    assert "refused     " in plan.output and "next        undo the change, rename the study, or" in plan.output
    facts = json.loads(dreamproof("plan", finished, "--json").output)
    for text in (facts["refusal"], facts["refusal_hint"]):
        assert text in refused.errors and text in plan.output
    assert "records the change" not in status.output and "the next run refuses: " in status.output
    assert status.output.endswith(f"next        dreamproof plan {finished}\n")
    assert (finished.parent / "results" / "small" / "ledger.jsonl").read_bytes() == before


def test_plan_and_status_say_what_run_refuses_of_changed_code(dreamproof: Verb, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER.read_text())
    trainer = {**small_study()["trainer"], "code": ["train.py"]}
    file = declare(tmp_path, trainer=trainer)
    assert dreamproof("run", file, *QUICK).code == 0
    assert "refused" not in dreamproof("plan", file).output
    (tmp_path / "train.py").write_text("import os\n" + TRAINER.read_text())
    assert "refused" not in dreamproof("plan", file).output  # nothing is missing, so nothing is started
    declare(tmp_path, trainer=trainer, seeds=3)
    manifests = sorted((tmp_path / "results" / "small" / "manifests").rglob("*"))
    plan, status = dreamproof("plan", file), dreamproof("status", file)
    refused = dreamproof("run", file, *QUICK)
    assert refused.code == 2 and "were trained by other code" in refused.errors
    assert "were trained by other code" in plan.output and "--accept-changed-code" in plan.output
    assert "the next run refuses: " in status.output
    assert f"next        dreamproof plan {file}" in status.output
    assert sorted((tmp_path / "results" / "small" / "manifests").rglob("*")) == manifests


def test_a_report_of_an_unpacked_folder_names_the_folder(dreamproof: Verb, finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "small copy"
    folder.parent.mkdir()
    (finished.parent / "results" / "small").rename(folder)
    next(folder.glob("runs/*/evaluations/*.json")).write_text("{}")
    refused = dreamproof("report", folder)
    assert refused.code == ExitCode.BROKEN_EVIDENCE
    assert f"hint: dreamproof verify '{folder}'" in refused.errors
