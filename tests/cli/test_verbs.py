"""What people read and what programs get: text, JSON, exit codes, and the next command after every error."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dreamproof.base.errors import ExitCode
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.testing.small_study import QUICK, declare, run_small, small_study
from dreamproof.version import __version__

VERBS = ("plan", "check", "run", "status", "watch", "why", "stop", "cost", "verify", "report", "export", "import")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study that ran to its end."""
    return run_small(tmp_path_factory.mktemp("finished"))


def folder_of(file: Path) -> StudyFolder:
    return StudyFolder(file.parent / "results" / file.stem)


def test_the_version_is_printed(dreamproof: Callable[..., Any]) -> None:
    shown = dreamproof("--version")
    assert (shown.code, shown.output.strip()) == (0, f"dreamproof {__version__}")


def test_help_names_every_verb_and_the_exit_codes(dreamproof: Callable[..., Any]) -> None:
    shown = dreamproof("--help")
    assert shown.code == 0
    for verb in [
        "plan",
        "check",
        "run",
        "status",
        "watch",
        "why",
        "stop",
        "money",
        "verify",
        "report",
        "export",
        "import",
        "schema",
    ]:
        assert f"\n  {verb} " in shown.output
    assert "Exit codes: 0 done" in shown.output


def test_help_needs_no_large_library() -> None:
    script = "import sys; sys.argv = ['dreamproof', '--help']\n"
    script += "from dreamproof.cli.main import main\n"
    script += "try: main()\nfinally: print({'jax', 'numpy', 'rich', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("set()")


def test_schema_is_a_json_schema_of_the_study_file(dreamproof: Callable[..., Any]) -> None:
    schema = json.loads(dreamproof("schema").output)
    assert schema["properties"]["agent_steps"]["minimum"] == 1


STATUS = """small: Does the level help?
folder      {folder}
supervisor  none
train       4/4 proven
evaluate    4/4 proven

seed         0  1
low          +  +
high         +  +
            + proven  > running  x dead  ~ waiting  . missing  ! stopped  ? unproven
next        dreamproof report {file}
"""


def test_the_status_of_a_finished_study(dreamproof: Callable[..., Any], finished: Path) -> None:
    shown = dreamproof("status", finished)
    assert shown.output == STATUS.format(folder=folder_of(finished).root, file=finished)


STATUS_OF_NOTHING = """small: Does the level help?
folder      {folder}
supervisor  none
train       0/4 proven, 4 missing
evaluate    0/4 proven, 4 missing

seed         0  1
low          .  .
high         .  .
            + proven  > running  x dead  ~ waiting  . missing  ! stopped  ? unproven

not proven  train low: seeds 0-1
not proven  train high: seeds 0-1
not proven  evaluate id low: seeds 0-1
not proven  evaluate id high: seeds 0-1
next        dreamproof run {file}
"""


def test_the_status_before_anything_ran_names_all_that_is_missing(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = declare(tmp_path)
    assert dreamproof("status", file).output == STATUS_OF_NOTHING.format(folder=folder_of(file).root, file=file)


def test_the_status_counts_conditions_where_many_are_missing(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    conditions = ["id", *(f"level_{number}" for number in range(1, 5))]
    shown = dreamproof("status", declare(tmp_path, conditions=conditions)).output
    for arm in ("low", "high"):
        assert f"not proven  evaluate 5 conditions {arm}: seeds 0-1\n" in shown


PLAN = """small: Does the level help?
arms        low, high
seeds       0-1
conditions  id
matrix      4 train cells, 4 eval cells
gap         2 train cells, 2 eval cells
  train     high: seeds 0-1
takes       – with 4 slots, – GPU hours, –
memory      device –, host – for all slots
disk        – for checkpoints
money       0.00 spent, budget –
note        the duration is unknown before a speed is measured (dreamproof check, or a first cell)
forbids     2 seeds per arm and 1 comparison: the smallest possible p is 0.333, needed is 0.050 or less; \
4 seeds per arm could decide
smallest    low and high, 4 seeds each: 8 cells, 8 of them missing; price unknown before a speed is \
measured (dreamproof check, or a first cell); more if the spread over seeds turns out large
next        dreamproof run {file}
"""


def test_the_plan_of_one_arm(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = declare(tmp_path)
    assert dreamproof("plan", file, "--arms", "high").output == PLAN.format(file=file)


def test_reading_verbs_speak_json(dreamproof: Callable[..., Any], finished: Path) -> None:
    status = json.loads(dreamproof("status", finished, "--json").output)
    assert {name: count for name, count in status["train"].items() if count} == {"declared": 4, "proven": 4}
    assert status["train"]["missing"] == 0, "a count that is zero is printed"
    assert status["json_version"] == 1
    assert [cell["status"] for cell in status["cells"]] == ["proven"] * 4
    plan = json.loads(dreamproof("plan", finished, "--json").output)
    assert (plan["train_cells"], plan["gap_train_cells"]) == (4, 0)
    why = json.loads(dreamproof("why", finished, "low/0", "--json").output)
    assert [attempt["cause"] for attempt in why["attempts"]] == ["completed", "completed"]
    cost = json.loads(dreamproof("cost", finished, "--json").output)
    assert cost["proven_cells"] == 4
    assert cost["total_ms"] == cost["useful_ms"] + cost["wasted_ms"] + cost["idle_ms"]
    verify = json.loads(dreamproof("verify", finished, "--json").output)
    assert (verify["train_proofs"], verify["eval_proofs"], verify["faults"]) == (4, 4, [])
    watch = json.loads(dreamproof("watch", finished, "--once", "--json").output)
    assert watch["complete"] is True


def test_errors_are_json_too(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    shown = dreamproof("status", tmp_path / "none.yaml", "--json")
    value = json.loads(shown.output)
    assert (shown.code, value["json_version"], value["error"]["exit_code"]) == (2, 1, 2)
    assert "no such study" in value["error"]["message"] and value["error"]["hint"] == "ls studies/ results/"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["status", "--json"], "Missing argument", "dreamproof status --help"),
        (["status", "a.yaml", "--sed", "3", "--json"], "No such option", "dreamproof status --help"),
        (["stats", "a.yaml", "--json"], "No such command 'stats'", "dreamproof --help"),
        (["stop", "a.yaml", "--json"], "No such option: --json", "dreamproof stop --help"),
    ],
)
def test_words_that_no_verb_takes_are_an_error_in_json_too(
    dreamproof: Callable[..., Any], words: list[str], message: str, hint: str
) -> None:
    shown = dreamproof(*words)
    error = json.loads(shown.output)["error"]
    assert message in error["message"] and (error["hint"], error["exit_code"], shown.code) == (hint, 2, 2)
    assert "Usage: dreamproof" in shown.errors


def test_a_study_is_found_by_its_folder_too(dreamproof: Callable[..., Any], finished: Path) -> None:
    shown = dreamproof("status", folder_of(finished).root)
    assert "4/4 proven" in shown.output


def test_a_finished_study_starts_nothing_again(dreamproof: Callable[..., Any], finished: Path) -> None:
    before = sorted(path.name for path in folder_of(finished).attempts.iterdir())
    shown = dreamproof("run", finished, *QUICK)
    assert shown.code == 0
    assert sorted(path.name for path in folder_of(finished).attempts.iterdir()) == before


def test_why_lists_attempts_with_evidence(dreamproof: Callable[..., Any], finished: Path) -> None:
    shown = dreamproof("why", finished, "high/1")
    assert "high/1: proven, 20 of 20 agent steps" in shown.output
    assert "    | every cell is proven" in shown.output


def test_an_edited_ledger_is_refused_by_run_and_named_by_verify(dreamproof: Callable[..., Any], finished: Path) -> None:
    ledger = folder_of(finished).ledger
    whole = ledger.read_bytes()
    try:
        ledger.write_bytes(whole.replace(b'"cause":"completed"', b'"cause":"completeD"', 1))
        line = next(n for n, text in enumerate(ledger.read_bytes().splitlines(), 1) if b"completeD" in text)
        for verb in ("run", "verify"):
            shown = dreamproof(verb, finished)
            assert shown.code == ExitCode.BROKEN_EVIDENCE
            assert f"line {line} does not match its own hash" in shown.errors
    finally:
        ledger.write_bytes(whole)


def test_verify_reads_every_byte_of_a_proof(dreamproof: Callable[..., Any], finished: Path) -> None:
    run = folder_of(finished).run(Cell("low", 1))
    weights = run.checkpoint(20).root / "weights.json"
    whole = weights.read_bytes()
    try:
        weights.write_bytes(whole.replace(b"padding", b"PADDING"))
        shown = dreamproof("verify", finished)
        assert shown.code == ExitCode.BROKEN_EVIDENCE
        assert (
            "first broken: low/1: checkpoint step-000000000020: file weights.json is not what was saved" in shown.errors
        )
        assert dreamproof("verify", finished, "--quick").code == 0
    finally:
        weights.write_bytes(whole)


def test_a_lost_proof_stops_run_until_a_person_says_to_train_it_again(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = declare(tmp_path, arms={"low": {}}, seeds=1, conditions=[], agent_steps=5)
    assert dreamproof("run", file, *QUICK).code == 0
    checkpoints = folder_of(file).run(Cell("low", 0)).checkpoints
    checkpoints.rename(tmp_path / "away")
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.BROKEN_EVIDENCE
    assert "the proof of 1 trained cell(s) is gone from disk, first low/0" in shown.errors
    assert "--retrain-lost" in shown.errors
    assert dreamproof("run", file, *QUICK, "--retrain-lost").code == 0
    assert checkpoints.is_dir()


def test_a_moved_study_continues(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = declare(tmp_path / "here", arms={"low": {}}, seeds=2, conditions=[], agent_steps=5)
    assert dreamproof("run", file, *QUICK, "--seeds", "0").code == 0
    (tmp_path / "here").rename(tmp_path / "there")
    moved = tmp_path / "there" / file.name
    assert dreamproof("run", moved.parent / "results" / "small", *QUICK).code == 0
    assert "2/2 proven" in dreamproof("status", moved).output


def test_a_study_folder_moved_without_its_file_says_what_is_missing(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    file = declare(tmp_path, arms={"low": {}}, seeds=2, conditions=[], agent_steps=5)
    assert dreamproof("run", file, *QUICK, "--seeds", "0").code == 0
    alone = tmp_path / "alone"
    folder_of(file).root.rename(alone)
    shown = dreamproof("run", alone, *QUICK)
    assert shown.code == ExitCode.BAD_INPUT
    assert "its study file is missing at" in shown.errors
    assert "1/2 proven" in dreamproof("status", alone).output


def test_a_changed_declaration_is_an_event_and_a_changed_meaning_is_refused(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    small = {"arms": {"low": {"level": 1}}, "seeds": 1, "conditions": [], "agent_steps": 5}
    file = declare(tmp_path, **small)
    assert dreamproof("run", file, *QUICK).code == 0
    declare(tmp_path, **{**small, "seeds": 2})
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == 0
    assert "declaration changed: seeds: [0] → [0, 1]" in shown.output
    declare(tmp_path, **{**small, "seeds": 2, "arms": {"low": {"level": 9}}})
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.BAD_INPUT
    assert "arms.low.level: 1 → 9" in shown.errors
    assert "--accept-changes" in shown.errors
    assert dreamproof("run", file, *QUICK, "--accept-changes").code == 0
    rows = [json.loads(line) for line in folder_of(file).ledger.read_text().splitlines()]
    assert [row["changes"] for row in rows if row["event"] == "declaration_changed"] == [
        ["seeds: [0] → [0, 1]"],
        ["arms.low.level: 1 → 9"],
    ]
    assert rows[0]["event"] == "study_declared"
    assert "attempt_started" in [row["event"] for row in rows]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": [0, 0]}, "seed 0 is listed twice"),
        ({"arms": {"a": {"x": 1}, "b": {"x": 1}}}, "arm 'b' equals arm 'a'"),
        ({"agent_stepz": 5}, "agent_steps"),
        ({"agent_steps": "many"}, "agent_steps"),
        (
            {"trainer": {"command": ["no-such-program", "{run_dir}"]}, "conditions": []},
            "'no-such-program' not found",
        ),
        ({"trainer": {"command": ["true", "{sede}"]}, "conditions": []}, "did you mean {seed}?"),
        ({"trainer": {"command": ["true", "{settings.levle}"]}, "conditions": []}, "did you mean settings.level?"),
        ({"trainer": {"command": ["true"], "working_folder": "nowhere"}, "conditions": []}, "does not exist"),
    ],
)
def test_bad_studies_are_refused_with_a_message(
    dreamproof: Callable[..., Any], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(small_study(**change)))
    shown = dreamproof("run", file, *QUICK)
    assert shown.code == ExitCode.BAD_INPUT
    assert message in shown.errors
    assert "\n  hint: " in shown.errors
    assert not (tmp_path / "results" / "small" / "attempts").exists() or not any(
        (tmp_path / "results" / "small" / "attempts").iterdir()
    )


def test_broken_yaml_names_its_line(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: x\nquestion: [unclosed\n")
    shown = dreamproof("plan", file)
    assert shown.code == ExitCode.BAD_INPUT
    assert f"{file}:3" in shown.errors or f"{file}:2" in shown.errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "nowhere.yaml"),
        ("why", "STUDY", "low/9"),
        ("why", "STUDY", "low"),
        ("run", "STUDY", "--seeds", "9"),
        ("run", "STUDY", "--arms", "lwo"),
        ("report", "STUDY", "--language", "xx"),
        ("import", "STUDY", "nowhere"),
    ],
)
def test_every_error_ends_with_the_next_command(
    dreamproof: Callable[..., Any], finished: Path, arguments: tuple[str, ...]
) -> None:
    shown = dreamproof(*(str(finished) if word == "STUDY" else word for word in arguments))
    assert shown.code == ExitCode.BAD_INPUT
    assert shown.errors.startswith("error: ")
    assert "\n  hint: " in shown.errors


def test_a_failing_arm_stops_the_launch_and_is_named(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    script = "import sys; 'high' in sys.argv[1] and __import__('a_missing_module'); open(sys.argv[1] + '/x', 'w')"
    trainer = {"command": [sys.executable, "-c", script, "{run_dir}"]}
    file = declare(tmp_path, trainer=trainer, conditions=[])
    shown = dreamproof("run", file, "--plain")
    assert shown.code == ExitCode.PREFLIGHT_FAILED
    assert "arm high: import_error" in shown.errors
    assert not any(folder_of(file).attempts.iterdir())
    shown = dreamproof("check", file)
    assert shown.code == ExitCode.PREFLIGHT_FAILED
    assert "a_missing_module" in folder_of(file).preflight_text.read_text()


def test_an_unchanged_preflight_is_not_repeated(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = declare(tmp_path, arms={"low": {}}, seeds=1, conditions=[], agent_steps=5)
    assert "passed" in dreamproof("check", file).output
    first = folder_of(file).preflight.stat().st_mtime_ns
    assert dreamproof("run", file, "--no-report", "--plain").code == 0
    assert folder_of(file).preflight.stat().st_mtime_ns == first


def test_manifests_show_the_whole_matrix_missing_cells_included(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    file = declare(tmp_path, agent_steps=5, money={"price_per_gpu_hour": 36.0})
    assert dreamproof("run", file, *QUICK, "--arms", "low", "--seeds", "0").code == 0
    lines = [line.split("\t") for line in folder_of(file).train_status.read_text().splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert [(row["arm"], row["seed"], row["status"]) for row in rows] == [
        ("low", "0", "proven"),
        ("low", "1", "missing"),
        ("high", "0", "missing"),
        ("high", "1", "missing"),
    ]
    assert rows[0]["run_folder"] == "runs/low-seed0"
    assert float(rows[0]["money"]) > 0
    assert len(folder_of(file).eval_status.read_text().splitlines()) == 5


def test_ten_thousand_cells_are_planned_and_shown(dreamproof: Callable[..., Any], tmp_path: Path) -> None:
    arms = {f"arm{number}": {"level": number} for number in range(10)}
    file = declare(tmp_path, arms=arms, seeds=1000, trainer={"command": ["true"], "evaluate": ["true"]})
    assert "10,000 train cells" in dreamproof("plan", file).output
    shown = dreamproof("status", file)
    assert "not proven  train arm9: seeds 0-999" in shown.output


def test_runs_made_elsewhere_are_imported_and_only_the_missing_cell_is_trained(
    dreamproof: Callable[..., Any], finished: Path, tmp_path: Path
) -> None:
    file = declare(tmp_path, name="later", seeds=3)
    runs = folder_of(finished).runs
    shown = dreamproof("import", file, runs, "--pattern", "{arm}-seed{seed}", "--dry-run")
    assert shown.code == 0, shown.errors
    assert "4/6 proven" not in dreamproof("status", file).output
    assert dreamproof("import", file, runs, "--pattern", "{arm}-seed{seed}").code == 0
    status = dreamproof("status", file).output
    assert "4/6 proven" in status
    assert "not proven  train low: seeds 2\n" in status
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()}
    assert dreamproof("run", file, *QUICK).code == 0
    rows = [json.loads(line) for line in folder_of(file).ledger.read_text().splitlines()]
    trained = [row["cells"] for row in rows if row["event"] == "attempt_started" and row["work"] == "train"]
    assert sorted(trained) == [["high/2"], ["low/2"]]
    assert before == {path: path.stat().st_mtime_ns for path in runs.rglob("*") if path.is_file()}
    assert dreamproof("verify", file).code == 0


def test_an_export_holds_the_ledger_and_replaces_nothing(
    dreamproof: Callable[..., Any], finished: Path, tmp_path: Path
) -> None:
    shown = dreamproof("export", finished, tmp_path / "out", "--json")
    assert shown.code == 0, shown.errors
    assert "cells.csv" in json.loads(shown.output)["files"]
    assert dreamproof("export", finished, tmp_path / "out").code == ExitCode.BAD_INPUT


def test_an_export_with_an_unreadable_file_holds_the_rest_and_is_no_success(
    dreamproof: Callable[..., Any], finished: Path, tmp_path: Path
) -> None:
    root = tmp_path / "study"
    shutil.copytree(folder_of(finished).root, root)
    for number in range(20):
        os.mkfifo(root / "runs" / "low-seed0" / f"{number:02}.log")
    shown = dreamproof("export", root, tmp_path / "out")
    assert shown.code == ExitCode.BROKEN_EVIDENCE
    assert "20 files left out of the export" in shown.errors and "and 8 more" in shown.errors
    assert "runs/low-seed0/00.log: is a pipe, not a file" in shown.errors
    assert (tmp_path / "out" / "cells.csv").exists() and (tmp_path / "out" / "left_out.csv").exists()
    printed = dreamproof("export", root, tmp_path / "again", "--json")
    assert printed.code == ExitCode.BROKEN_EVIDENCE and len(json.loads(printed.output)["left_out"]) == 20


def test_a_folder_of_tables_made_elsewhere_is_reported_without_a_ledger(
    dreamproof: Callable[..., Any], tmp_path: Path
) -> None:
    made = Path(__file__).parents[1] / "report" / "fixtures" / "safedreamer_v2"
    folder = Path(shutil.copytree(made, tmp_path / "copied"))
    shown = dreamproof("report", folder)
    assert shown.code == 0, shown.errors
    assert "3 of 20 train cells are missing" in (folder / "reports" / "decision.md").read_text(encoding="utf-8")
    (folder / "study.yaml").unlink()
    refused = dreamproof("report", folder)
    assert refused.code == ExitCode.BAD_INPUT and "is not a study folder" in refused.errors
