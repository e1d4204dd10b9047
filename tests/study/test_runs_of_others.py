"""Runs that others started: shown as running, watched, never started twice, adopted when they end."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.study.test_supervisor import Stage
from typer.testing import CliRunner

from dreamproof.cli.main import app
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.status import NOT_OURS, train_status
from dreamproof.study.plan.importing.found import ImportOptions
from dreamproof.study.plan.importing.runs import import_runs
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.study.process.writers import program_of, writers_of
from dreamproof.testing.small_study import declare
from dreamproof.testing.waiting import HANG_SECONDS

TRAINER = {"command": ["{python}", "train.py", "{run_dir}"], "adapter": "jsonl"}
STUDY = {"trainer": TRAINER, "conditions": [], "arms": {"low": {}}, "seeds": 2, "agent_steps": 1000}
CELL = Cell("low", 0)
# Writes a file in the folder, says so, waits for a line, then finishes its training if the line says so.
WORKER = """
import json, pathlib, sys
root = pathlib.Path(sys.argv[1])
root.mkdir(parents=True, exist_ok=True)
log = open(root / "metrics.jsonl", "a")
log.write(json.dumps({"step": 400, "loss": 1.0}) + "\\n"); log.flush()
print("started", flush=True)
if sys.stdin.readline().strip() == "finish":
    log.write(json.dumps({"step": 1000, "loss": 1.0}) + "\\n"); log.flush()
    (root / "model_1000_steps.pt").write_bytes(b"weights")
"""


class Worker:
    """A trainer in a process of its own that no study started."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", WORKER, str(folder)]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None and self.popen.stdout.readline() == "started\n"

    def end(self, how: str = "finish") -> None:
        self.popen.communicate(f"{how}\n", timeout=HANG_SECONDS)


@contextmanager
def working(folder: Path) -> Iterator[Worker]:
    worker = Worker(folder)
    try:
        yield worker
    finally:
        worker.popen.kill()
        worker.popen.communicate()


def stage_of(folder: Path, **changes: object) -> Stage:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("")
    return Stage(folder, **{**STUDY, **changes})


def record(stage: Stage, opened: OpenStudy, source: Path) -> list[str]:
    result = import_runs(opened, source, ImportOptions())
    stage.supervisor.record(*result.events)
    return result.lines


def call(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code != 0
    return str(result.exception)


def ledger(opened: OpenStudy, *kinds: str) -> list[str]:
    rows = [json.loads(line) for line in opened.folder.ledger.read_text().splitlines()]
    return [row["event"] for row in rows if row["event"] in kinds]


def old(folder: Path, seconds_ago: float) -> None:
    """Dates the files of a folder: the first an hour before the last."""
    for index, path in enumerate(sorted(folder.rglob("*"))):
        written = time.time() - seconds_ago - (3600 if index == 0 else 0)
        os.utime(path, (written, written))


# Who writes a folder


def test_a_process_with_an_open_file_is_found_and_an_attempt_of_a_study_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path / "run") as worker:
        [writer] = writers_of(tmp_path / "run")
        assert writer.process.process_id == worker.popen.pid
        assert writer.holds_open and writer.names_exactly
    assert writers_of(tmp_path / "run") == []
    monkeypatch.setenv("DREAMPROOF_ATTEMPT", "a000001-token")
    with working(tmp_path / "run"):
        assert writers_of(tmp_path / "run") == []


def test_a_process_that_was_given_the_folder_above_is_found_by_the_age_of_the_run(tmp_path: Path) -> None:
    """SafeDreamer makes a folder of its own in the --logdir that it is given."""
    before = tmp_path / "runs" / "earlier_low_0"
    before.mkdir(parents=True)
    (before / "metrics.jsonl").write_text("")
    old(before, 5000)
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "--logdir", f"{tmp_path}/runs/"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        run = tmp_path / "runs" / "20260220-010000_low_0"
        run.mkdir()
        (run / "metrics.jsonl").write_text("")
        assert [writer.process.process_id for writer in writers_of(run)] == [process.pid]
        assert writers_of(before) == [], "it was written before the process started"
        process.kill()


def test_arguments_of_a_process_are_never_recorded() -> None:
    assert program_of(["/opt/bin/python", "-u", "/x/train.py", "--key", "s3cr3t"]) == "python train.py"
    assert program_of(["python", "-m", "pkg.train", "--key=s3cr3t"]) == "python -m pkg.train"
    assert program_of(["python", "-c", "print('s3cr3t')"]) == "python" and program_of([]) == ""


# Import


def test_a_living_run_is_imported_as_running_and_not_started_a_second_time(tmp_path: Path) -> None:
    stage = stage_of(tmp_path)
    with working(tmp_path / "runs" / "low_0") as worker:
        lines = record(stage, stage.opened, tmp_path / "runs")
        assert lines[0].startswith(f"low/0: running (not ours), 400 agent steps: process {worker.popen.pid} (")
        assert lines[-1] == "0 of 2 cells proven, 1 running (not ours), 0 unproven, 1 missing"
        assert record(stage, stage.opened, tmp_path / "runs")[0] == lines[0]
        assert ledger(stage.opened, "foreign_run_found") == ["foreign_run_found"], "importing again changes nothing"
        assert train_status(stage.opened.state, stage.opened.state.cells[CELL]) == NOT_OURS
        file = str(stage.opened.file)
        status = call("status", file)
        assert "0/2 proven, 1 running (not ours), 1 missing" in status
        assert "low/0  not ours" in status and "400/1,000" in status and "o running (not ours)" in status
        assert "not proven  train low: seeds 1" in status
        assert f"not ours    low/0: process {worker.popen.pid} (" in status
        assert "low/0: running (not ours)" in call("why", file, "low/0")
        assert "low\t0\trunning_not_ours" in _manifest(stage)
        stage.supervisor.start()
        assert [stage.cells_of(name) for name in stage.backend.started] == [["low/1"]]


def _manifest(stage: Stage) -> str:
    stage.supervisor._manifests.write(stage.opened.state, force=True)
    return stage.opened.folder.train_status.read_text()


def test_files_that_were_just_written_show_a_run_whose_process_cannot_be_seen(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, **STUDY))
    run = tmp_path / "runs" / "low_0"
    run.mkdir(parents=True)
    for name in ("config.yaml", "metrics.jsonl"):
        (run / name).write_text('{"step": 400, "loss": 1.0}\n')
    assert import_runs(opened, tmp_path / "runs").living == {}, "all files of one time may be a copy"
    old(run, 30)
    [evidence] = import_runs(opened, tmp_path / "runs").living.values()
    assert evidence == "its files were written 30 s ago; its process cannot be seen from here"
    old(run, 5000)
    result = import_runs(opened, tmp_path / "runs")
    assert result.living == {} and list(result.unproven) == ["low/0"]


# The supervisor


def test_a_living_run_takes_a_slot_and_is_adopted_when_it_ends(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, seeds=1, backend={"slots": 1})
    with working(tmp_path / "runs" / "low_0") as worker:
        record(stage, stage.opened, tmp_path / "runs")
        waits = 0

        def wait() -> None:
            nonlocal waits
            waits += 1
            if waits == 3:
                worker.end()

        stage.backend.on_wait = wait
        assert stage.supervisor.run().name == "COMPLETE"
    assert stage.backend.started == [] and waits >= 3
    known = stage.opened.state.cells[CELL]
    assert known.proof is not None and known.proof.agent_steps == 1000 and known.foreign is None
    assert stage.opened.run(CELL).root == tmp_path / "runs" / "low_0"
    assert stage.events("foreign_run_ended")[0]["reason"] == "its process is gone"
    assert stage.events("imported")[0]["wall_seconds"] > 0
    shutil.rmtree(stage.opened.folder.runs, ignore_errors=True)
    assert "the folder runs is not here" not in call("status", str(stage.opened.file)), "nothing was ever in it"


def test_a_run_of_others_that_dies_leaves_its_cell_to_the_study(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, seeds=1)
    with working(tmp_path / "runs" / "low_0") as worker:
        record(stage, stage.opened, tmp_path / "runs")
        worker.end("die")
        stage.supervisor.scan()
    known = stage.opened.state.cells[CELL]
    assert known.foreign is None and known.unproven is not None
    stage.supervisor.start()
    assert [stage.cells_of(name) for name in stage.backend.started] == [["low/0"]]


def test_a_silent_run_without_a_process_is_shown_as_stalled_and_taken_as_ended_after_the_hard_limit(
    tmp_path: Path,
) -> None:
    stage = stage_of(tmp_path, seeds=1)
    run = tmp_path / "runs" / "low_0"
    run.mkdir(parents=True)
    for name in ("config.yaml", "metrics.jsonl"):
        (run / name).write_text('{"step": 400, "loss": 1.0}\n')
    old(run, 30)
    record(stage, stage.opened, tmp_path / "runs")
    ticks = range(0, 3700, 20)
    states = []
    for _ in ticks:
        stage.supervisor.scan()
        known = stage.opened.state.cells[CELL].foreign
        states.append(known["liveness"] if known is not None else "over")
        stage.backend.now += 20
    assert states == sorted(states, key=["running", "stalled", "over"].index)
    assert set(states) == {"running", "stalled", "over"}
    [changed] = stage.events("foreign_run_changed")
    assert "if it is over: dreamproof attach" in changed["reason"]
    assert "cannot be seen from here" in stage.events("foreign_run_ended")[0]["reason"]


def test_a_process_in_the_studys_own_run_folder_is_noticed_before_the_start(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, seeds=1)
    with working(stage.opened.folder.run(CELL).root):
        stage.supervisor.start()
        assert stage.backend.started == []
        assert stage.opened.state.cells[CELL].foreign is not None
    stage.supervisor.scan()
    stage.supervisor.start()
    assert stage.backend.started == ["a000001"]


# attach


def test_attach_by_process_finds_the_folder_and_the_next_run_adopts_it(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    (tmp_path / "train.py").write_text("")
    with working(tmp_path / "a name of my own") as worker:
        shown = call("attach", file, "low/0", "--pid", str(worker.popen.pid))
        assert f"low/0: running (not ours), 400 agent steps: process {worker.popen.pid}" in shown
        assert f"next        dreamproof run {file}" in shown
        assert open_study(Path(file)).run(CELL).root == tmp_path / "a name of my own"
        worker.end()
    stage = Stage(tmp_path, **STUDY)
    stage.supervisor.scan()
    assert open_study(Path(file)).state.cells[CELL].proof is not None


def test_attach_takes_the_file_that_the_process_prints_to(tmp_path: Path) -> None:
    trainer = {**TRAINER, "adapter": "bracket_lines"}
    file = str(declare(tmp_path, **{**STUDY, "trainer": trainer}))
    (tmp_path / "run").mkdir()
    script = "import sys; print('[40/1000] R:1.5', flush=True); sys.stdin.read()"
    with (
        (tmp_path / "slurm-1.out").open("w") as output,
        subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=output) as process,
    ):
        while not (tmp_path / "slurm-1.out").read_text():
            time.sleep(0.02)
        shown = call("attach", file, "low/0", "--pid", str(process.pid), "--folder", str(tmp_path / "run"))
        process.kill()
    assert "running (not ours), 40 agent steps" in shown


def test_attach_of_a_run_that_is_over_takes_in_what_it_left(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    with working(tmp_path / "mine") as worker:
        worker.end()
    shown = call("attach", file, "low/0", "--folder", str(tmp_path / "mine"))
    assert "low/0: proven, 1,000 agent steps, model_1000_steps.pt" in shown
    assert "is already proven" in refused("attach", file, "low/0", "--folder", str(tmp_path / "mine"))


def test_a_user_may_report_the_end_of_a_run(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    with working(tmp_path / "mine") as worker:
        call("attach", file, "low/0", "--pid", str(worker.popen.pid))
        assert "low/0: unproven" in call("attach", file, "low/0", "--ended")
    opened = open_study(Path(file))
    assert opened.state.cells[CELL].foreign is None
    assert ledger(opened, "foreign_run_ended", "imported", "unproven") == ["foreign_run_ended", "imported", "unproven"]
    assert "no run of somebody else is on record" in refused("attach", file, "low/0", "--ended")


def test_attach_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    assert "neither --pid nor --folder is given" in refused("attach", file, "low/0")
    assert "no such folder" in refused("attach", file, "low/0", "--folder", str(tmp_path / "none"))
    assert "no such process" in refused("attach", file, "low/0", "--pid", "999999999")
    assert "did you mean low/0?" in refused("attach", file, "lov/0", "--pid", "1")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        message = refused("attach", file, "low/0", "--pid", str(process.pid))
        process.kill()
    assert "no run folder found in its arguments and open files" in message
    assert f"--pid {process.pid} --folder DIR" in message


def test_attach_takes_one_run_for_one_cell(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    for name in ("mine", "other"):
        with working(tmp_path / "runs" / name) as worker:
            worker.end()
    message = refused("attach", file, "low/0", "--folder", str(tmp_path / "runs"))
    assert "holds 2 runs or more, e.g. " in message and "--folder" in message
    assert "started the command" in refused("attach", file, "low/0", "--pid", str(os.getppid()))
    call("attach", file, "low/0", "--folder", str(tmp_path / "runs/mine"))
    (tmp_path / "link").symlink_to(tmp_path / "runs/mine")
    for folder in ("runs/mine", "link"):
        assert "is the run of low/0" in refused("attach", file, "low/1", "--folder", str(tmp_path / folder))
