"""`status`, `watch` and `why` show process, GPU, phase, metric, last progress and time left, at any width."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.study.test_runs_of_others import STUDY, working
from tests.study.test_supervisor import Stage
from typer.testing import CliRunner

from dreamproof.base.errors import BadInput
from dreamproof.base.files import write_json
from dreamproof.cli.main import app
from dreamproof.cli.running import log_lines, running_table, running_text, terminal_width
from dreamproof.cli.status import overview_text
from dreamproof.cli.watch import parse_interval
from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.study.adapters import find_adapter
from dreamproof.study.adapters.api import TrainerFormat
from dreamproof.study.adapters.metrics import metric_value
from dreamproof.study.backends.api import Presence, Sighting
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.process.gpus import GpuUse
from dreamproof.study.views.overview import make_overview
from dreamproof.study.views.running import RunningCell, gpu_use_of, read_sightings, study_seconds_left
from dreamproof.testing.small_study import declare

CELL: dict[str, Any] = {
    "cell": "v2_cert_only/3", "attempt": "a000017", "work": "train", "agent_steps": 61_440,
    "declared_agent_steps": 120_000, "phase": "train", "agent_steps_per_second": 19.83, "seconds_left": 2953.0,
    "wall_seconds": 3098.0, "money": 3.01, "liveness": "running", "reason": "", "process_id": 41234,
    "progress_age_seconds": 12.0, "metric": 1.684, "gpu_percent": 87.0, "gpu_bytes": 11 << 30,
}  # fmt: skip
WIDTHS = (40, 48, 60, 72, 80, 100, 132)


def running(**changes: Any) -> RunningCell:
    return RunningCell(**{**CELL, **changes})


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_without_a_width_everything_is_shown() -> None:
    head, row = running_table([running()], "score").splitlines()
    assert head.split("  ")[0] == "cell" and "GPU memory" in head and "score" in head
    for part in ("41234", "train", "61,440/120,000", "19.8/s", "49 min 13 s", "1.684", "87%", "11.0 GiB", "12 s ago"):
        assert part in row


@pytest.mark.parametrize("width", WIDTHS)
def test_the_table_fits_every_width_from_40_columns_on(width: int) -> None:
    text = running_table([running(), running(cell="v2_full/4", liveness="stalled")], "score", width)
    assert longest(text) <= width
    assert "v2_cert_only/3" in text and "61,440/120,000" in text and "stalled" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_the_whole_status_fits_every_width(width: int, tmp_path: Path) -> None:
    arms = {f"an_arm_with_a_long_name_{number}": {"level": number} for number in range(3)}
    opened = open_study(declare(tmp_path, arms=arms, seeds=30, question="Does it? " * 30))
    text = overview_text(opened, make_overview(opened, read_moment()), "study.yaml", width)
    assert longest(text) <= width
    marks = next(line for line in text.splitlines() if line.startswith("an_arm_with_a_long_name_0"))
    assert marks.count(".") == 30 or width < 58, "every seed has its mark where there is room for it"


def test_the_next_command_is_never_cut_and_nothing_is_outside_of_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_study(declare(tmp_path))
    place = f"{'a/' * 40}study.yaml"
    assert overview_text(opened, make_overview(opened, read_moment()), place, 40).endswith(f"dreamproof run {place}")
    monkeypatch.setenv("COLUMNS", "40")
    assert terminal_width() is None


def test_a_line_about_a_cell_holds_everything() -> None:
    assert running_text(running(), "score") == (
        "pid 41234, phase train, 61,440/120,000 agent steps, 19.8/s, left 49 min 13 s, score 1.684, GPU 87% 11.0 GiB, "
        "last progress 12 s ago, running"
    )
    unknown = running(process_id=None, gpu_percent=None, gpu_bytes=None, metric=None, progress_age_seconds=None)
    assert "pid –" in running_text(unknown, "score") and "GPU – –" in running_text(unknown, "score")


# GPU


GPUS = [GpuUse(0, 35.0, 4 << 30, {100: 1 << 30, 200: 3 << 30}), GpuUse(1, 90.0, 8 << 30, {300: 8 << 30})]


def test_the_gpu_of_a_process_is_found_by_its_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    children = {100: [], 50: [200, 300], 7: []}
    monkeypatch.setattr("dreamproof.study.views.running.family", lambda process_id: children.get(process_id, []))
    assert gpu_use_of(100, None, GPUS) == (35.0, 1 << 30)
    assert gpu_use_of(50, None, GPUS) == (90.0, 11 << 30), "the processes below a wrapper count"
    assert gpu_use_of(7, "1", GPUS) == (90.0, 8 << 30), "in a container only the GPU that it was given is known"
    assert gpu_use_of(7, None, GPUS) == (None, None), "with several GPUs nothing is guessed"
    assert gpu_use_of(7, None, GPUS[:1]) == (35.0, 4 << 30)
    assert gpu_use_of(None, None, GPUS) == gpu_use_of(100, None, []) == (None, None)


# Progress and time left


def test_the_age_of_the_last_progress_is_the_supervisors(tmp_path: Path) -> None:
    stage = Stage(tmp_path, seeds=1, arms={"low": {}})
    stage.supervisor.recover()
    stage.supervisor.start()
    stage.supervisor.scan()
    stage.supervisor.judge()
    stage.backend.now += 25
    stage.supervisor.judge()
    stage.supervisor.sleep()
    assert 25 <= read_sightings(stage.opened.folder)["low/0"] < 25 + 60
    write_json(stage.opened.folder.sightings, {"unix_seconds": "now", "progress_age_seconds": [1]})
    assert read_sightings(stage.opened.folder) == {}


def test_a_trainer_stopped_by_a_signal_has_the_age_of_its_last_progress(tmp_path: Path) -> None:
    stage = Stage(tmp_path, seeds=1, arms={"low": {}})
    stage.supervisor.recover()
    stage.supervisor.start()
    stage.supervisor.scan()
    stage.supervisor.judge()
    [name] = stage.backend.sightings
    stage.backend.sightings[name] = Sighting(Presence.RUNNING, process_state="T")
    for _ in range(45):
        stage.backend.now += 1
        stage.supervisor.scan()
        stage.supervisor.judge()
    stage.supervisor.sleep()
    assert 45 <= read_sightings(stage.opened.folder)["low/0"] < 45 + 60


def test_an_attempt_that_cannot_be_seen_from_here_has_the_age_of_its_newest_file(tmp_path: Path) -> None:
    stage = Stage(tmp_path, seeds=1, arms={"low": {}})
    stage.supervisor.recover()
    stage.supervisor.start()
    [name] = stage.backend.sightings
    stage.backend.sightings[name] = Sighting(Presence.RUNNING, unseen="another container runs it")
    stage.supervisor.scan()
    stage.supervisor.judge()
    stage.supervisor.sleep()
    assert read_sightings(stage.opened.folder) == {}


def test_without_a_supervisor_it_is_the_age_of_the_newest_file(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    with working(tmp_path / "mine") as worker:
        CliRunner().invoke(app, ["attach", file, "low/0", "--pid", str(worker.popen.pid)])
        for path in (tmp_path / "mine").iterdir():
            os.utime(path, (time.time() - 500, time.time() - 500))
        [one] = json.loads(CliRunner().invoke(app, ["status", file, "--json"]).stdout)["running"]
        why = CliRunner().invoke(app, ["why", file, "low/0"]).output
    assert 500 <= one["progress_age_seconds"] < 900 and one["process_id"] == worker.popen.pid
    assert one["phase"] == "train" and f"now         pid {worker.popen.pid}, phase train, 400/1,000" in why


def test_the_time_left_of_the_study_uses_the_speed_of_what_runs(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, conditions=[], agent_steps=1000, backend={"slots": 2}))
    assert study_seconds_left(opened, [], {}) is None
    assert study_seconds_left(opened, [], {"low": 10.0, "high": 5.0}) == pytest.approx((200 + 400) / 2)
    one = running(cell="low/0", agent_steps=500, agent_steps_per_second=20.0, seconds_left=25.0)
    assert study_seconds_left(opened, [one], {"high": 5.0}) == pytest.approx((25 + 50 + 400) / 2)
    assert study_seconds_left(opened, [one], {}) == pytest.approx((25 + 50 + 100) / 2)
    slow = running(cell="high/0", agent_steps=500, agent_steps_per_second=20.0, seconds_left=500.0)
    assert study_seconds_left(opened, [one, slow], {}) == 500.0


PACKED: dict[str, Any] = {
    "conditions": [], "agent_steps": 1000, "trainer": "dreamer", "task": "ReactProbe", "pack_cells": 4, "settings": {},
    "arms": {"low": {}, "high": {"agent": {"planner": {"cost_limit": 1.0}}}},
}  # fmt: skip


def test_cells_of_a_pack_end_together(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path, **PACKED, seeds=2, backend={"slots": 2}))
    speed = {"agent_steps": 500, "agent_steps_per_second": 5.0, "seconds_left": 100.0}
    pack = [running(cell=f"{arm}/{seed}", **speed) for arm in ("low", "high") for seed in (0, 1)]
    assert study_seconds_left(opened, pack, {}) == pytest.approx(100.0)
    behind = [*pack[:3], running(cell="high/1", **speed | {"agent_steps": 0, "seconds_left": 200.0})]
    assert study_seconds_left(opened, behind, {}) == pytest.approx(200.0)


@pytest.mark.parametrize("slots", [1, 2])
def test_cells_that_wait_are_packed_as_run_packs_them(slots: int, tmp_path: Path) -> None:
    """One pack of four works for 100 s more; the other four, which wait, are one pack of 200 s."""
    opened = open_study(declare(tmp_path, **PACKED, seeds=4, backend={"slots": slots}))
    speed = {"agent_steps": 500, "agent_steps_per_second": 5.0, "seconds_left": 100.0}
    pack = [running(cell=f"{arm}/{seed}", **speed) for arm in ("low", "high") for seed in (0, 1)]
    assert study_seconds_left(opened, pack, {}) == pytest.approx(300.0 / slots)
    waiting = {"low": 20.0, "high": 20.0}
    assert study_seconds_left(opened, [], waiting) == pytest.approx(8 * 1000 / 20 / slots)
    three = open_study(declare(tmp_path / "three", **PACKED, seeds=3, backend={"slots": 4}))
    assert study_seconds_left(three, [], waiting) == pytest.approx(6 * 1000 / 20 / 2)


FORMS = {
    "native": ("metrics.jsonl", '{"agent_steps": 5, "score": 1.5}\n'),
    "jsonl": ("metrics.jsonl", '{"step": 4, "score": 9}\n{"step": 5, "score": 1.5}\n'),
    "csv": ("log.csv", "step,score\n5,1.5\n"),
    "sb3": ("progress.csv", "time/total_timesteps,score\n5,1.5\n"),
    "embodied": ("metrics.jsonl", '{"step": 5, "score": 1.5}\n'),
    "bracket_lines": ("run.out", "[5/10] score:1.5\n"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_adapter_gives_the_newest_values_without_reading_the_whole_log(name: str, tmp_path: Path) -> None:
    file, text = FORMS[name]
    (tmp_path / file).write_text(text)
    assert find_adapter(name).latest(RunFolder(tmp_path))["score"] == 1.5
    assert find_adapter("line_pattern", TrainerFormat()).latest(RunFolder(tmp_path)) == {}


def test_event_files_and_runs_of_wandb_give_their_newest_values(tmp_path: Path) -> None:
    events = RunFolder(Path(__file__).parents[1] / "study/adapters/recorded/tensorboard")
    values = find_adapter("tensorboard").latest(events)
    assert metric_value(values, "return") == values["rollout/ep_rew_mean"] > 0
    files = tmp_path / "wandb" / "offline-run-20260222_023040-abcd1234" / "files"
    files.mkdir(parents=True)
    run, adapter = RunFolder(tmp_path), find_adapter("wandb")
    assert adapter.latest(run) == find_adapter("wandb").latest(RunFolder(files)) == {}
    (files / "output.log").write_text("[4/10] R:9\n[5/10] R:1.5\n")
    assert adapter.latest(run) == {"R": 1.5}
    (files / "wandb-summary.json").write_text('{"global_step": 10, "eval/score": 2.5, "note": "x"}')
    assert metric_value(adapter.latest(run), "score") == 2.5


@pytest.mark.parametrize(
    ("values", "name", "shown"),
    [
        ({"return": 1.0, "rollout/ep_rew_mean": 2.0}, "return", 1.0),
        ({"train/loss": 0.5, "rollout/ep_rew_mean": 2.0}, "return", 2.0),
        ({"R": 3.0, "pi_loss": 1.0}, "return", 3.0),
        ({"episode/score": 4.0}, "return", 4.0),
        ({"rollout/ep_rew_mean": 2.0}, "success", None),
        ({"train/reward_loss": 2.0}, "return", None),
        ({"model/reward": 0.2, "imagined/return": 0.1, "loss/reward": 0.3}, "score", None),
        ({"model/reward": 0.2, "validation/return": 5.0}, "return", 5.0),
    ],
)
def test_the_metric_is_found_under_the_names_that_trainers_use(
    values: dict[str, float], name: str, shown: float | None
) -> None:
    assert metric_value(values, name) == shown


# watch


@pytest.mark.parametrize(("text", "seconds"), [("2", 2.0), ("30s", 30.0), ("5m", 300.0), ("1h", 3600.0), ("0.5", 0.5)])
def test_an_interval_has_a_unit(text: str, seconds: float) -> None:
    assert parse_interval(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "0", "-3", "nan", "inf"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--every"):
        parse_interval(text)


def test_a_log_of_the_night_is_kept(tmp_path: Path) -> None:
    file = str(declare(tmp_path, **STUDY))
    log = tmp_path / "logs" / "monitor.log"
    with working(tmp_path / "mine") as worker:
        CliRunner().invoke(app, ["attach", file, "low/0", "--pid", str(worker.popen.pid)])
        for _ in range(2):
            CliRunner().invoke(app, ["watch", file, "--once", "--log", str(log), "--every", "5m"])
    head, cell, *again = log.read_text().splitlines()
    assert head[20:].startswith("small: trained 0/2, evaluated 0/0, left ")
    assert f"low/0 not ours: pid {worker.popen.pid}, phase train, 400/1,000 agent steps" in cell
    assert len(again) == 2, "a log is appended to"
    ended = CliRunner().invoke(app, ["watch", file, "--log", str(log)])  # its process is gone, so nothing runs
    assert ended.exit_code == 0


def test_log_lines_carry_the_time(tmp_path: Path) -> None:
    opened = open_study(declare(tmp_path))
    [line] = log_lines(make_overview(opened, read_moment()), "return")
    assert time.strptime(line[:19], "%Y-%m-%d %H:%M:%S") and "left –" in line
    assert Cell("low", 0) in opened.state.cells
