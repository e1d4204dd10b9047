"""Going on with other settings or other code is refused, or asked for and recorded."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.settings.test_resolved import ChangedCell

from dreamproof.base.errors import BadInput
from dreamproof.data.recordings import Recording, write_recording
from dreamproof.runs.layout import Cell
from dreamproof.runs.records import RunSettings
from dreamproof.runs.resolved import read_resolved, resolved_fault
from dreamproof.runs.writer import RunWriter
from dreamproof.settings import cell as cell_settings
from dreamproof.settings.task_sets import MT8
from dreamproof.study import session
from dreamproof.study.attempts.launch import prepare
from dreamproof.study.backends.local import LocalBackend
from dreamproof.study.ledger.clock import Moment
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan import provenance
from dreamproof.study.plan.gap import PlannedAttempt
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.supervisor import Ending, Supervisor, SupervisorOptions
from dreamproof.study.views.overview import make_overview
from dreamproof.study.views.verify import first_of, identity_fault, identity_notes, verify, verify_run
from dreamproof.testing.small_study import TRAINER, declare, small_study

CELL = Cell("low", 0)
OWN: dict[str, Any] = {
    "trainer": "dreamer",
    "task": "ReactProbe",
    "settings": {"train": {"prefill_agent_steps": 8}},
    "arms": {"low": {}, "high": {"agent": {"planner": {"cost_limit": 1.0}}}},
}


def foreign(folder: Path) -> Path:
    """A study whose trainer lies beside it, without git."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(TRAINER.read_text())
    trainer = {"command": [sys.executable, "train.py", "{run_dir}"], "evaluate": small_study()["trainer"]["evaluate"]}
    return declare(folder, trainer=trainer)


def begin(file: Path, **flags: bool) -> tuple[OpenStudy, list[str]]:
    """Prepares a run, and records the start of one cell with something kept."""
    opened = open_study(file)
    with session.open_ledger(opened) as ledger:
        shown = session.prepare_run(opened, ledger, flags.get("settings", False), flags.get("code", False))
        name = opened.folder.attempt_name(len(opened.state.attempts) + 1)
        _, event = prepare(opened, PlannedAttempt("train", [CELL], [], {str(CELL): 5}), name, 1.0)
        session.record(opened, ledger, event)
    return open_study(file), shown


def edit(file: Path, old: str = "import", new: str = "import os\nimport") -> None:
    file.write_text(file.read_text().replace(old, new, 1))


def test_every_attempt_and_every_run_folder_name_settings_and_code(tmp_path: Path) -> None:
    opened, _ = begin(foreign(tmp_path))
    attempt = opened.state.attempts["a000001"]
    assert attempt.resolved == {"low": provenance.identify(opened).hash("low")}
    assert attempt.code == opened.state.code == provenance.trainer_code(opened).hash
    record = read_resolved(opened.folder.run(CELL))
    assert record is not None and record.hash == attempt.resolved["low"] and record.code["hash"] == attempt.code
    assert opened.folder.code_manifest(attempt.code).exists()


def test_other_code_is_refused_with_the_files_and_the_next_command(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    begin(file)
    edit(tmp_path / "train.py")
    (tmp_path / "more.py").write_text("1\n")
    with pytest.raises(BadInput, match="1 cell of this study were trained by other code") as refused:
        begin(file)
    assert "changed train.py\n    added more.py" in refused.value.seen
    assert "trainer.code" in refused.value.hint and provenance.ACCEPT_CODE in refused.value.hint
    assert len(open_study(file).state.attempts) == 1


def test_an_accepted_change_of_code_is_recorded_and_shown(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    first, _ = begin(file)
    edit(tmp_path / "train.py")
    opened, shown = begin(file, code=True)
    assert shown == ["accepted: changed train.py"]
    assert opened.state.code != first.state.code and len(opened.state.codes) == 2
    assert opened.state.accepted[0]["what"] == "code" and opened.state.accepted[0]["flag"] == provenance.ACCEPT_CODE
    notes = identity_notes(opened.state)
    assert notes == ["changed code accepted (--accept-changed-code): changed train.py"]
    assert notes[0] in make_overview(opened, Moment(0.0)).notices and verify(opened).notes == notes
    begin(file)  # and from here on it is the study's code


@pytest.mark.parametrize("what", ["comment", "document", "results", "study file", "nothing kept"])
def test_what_changes_nothing_is_not_refused(tmp_path: Path, what: str) -> None:
    file = foreign(tmp_path)
    begin(file)
    if what == "comment":
        edit(tmp_path / "train.py", new="# words\nimport")
    elif what == "document":
        (tmp_path / "notes.md").write_text("words\n")
    elif what == "results":
        (open_study(file).folder.root / "runs" / "left.py").write_text("1\n")
    elif what == "study file":
        edit(file, "Does the level help?", "Does it help?")
    else:  # an attempt that kept nothing may be repaired
        state = open_study(file).state
        state.known_cell(str(CELL)).kept_agent_steps = 0
        edit(tmp_path / "train.py")
        opened = open_study(file)
        opened.state = state
        assert provenance.settle(opened, provenance.Accepted())[0]
        return
    begin(file)


def test_a_comment_that_comes_and_goes_is_one_code(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    first = begin(file)[0].state.code
    edit(tmp_path / "train.py", new="# words\nimport")
    second = begin(file)[0].state.code
    edit(tmp_path / "train.py", "# words\n", "")
    state = begin(file)[0].state
    assert first is not None and second is not None and first != second and state.code == first
    assert first_of(state.codes, second) == first_of(state.codes, first) == first


def test_naming_the_files_that_count_continues_after_an_unrelated_change(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    begin(file)
    (tmp_path / "unrelated.py").write_text("1\n")
    with pytest.raises(BadInput):
        begin(file)
    edit(file, "  evaluate:", "  code: [train.py]\n  evaluate:")
    begin(file)
    edit(tmp_path / "train.py")
    with pytest.raises(BadInput, match=r"changed train\.py"):
        begin(file)


def test_code_that_names_no_file_is_refused(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    edit(file, "  evaluate:", "  code: [trian.py]\n  evaluate:")
    with pytest.raises(BadInput, match=r"trainer.code names 'trian.py', which matches no file"):
        begin(file)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["python", "train.py"], "train.py"),
        (["bash", "-c", "python train.py; exit $?"], "train.py"),
        (["conda", "run", "python", "./train.py"], "train.py"),
        (["python", "-m", "package.train"], None),
        ([sys.executable, "-c", "1"], None),
    ],
)
def test_the_script_is_found_behind_wrappers(tmp_path: Path, arguments: list[str], found: str | None) -> None:
    opened = open_study(foreign(tmp_path))
    trainer = opened.study.trainer
    assert not isinstance(trainer, str)
    script = provenance.find_script(trainer.model_copy(update={"command": arguments}), tmp_path)
    assert (script.name if script is not None else None) == found


def test_a_changed_default_is_refused_with_old_and_new_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = declare(tmp_path, **OWN)
    begin(file)
    monkeypatch.setitem(cell_settings.CELL_SETTINGS, "dreamer", ChangedCell)
    edit(file, "seeds: 2", "seeds: 3")  # adding seeds is adding to what was made with the old default
    with pytest.raises(BadInput, match="a default changed") as refused:
        begin(file)
    assert "arm low: settings.train.batch: 32 → 33" in refused.value.seen
    opened, _ = begin(file, settings=True)
    assert opened.state.accepted[0]["changes"] == ["arm low: settings.train.batch: 32 → 33"]
    assert opened.state.attempts["a000002"].resolved != opened.state.attempts["a000001"].resolved


def test_a_study_from_before_continues_and_says_so(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    opened, _ = begin(file)
    rows = [json.loads(line) for line in opened.folder.ledger.read_text().splitlines()]
    older = [row for row in rows if row["event"] not in ("settings_resolved", "code_recorded")]
    for row in older:
        row.pop("resolved", None), row.pop("code", None)
    opened.state = StudyState.replay(older)
    opened.state.redeclare(opened.study)
    events, shown = provenance.settle(opened, provenance.Accepted())
    assert shown == ["1 cell recorded before resolved settings were stored"]
    assert {event.name for event in events} == {"settings_resolved", "code_recorded"}


def test_a_setting_that_is_new_in_this_version_changes_no_declaration(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    opened, _ = begin(file)
    rows = [json.loads(line) for line in opened.folder.ledger.read_text().splitlines()]
    rows[0]["declaration"]["backend"].pop("quick_compiles")
    rows[0]["declaration_hash"] = "0" * 64  # as a version named it that did not know the setting
    opened.state = StudyState.replay(rows)
    opened.state.redeclare(opened.study)
    assert make_overview(opened, Moment(0.0)).notices == []


def test_a_finished_study_records_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = foreign(tmp_path)
    opened, _ = begin(file)
    edit(tmp_path / "train.py")
    monkeypatch.setattr(provenance, "find_gap", lambda state: None)
    assert provenance.settle(opened, provenance.Accepted()) == ([], [])


def saved_run(opened: OpenStudy) -> Any:
    """A run folder of our own trainer with a checkpoint, as the trainer leaves it."""
    run = opened.folder.run(CELL)
    record = read_resolved(run)
    assert record is not None
    facts = {"agent_steps": 20, "gradient_steps": 9, "parameter_hash": "d" * 64, "finite": True, "task": "ReactProbe"}
    hashes = {"resolved_hash": record.hash, "code_hash": record.code["hash"]}
    RunWriter(run).save(lambda folder: folder.joinpath("weights").write_bytes(b"1234") and None, facts | hashes)
    return run


def test_a_run_folder_is_valid_from_its_files_alone_also_when_defaults_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, _ = begin(declare(tmp_path, **OWN))
    run = saved_run(opened)
    monkeypatch.setitem(cell_settings.CELL_SETTINGS, "dreamer", ChangedCell)
    assert verify_run(run) == []


@pytest.mark.parametrize("damage", ["resolved", "hash", "typed", "checkpoint", "torn"])
def test_a_run_folder_that_contradicts_itself_is_named(tmp_path: Path, damage: str) -> None:
    opened, _ = begin(declare(tmp_path, **OWN))
    run = saved_run(opened)
    value = json.loads(run.resolved.read_text())
    if damage == "resolved":
        value["resolved"]["settings"]["train"]["batch"] = 64
    elif damage == "hash":
        value["hash"] = "0" * 64
    run.resolved.write_text(json.dumps(value))
    if damage == "typed":
        typed = RunSettings.model_validate_json(run.settings.read_text())
        run.settings.write_text(typed.model_copy(update={"settings": {"train": {"batch": 1}}}).model_dump_json())
    elif damage == "checkpoint":
        place = run.checkpoint_folders()[0].record
        place.write_text(json.dumps(json.loads(place.read_text()) | {"resolved_hash": "1" * 64}))
    elif damage == "torn":
        run.resolved.write_text("{")
    assert resolved_fault(run) is not None
    assert verify_run(run) and identity_fault(opened, opened.state.known_cell(str(CELL))) is not None


def test_code_that_changes_while_a_study_runs_starts_nothing_more(tmp_path: Path) -> None:
    file = foreign(tmp_path)
    begin(file)
    opened = open_study(file)
    with session.open_ledger(opened) as ledger:
        session.prepare_run(opened, ledger, False)
        supervisor = Supervisor(opened, ledger, LocalBackend(), SupervisorOptions())
        supervisor.code_watch.next_look = 0.0
        edit(tmp_path / "train.py")
        supervisor.start()
        assert supervisor.code_watch.refusal is not None and "changed train.py" in supervisor.code_watch.refusal
        assert not supervisor.watched and supervisor.ending() is Ending.CODE_CHANGED


def test_a_run_may_name_a_set_of_tasks(tmp_path: Path) -> None:
    number = [task.name for task in MT8].index("cartpole-balance")
    values, rows = np.zeros((1, 20, 5), np.float32), np.full(1, 20)
    one = Recording(values, values[..., :1], values[..., 0], np.full(1, number), rows, rows < 20)
    write_recording(tmp_path / "episodes.npz", one)
    data = {"files": ["episodes.npz"], "tasks": "mt8"}
    own = {"trainer": "pwm_offline", "task": "cartpole-balance", "agent_steps": 4}
    arms = {"low": {}, "high": {"agent": {"precision": "bfloat16"}}}
    train = {"evaluate_every_agent_steps": 2, "log_every_agent_steps": 2, "chunk_agent_steps": 2}
    agent = {"world_model": {"tasks": 8}, "behavior": {"warm_up_epochs": 2}}
    opened, _ = begin(declare(tmp_path, **own, arms=arms, settings={"agent": agent, "data": data, "train": train}))
    record = read_resolved(opened.folder.run(CELL))
    assert record is not None and len(record.resolved["settings"]["data"]["tasks"]) == 8
    assert resolved_fault(opened.folder.run(CELL)) is None
