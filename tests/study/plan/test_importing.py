"""Runs made outside a study are taken into it for what they prove, and what is missing becomes visible."""

import json
import os
import shutil
from pathlib import Path

import pytest

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.events import CellStopped, Event, TrainProven
from dreamproof.study.ledger.outside_events import Imported, Unproven
from dreamproof.study.ledger.status import train_status
from dreamproof.study.plan.gap import find_gap, open_for_training
from dreamproof.study.plan.importing.found import ImportOptions, ImportResult
from dreamproof.study.plan.importing.names import find_cell, make_pattern
from dreamproof.study.plan.importing.runs import import_runs
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.testing.small_study import declare

STUDY = """\
name: paper
question: Do u and cert help?
metric: {name: score, smallest_difference: 1.0}
task: SafetyPointGoal1-v0
trainer:
  command: [python, train.py, --logdir, "{run_dir}", --seed, "{seed}"]
  evaluate: [python, eval.py, "{run_dir}", "{condition}"]
  adapter: embodied
arms:
  v2_baseline: {}
  v2_u_only: {u: true}
  v2_cert_only: {cert: true}
  v2_full: {u: true, cert: true}
seeds: 5
agent_steps: 2048
conditions: [id, hallu2]
"""
BEGAN = 1_771_727_440.0
MISSING = [("v2_u_only", 2), ("v2_cert_only", 2), ("v2_full", 2)]


@pytest.fixture
def opened(tmp_path: Path) -> OpenStudy:
    file = tmp_path / "paper.yaml"
    file.write_text(STUDY)
    return open_study(file)


def put(path: Path, content: bytes, written: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (written, written))


def dreamer_run(runs: Path, arm: str, seed: int, stamp: str = "20260222-023040", saved_at: float = 6000) -> Path:
    """A finished Dreamer run of 2,048 agent steps in 6,000 s."""
    root = runs / f"{stamp}_{arm}_safetygymcoor_SafetyPointGoal1-v0_{seed}"
    put(root / "config.yaml", b"{}", BEGAN)
    for index, name in enumerate(("20260222T023100F1-a-b-1024.npz", "20260222T041000F1-b-c-1024.npz")):
        put(root / "replay" / name, b"x", BEGAN + 3000 * (index + 1))
    row = json.dumps({"step": 2048, "train/loss": 1.0, "seed": seed, "arm": arm})
    put(root / "metrics.jsonl", row.encode() + b"\n", BEGAN + 6000)
    put(root / "checkpoint.ckpt", f"{arm}{seed}".encode(), BEGAN + saved_at)
    return root


def seventeen(runs: Path) -> None:
    for arm in ("v2_baseline", "v2_u_only", "v2_cert_only", "v2_full"):
        for seed in range(5):
            if (arm, seed) not in MISSING:
                dreamer_run(runs, arm, seed)


def record(opened: OpenStudy, events: list[Event]) -> None:
    for number, event in enumerate(events):
        opened.state.apply({"n": number, "t": BEGAN + number, **event.row()})


def test_a_user_with_seventeen_of_twenty_sees_the_three_that_are_missing(opened: OpenStudy, tmp_path: Path) -> None:
    seventeen(tmp_path / "runs")
    result = import_runs(opened, tmp_path / "runs")
    assert result.missing == [f"{arm}/{seed}" for arm, seed in MISSING]
    assert result.lines[-1] == "17 of 20 cells proven, 0 unproven, 3 missing"
    record(opened, result.events)
    assert [(cell.cell.arm, cell.cell.seed) for cell in find_gap(opened.state).train] == MISSING
    cell = Cell("v2_full", 4)
    assert opened.run(cell).root.name.endswith("_v2_full_safetygymcoor_SafetyPointGoal1-v0_4")
    assert opened.adapter(cell).name == "embodied"


def test_nothing_is_copied_or_changed(opened: OpenStudy, tmp_path: Path) -> None:
    root = dreamer_run(tmp_path / "runs", "v2_full", 0)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    import_runs(opened, tmp_path / "runs")
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert not opened.folder.root.exists()


def test_a_checkpoint_from_before_the_training_is_unproven_with_its_reason(opened: OpenStudy, tmp_path: Path) -> None:
    dreamer_run(tmp_path / "runs", "v2_full", 0, saved_at=30)
    result = import_runs(opened, tmp_path / "runs")
    assert result.unproven == {
        "v2_full/0": "checkpoint.ckpt was written at 0% of the run, 1 h 39 min before its end: not the final one"
    }
    assert [type(event) for event in result.events] == [Imported, Unproven, CellStopped]
    assert "v2_full/0" not in result.missing
    assert result.lines[-2] == "0 of 20 cells proven, 1 trained and not saved, 0 unproven, 19 missing"
    assert result.lines[-1].startswith("trained and not saved: 1 h 40 min, 0.00; let the trainer save when it ends")
    record(opened, result.events)
    known = opened.state.cells[Cell("v2_full", 0)]
    assert known in find_gap(opened.state).train
    assert not open_for_training(known), "it is not trained again unasked"
    assert train_status(opened.state, known) == "not_saved"


def test_of_several_runs_of_a_cell_the_proven_one_is_taken(opened: OpenStudy, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for stamp in ("20260223-143309", "20260223-171229"):
        root = dreamer_run(runs, "v2_baseline", 3, stamp)
        for path in (root / "replay").iterdir():
            path.unlink()
        put(root / "metrics.jsonl", b'{"step": 601, "train/loss": 1.0}\n', BEGAN + 58)
    dreamer_run(runs, "v2_baseline", 3, "20260223-090000")
    result = import_runs(opened, runs)
    assert result.proven == ["v2_baseline/3"]
    assert "20260223-090000" in result.lines[0]
    assert [line.startswith("  aborted: ") for line in result.lines[1:3]] == [True, True]
    assert len(result.aborted["v2_baseline/3"]) == 2


def test_importing_twice_adds_nothing(opened: OpenStudy, tmp_path: Path) -> None:
    dreamer_run(tmp_path / "runs", "v2_full", 0)
    dreamer_run(tmp_path / "runs", "v2_full", 1, saved_at=0)
    record(opened, import_runs(opened, tmp_path / "runs").events)
    seconds = opened.state.cells[Cell("v2_full", 1)].wall_seconds
    again = import_runs(opened, tmp_path / "runs")
    assert again.events == []
    assert again.lines[0] == "v2_full/0: already proven, unchanged"
    assert seconds == pytest.approx(6000)


def table(path: Path, rows: list[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_a_status_table_leads_to_the_runs_it_names(opened: OpenStudy, tmp_path: Path) -> None:
    good = dreamer_run(tmp_path / "runs", "v2_full", 0)
    rows = [
        ("config", "seed", "status", "run_dir", "duration_sec"),
        ("v2_full", "0", "success", str(good), "6048"),
        ("v2_full", "1", "success", "runs/gone", "6000"),
        ("v2_u_only", "0", "failed", str(good), "60"),
        ("v2_other", "0", "success", str(good), "60"),
    ]
    result = import_runs(opened, table(tmp_path / "paper_train_status_latest.tsv", rows))
    assert result.proven == ["v2_full/0"]
    assert result.unproven == {
        "v2_full/1": f"its run folder {tmp_path}/runs/gone does not exist; its table reports 'success'",
        "v2_u_only/0": "its table reports 'failed'",
    }
    assert result.unmatched == ["line 5: v2_other seed 0"]
    first = result.events[0]
    assert isinstance(first, Imported) and first.wall_seconds == 6048


def test_a_table_in_the_manifests_of_a_study_names_folders_from_above(opened: OpenStudy, tmp_path: Path) -> None:
    good = dreamer_run(tmp_path / "other" / "runs", "v2_full", 0)
    (tmp_path / "other" / "manifests").mkdir()
    rows = [("arm", "seed", "status", "run_folder"), ("v2_full", "0", "proven", f"runs/{good.name}")]
    result = import_runs(opened, table(tmp_path / "other" / "manifests" / "train_status.tsv", rows))
    assert result.proven == ["v2_full/0"]


def test_a_table_without_folders_is_only_reported(opened: OpenStudy, tmp_path: Path) -> None:
    rows = [("config", "seed", "status"), ("v2_full", "0", "success")]
    result = import_runs(opened, table(tmp_path / "status.tsv", rows))
    assert result.unproven == {"v2_full/0": "a table reports 'success' and names no run folder"}


def test_an_evaluation_table_says_nothing_about_the_checkpoint_it_came_from(opened: OpenStudy, tmp_path: Path) -> None:
    dreamer_run(tmp_path / "runs", "v2_full", 0)
    record(opened, import_runs(opened, tmp_path / "runs").events)
    rows = [
        ("config", "seed", "mode", "status"),
        ("v2_full", "0", "id", "success"),
        ("v2_full", "1", "id", "success"),
        ("v2_full", "0", "ood", "success"),
    ]
    result = import_runs(opened, table(tmp_path / "eval.tsv", rows))
    assert result.unproven == {
        "v2_full/0 id": "no evaluation file; its table reports 'success'",
        "v2_full/1 id": "its training is not proven; its table reports 'success'",
    }
    assert result.unmatched == ["line 4: condition ood"]


def test_an_evaluation_beside_a_proven_run_is_taken_with_it(opened: OpenStudy, tmp_path: Path) -> None:
    root = dreamer_run(tmp_path / "runs", "v2_full", 0)
    proof = next(event for event in import_runs(opened, tmp_path / "runs").events if isinstance(event, TrainProven))
    made = {"agent_steps": 2048, "gradient_steps": 1, "parameter_hash": proof.parameter_hash}
    final = {**made, "episodes": {"score": [1.0] * 50}}
    value = {"condition": "id", "kind": "in_distribution", "task": "t", "checkpoints": {"final": final}}
    (root / "evaluations").mkdir()
    (root / "evaluations" / "id.json").write_text(json.dumps(value))
    record(opened, import_runs(opened, tmp_path / "runs").events)
    assert [known.condition for known in opened.state.eval_cells.values() if opened.state.evaluated(known)] == ["id"]


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (None, "20260222-023040_v2_baseline_safetygymcoor_SafetyPointGoal1-v0_2", ("v2_baseline", "2")),
        (None, "v2_full-seed4", ("v2_full", "4")),
        (None, "run_v2_fuller_3", None),
        (None, "v2_full", None),
        (None, "v2_full_s3", ("v2_full", "3")),
        (None, "v2_full__seed=1__2026-01-02_12-00-00", ("v2_full", "1")),
        (None, "v2_full_2026-01-02_12-00-00", None),
        (None, "v2_full,lr=3,seed=1", ("v2_full", "1")),
        (None, "PointGoal-v1__v2_full__3__1699999990", ("v2_full", "3")),
        (None, "v2_full/seed_3", ("v2_full", "3")),
        (None, "seed3/v2_full", ("v2_full", "3")),
        ("*_{arm}_safety*_{seed}", "20260224-052455_v2_full_safetygymcoor_SafetyPointGoal1-v0_4", ("v2_full", "4")),
        ("{seed}/{arm}", "4-v2_full", None),
        ("{seed}/{arm}", "4/v2_full", ("v2_full", "4")),
        ("s{seed}.{arm}", "s2.v2_u_only", ("v2_u_only", "2")),
    ],
)
def test_folder_names_are_read_by_a_pattern(
    opened: OpenStudy, pattern: str | None, name: str, expected: tuple[str, str] | None
) -> None:
    found = find_cell(opened.study, name, make_pattern(opened.study, pattern) if pattern is not None else None)
    assert (found and (found.arm, str(found.seed))) == expected


@pytest.mark.parametrize(
    "layout", ["{arm}/seed_{seed}", "{arm}/{seed}", "seed{seed}/{arm}", "2026-01-01/{arm}/s{seed}"]
)
def test_nested_folders_are_imported_as_they_are(layout: str, opened: OpenStudy, tmp_path: Path) -> None:
    made = dreamer_run(tmp_path / "made", "v2_full", 0)
    (made / "ckpt").mkdir()
    for arm, seed in (("v2_full", 0), ("v2_full", 1), ("v2_u_only", 1)):
        shutil.copytree(made, tmp_path / "runs" / layout.format(arm=arm, seed=seed))
    assert sorted(import_runs(opened, tmp_path / "runs").proven) == ["v2_full/0", "v2_full/1", "v2_u_only/1"]
    if layout.count("/") == 1:
        options = ImportOptions(layout)
        assert len(import_runs(opened, tmp_path / "runs", options).proven) == 3
        one = tmp_path / "runs" / layout.format(arm="v2_full", seed=1)
        assert import_runs(opened, one).proven == ["v2_full/1"]


def test_the_folders_of_a_run_are_no_runs(opened: OpenStudy, tmp_path: Path) -> None:
    made = dreamer_run(tmp_path / "made", "v2_full", 0)
    shutil.copytree(made, tmp_path / "runs" / "v2_full" / "logs")
    (tmp_path / "runs" / "v2_full" / "checkpoints" / "0").mkdir(parents=True)
    assert "no run matches" in refusal(opened, tmp_path / "runs")
    shutil.copytree(made, tmp_path / "v2_full_seed3")
    (tmp_path / "v2_full_seed3" / "inner").mkdir()
    assert import_runs(opened, tmp_path / "v2_full_seed3").proven == ["v2_full/3"]


def refusal(opened: OpenStudy, source: Path, options: ImportOptions | None = None) -> str:
    with pytest.raises(BadInput) as caught:
        import_runs(opened, source, options)
    return str(caught.value)


def test_what_cannot_be_imported_says_why_and_what_to_try(opened: OpenStudy, tmp_path: Path) -> None:
    assert "no such folder or table" in refusal(opened, tmp_path / "nowhere")
    (tmp_path / "runs" / "experiment7").mkdir(parents=True)
    given = refusal(opened, tmp_path / "runs")
    assert "e.g. 'experiment7'" in given and "--pattern '*_{arm}_*_{seed}'" in given
    assert "{seed} must occur exactly once" in refusal(opened, tmp_path / "runs", ImportOptions("{arm}"))
    assert "no column for the seed" in refusal(opened, table(tmp_path / "a.tsv", [("config", "status")]))
    (tmp_path / "b.tsv").write_bytes(b"config\tseed\n\xff\xfe")
    assert "is not UTF-8 text" in refusal(opened, tmp_path / "b.tsv")
    dreamer_run(tmp_path / "good", "v2_full", 0)
    assert "unknown adapter 'x'" in refusal(opened, tmp_path / "good", ImportOptions(adapter="x"))


def test_seeds_that_are_not_declared_are_left_alone(opened: OpenStudy, tmp_path: Path) -> None:
    dreamer_run(tmp_path / "runs", "v2_full", 0)
    dreamer_run(tmp_path / "runs", "v2_full", 9)
    result: ImportResult = import_runs(opened, tmp_path / "runs")
    assert len(result.unmatched) == 1 and result.unmatched[0].endswith("_9")


TABLES = {
    "huge field": b"arm\tseed\tstatus\nv2_full\t0\t" + b"x" * 200_000 + b"\n",
    "seed ²": "arm\tseed\tstatus\nv2_full\t²\tdone\n".encode(),
    "seed of 400 digits": b"arm\tseed\nv2_full\t" + b"9" * 400 + b"\n",
    "NUL": b"arm\tseed\tlogdir\nv2_full\t0\ta\0b\n",
    "long folder": b"arm\tseed\tlogdir\nv2_full\t0\t" + b"x" * 5000 + b"\n",
    "infinite time": b"arm\tseed\tseconds\nv2_full\t0\tinf\n",
    "open quote": b'arm,seed\n"v2_full,0\n',
    "empty": b"",
}


@pytest.mark.parametrize("content", TABLES.values(), ids=TABLES)
def test_a_table_of_nonsense_is_refused_or_named_without_a_traceback(opened: OpenStudy, content: bytes) -> None:
    table = opened.file.with_name("status.tsv")
    table.write_bytes(content)
    try:
        result = import_runs(opened, table)
    except BadInput as error:
        assert "status.tsv" in error.seen
    else:
        assert result.proven == []
        json.dumps([event.row() for event in result.events], allow_nan=False)


def test_a_folder_of_nonsense_is_named_and_the_others_are_proven(opened: OpenStudy, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    dreamer_run(runs, "v2_full", 0)
    odd = dreamer_run(runs, "v2_full", 1)
    (odd / "metrics.jsonl").unlink()
    os.mkfifo(odd / "metrics.jsonl")
    strange = dreamer_run(runs, "v2_full", 3)
    (strange / "config.yaml").unlink()
    (strange / "config.yaml").mkdir()
    (runs / os.fsdecode(b"v2_full_\xff_4")).mkdir()
    result = import_runs(opened, runs)
    assert "v2_full/0" in result.proven
    assert "v2_full/1" in result.unproven
    "\n".join(result.lines).encode()


def test_odd_names_and_odd_contents_in_one_folder(tmp_path: Path) -> None:
    place = tmp_path / "我的 实验"
    trainer = {"command": ["{python}", "train.py", "{run_dir}"], "adapter": "auto"}
    opened = open_study(declare(place, agent_steps=1000, seeds=3, trainer=trainer, conditions=[]))
    contents = {
        "第一次 low_0": ("log.csv", b"step,return,loss\r\n500,1.5,0.2\r\n1000,2.5,0.1\r\n"),
        "low_1": ("metrics.jsonl", b'\xef\xbb\xbf{"step": 500, "loss": 1}\r\n{"step": 1000, "loss": 0.5}\r\n'),
        "low (v2)_2": ("metrics.jsonl", b'{"step": 500, "loss": 1}\n{"step": 1000, "lo'),
        "high_0": ("metrics.jsonl", b""),
        "high_1": ("metrics.jsonl", b'{"step": 1, "loss": 1}' * 50_000),
        ".trash_high_2": ("metrics.jsonl", b'{"step": 1000, "loss": 1}\n'),
    }
    for name, (file, content) in contents.items():
        folder = place / "runs" / name
        folder.mkdir(parents=True)
        (folder / file).write_bytes(content)
        (folder / "model_1000_steps.pt").write_bytes(b"w")
    result = import_runs(opened, place / "runs")
    assert result.proven == ["low/0", "low/1"]
    assert result.unproven["low/2"] == "metrics.jsonl ends at 500 of 1,000 agent steps"
    for cell, held in (("high/0", "metrics.jsonl (empty)"), ("high/1", "metrics.jsonl, model_1000_steps.pt")):
        assert result.unproven[cell].startswith(f"no adapter knows its files ({held}"), result.unproven
    assert result.missing == ["high/2"], "a hidden folder is no run"


def test_a_checkpoint_file_whose_name_is_no_text_is_no_proof(opened: OpenStudy, tmp_path: Path) -> None:
    root = dreamer_run(tmp_path / "runs", "v2_full", 0)
    (root / "checkpoint.ckpt").rename(root / os.fsdecode(b"check\xff.ckpt"))
    assert "not UTF-8" in import_runs(opened, tmp_path / "runs").unproven["v2_full/0"]
