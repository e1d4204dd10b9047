"""A checkpoint file alone is no proof; a whole trained one is."""

import json
from pathlib import Path
from typing import Any

import pytest

from dreamproof.base.files import write_json
from dreamproof.runs.layout import Cell, RunFolder, StudyFolder
from dreamproof.runs.reader import (
    EvalProof,
    TrainProof,
    load_evaluation,
    load_record,
    newest_good_checkpoint,
    prove_evaluation,
    prove_training,
    read_heartbeat,
)
from dreamproof.runs.records import EvaluatedCheckpoint, EvaluationRecord
from dreamproof.runs.writer import RunWriter


def save(writer: RunWriter, agent_steps: int, **facts: Any) -> None:
    values = {"gradient_steps": agent_steps // 2, "parameter_hash": f"h{agent_steps}", "finite": True, "task": "t"}
    writer.save(
        lambda folder: (folder / "state.npz").write_bytes(b"%d" % agent_steps) and None,
        {"agent_steps": agent_steps, **values, **facts},
    )


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter(StudyFolder(tmp_path).run(Cell("a", 0)))


def test_a_whole_trained_checkpoint_is_a_proof(writer: RunWriter) -> None:
    save(writer, 100)
    assert prove_training(writer.run, 100) == TrainProof(100, 50, "h100", "step-000000000100")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"gradient_steps": 0}, "never trained: 0 updates"),
        ({"finite": False}, "not finite"),
        ({"parameter_hash": ""}, "names no parameter hash"),
    ],
)
def test_what_is_not_trained_to_the_end_is_no_proof(writer: RunWriter, facts: dict[str, Any], reason: str) -> None:
    save(writer, 100, **facts)
    assert reason in str(prove_training(writer.run, 100))


def test_a_changed_file_is_no_proof_and_the_one_before_is_taken(writer: RunWriter) -> None:
    save(writer, 50)
    save(writer, 100)
    (writer.run.checkpoint(100).root / "state.npz").write_bytes(b"other")
    assert "hash differs" in str(prove_training(writer.run, 100))
    assert newest_good_checkpoint(writer.run) == writer.run.checkpoint(50)


def test_a_checkpoint_that_was_never_committed_does_not_exist(writer: RunWriter) -> None:
    partial = writer.run.checkpoints / ".partial-step-000000000100-1"
    partial.mkdir(parents=True)
    (partial / "state.npz").write_bytes(b"x")
    assert prove_training(writer.run, 100) == "no checkpoint"
    save(writer, 50)
    writer.keep_newest(1, set())
    assert not partial.exists()


def test_old_checkpoints_go_but_the_named_ones_stay(writer: RunWriter) -> None:
    for step in (10, 20, 30, 40):
        save(writer, step)
    writer.keep_newest(2, {10})
    assert [folder.agent_steps for folder in writer.run.checkpoint_folders()] == [10, 30, 40]


def test_an_evaluation_counts_only_for_the_checkpoint_it_was_made_from(writer: RunWriter) -> None:
    made = EvaluatedCheckpoint(
        agent_steps=100, gradient_steps=50, parameter_hash="h100", episodes={"return": [1.0] * 5}
    )
    record = EvaluationRecord(condition="id", kind="in_distribution", task="t", checkpoints={"final": made})
    writer.write_evaluation(record)
    assert prove_evaluation(writer.run, "id", 5, "h100") == EvalProof(5, "h100")
    assert "5 of 6 episodes" in str(prove_evaluation(writer.run, "id", 6, "h100"))
    assert "made from checkpoint h100" in str(prove_evaluation(writer.run, "id", 5, "other"))
    assert prove_evaluation(writer.run, "ood", 5, "h100") == "no evaluation file"


def test_a_heartbeat_of_a_newer_version_is_still_read(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_json(run.heartbeat, {"agent_steps": 3, "colour": "blue"})
    heartbeat = read_heartbeat(run)
    assert heartbeat is not None and heartbeat.agent_steps == 3


def test_cells_are_written_and_read_the_same_way() -> None:
    assert Cell.parse(str(Cell("full", 2))) == Cell("full", 2)
    with pytest.raises(ValueError, match="write arm/seed"):
        Cell.parse("full")


def test_a_checkpoint_before_the_last_step_is_no_proof(writer: RunWriter) -> None:
    save(writer, 99)
    assert prove_training(writer.run, 100) == "checkpoint at 99 of 100 agent steps"


def test_a_checkpoint_of_another_task_is_no_proof(writer: RunWriter) -> None:
    save(writer, 100)
    assert "was trained on 't', not on 'other'" in str(prove_training(writer.run, 100, task="other"))
    assert isinstance(prove_training(writer.run, 100, task="t"), TrainProof)


def test_a_name_that_contradicts_the_record_is_no_proof(writer: RunWriter) -> None:
    save(writer, 100)
    writer.run.checkpoint(100).root.rename(writer.run.checkpoint(200).root)
    assert "holds 100 agent steps, the folder name says 200" in str(prove_training(writer.run, 100))
    assert newest_good_checkpoint(writer.run) is None


@pytest.mark.parametrize("stale", ["damaged", "empty", "untrained", "renamed"])
def test_a_stale_checkpoint_with_a_higher_number_hides_no_good_one(writer: RunWriter, stale: str) -> None:
    save(writer, 100)
    if stale == "empty":
        writer.run.checkpoint(900).root.mkdir()
    elif stale == "renamed":
        save(writer, 50)
        writer.run.checkpoint(50).root.rename(writer.run.checkpoint(900).root)
    else:
        save(writer, 900, **({"gradient_steps": 0} if stale == "untrained" else {}))
    if stale == "damaged":
        (writer.run.checkpoint(900).root / "state.npz").write_bytes(b"other")
    assert prove_training(writer.run, 100) == TrainProof(100, 50, "h100", "step-000000000100")


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "..", ""])
def test_a_record_that_names_files_outside_is_no_proof(writer: RunWriter, name: str) -> None:
    save(writer, 100)
    record = writer.run.checkpoint(100).record
    value = json.loads(record.read_text())
    write_json(record, {**value, "files": {name: "0" * 64}})
    assert "is not the name of a file inside the folder" in str(prove_training(writer.run, 100))


GOOD = {"agent_steps": 1, "gradient_steps": 1, "parameter_hash": "h", "episodes": {"return": [0.1, float("nan"), 3]}}
EVALUATION = {"condition": "id", "kind": "proxy", "task": "t", "checkpoints": {"final": GOOD}}
CONTENTS = {
    "good": json.dumps(EVALUATION),
    "escaped": json.dumps(EVALUATION | {"task": "\u202eé"}),
    "torn": json.dumps(EVALUATION)[:-3],
    "wrong kind": json.dumps(EVALUATION | {"kind": "x"}),
    "steps beyond 64 bits": json.dumps(EVALUATION | {"checkpoints": {"final": GOOD | {"agent_steps": 10**30}}}),
    "bytes": '{"condition": "\udcff"}',
    "empty": "",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_proven_evaluation_is_read_as_every_record_is(writer: RunWriter, content: str) -> None:
    path = writer.run.evaluation("id")
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert repr(load_evaluation(writer.run, "id")) == repr(load_record(path, EvaluationRecord))


def test_a_missing_evaluation_is_absent(writer: RunWriter) -> None:
    assert str(load_evaluation(writer.run, "id")) == "id.json: is missing"
