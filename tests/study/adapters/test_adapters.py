"""Other people's run folders are read for what they show, and trusted no further."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.study.test_containment import KINDS

from dreamproof.base.errors import BadInput
from dreamproof.base.files import file_hash
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.reader import TrainProof
from dreamproof.runs.writer import RunWriter
from dreamproof.settings.running import Liveness
from dreamproof.study.adapters import ADAPTERS, find_adapter
from dreamproof.study.adapters.api import Adapter, TrainerFormat
from dreamproof.study.adapters.checkpoints import find_checkpoints
from dreamproof.study.adapters.printed import read_lines
from dreamproof.study.diagnosis.liveness import Sample, State, Watch

BEGAN = 1_771_727_440.0
HOUR = 3600.0
FOREIGN_FILES = ("progress.csv", "0.monitor.csv", "evaluations.npz", "model.zip", "events.out.tfevents.1.x", "wandb")
Touch = Callable[[Path, bytes, float], None]


def put(path: Path, content: bytes, written: float) -> None:
    """Writes a file as if at `written` Unix seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (written, written))


def chunk_name(index: int, length: int = 1024) -> str:
    minute, second = divmod(51 * index, 60)
    hour, minute = divmod(minute, 60)
    return f"20260222T{2 + hour:02d}{minute:02d}{second:02d}F123456-{index:022d}-{index + 1:022d}-{length}.npz"


def embodied_run(root: Path, chunks: int = 118, saved_at: float | None = None) -> RunFolder:
    """A Dreamer folder of `chunks` × 1,024 agent steps, 51 s each; its checkpoint is written at `saved_at` seconds."""
    put(root / "config.yaml", b"task: safetygymcoor_Goal1\nenv:\n  safetygymcoor: {repeat: 5}\n", BEGAN)
    for index in range(chunks):
        put(root / "replay" / chunk_name(index), b"x", BEGAN + 51 * (index + 1))
    ended = BEGAN + 51 * chunks
    steps = range(3005, 5 * 1024 * chunks, 100_000)
    rows = [{"step": step, "train/model_loss_mean": 3.0, "train/model_opt_grad_steps": step // 10} for step in steps]
    put(root / "metrics.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows), ended)
    put(root / "checkpoint.ckpt", b"weights", BEGAN + saved_at if saved_at is not None else ended)
    return RunFolder(root)


def test_replay_chunks_show_the_progress_of_a_run_whose_metrics_are_silent(tmp_path: Path) -> None:
    run = embodied_run(tmp_path, chunks=3)
    adapter, watch = find_adapter("embodied"), Watch(Liveness())
    put(run.metrics, b'{"step": 3005, "train/loss": 1.0}\n', BEGAN)
    for index in range(3, 40):
        put(run.root / "replay" / chunk_name(index), b"x", BEGAN)
        reading = adapter.read(run)
        judged = watch.observe(Sample(51.0 * index, True, reading.counters, reading.phase))
        assert judged.state is State.RUNNING
    assert reading.agent_steps == 40 * 1024
    late = [
        watch.observe(Sample(51.0 * 39 + more, True, reading.counters, reading.phase)) for more in range(0, 400, 20)
    ]
    assert [late[index].state for index in (5, 15)] == [State.RUNNING, State.STALLED]


def test_a_dreamer_run_with_a_checkpoint_at_its_end_is_proven(tmp_path: Path) -> None:
    run = embodied_run(tmp_path)
    proof = find_adapter("embodied").prove_training(run, 120_000)
    assert isinstance(proof, TrainProof)
    assert (proof.agent_steps, proof.checkpoint) == (118 * 1024, "checkpoint.ckpt")
    assert proof.gradient_steps > 10_000
    assert proof.parameter_hash == file_hash(run.root / "checkpoint.ckpt")


def test_a_checkpoint_from_the_beginning_of_the_run_is_no_proof(tmp_path: Path) -> None:
    run = embodied_run(tmp_path, saved_at=30)
    reason = find_adapter("embodied").prove_training(run, 120_000)
    assert reason == "checkpoint.ckpt was written at 0% of the run, 1 h 39 min before its end: not the final one"
    assert find_adapter("embodied").kept_agent_steps(run) == 0


def test_a_checkpoint_from_near_the_end_keeps_its_steps_and_is_no_proof(tmp_path: Path) -> None:
    run = embodied_run(tmp_path, saved_at=0.9 * 51 * 118)
    adapter = find_adapter("embodied")
    assert "written at 90% of the run" in str(adapter.prove_training(run, 120_000))
    assert adapter.kept_agent_steps(run) == 106 * 1024
    assert adapter.kept_unix_seconds(run) == pytest.approx(BEGAN + 0.9 * 51 * 118)


def test_a_copy_that_lost_its_times_proves_nothing(tmp_path: Path) -> None:
    run = embodied_run(tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path, (BEGAN, BEGAN))
    assert "lost in copying" in str(find_adapter("embodied").prove_training(run, 120_000))


def test_a_dreamer_run_that_ended_early_says_where(tmp_path: Path) -> None:
    run = embodied_run(tmp_path, chunks=20)
    assert find_adapter("embodied").prove_training(run, 120_000) == (
        "replay and metrics show 20,480 of 120,000 agent steps"
    )


def test_metrics_without_a_single_update_prove_nothing(tmp_path: Path) -> None:
    run = embodied_run(tmp_path)
    put(run.metrics, b'{"step": 600000, "episode/score": 1.7}\n', BEGAN + 51 * 118)
    assert "nothing shows a single update" in str(find_adapter("embodied").prove_training(run, 120_000))


def test_steps_that_a_resumed_run_did_again_do_not_count_twice(tmp_path: Path) -> None:
    run = embodied_run(tmp_path)
    rows = [{"step": step, "train/loss": 1.0} for step in (3005, 200_000, 400_000, 300_000)]
    put(run.metrics, b"".join(json.dumps(row).encode() + b"\n" for row in rows), BEGAN + 51 * 118)
    reason = find_adapter("embodied").prove_training(run, 120_000)
    assert reason == "metrics.jsonl ends before 120,000 agent steps: its next row would have come at 100,000"


def test_rows_of_an_earlier_start_neither_prove_nor_hide_progress(tmp_path: Path) -> None:
    run = jsonl_run(tmp_path, "step", 1000)
    adapter = find_adapter("jsonl")
    before = adapter.read(run).counters
    with (run.root / "progress.jsonl").open("ab") as file:
        file.write(b'\n{"step": 400, "loss": 0.1}\n')
    assert adapter.read(run).agent_steps == 400
    assert adapter.read(run).counters["rows_bytes"] > before["rows_bytes"]
    assert adapter.prove_training(run, 1000) == "progress.jsonl ends at 400 of 1,000 agent steps"


def test_logged_simulator_steps_are_turned_into_agent_steps(tmp_path: Path) -> None:
    run = embodied_run(tmp_path, chunks=0)
    put(run.metrics, b'{"step": 19095, "score": 1.5}\n{"step": 95', BEGAN)
    adapter = find_adapter("embodied")
    assert adapter.read(run).agent_steps == 3819
    assert adapter.results(run) == {"score": [(3819, 1.5)]}


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("name", ["embodied", "jsonl", "bracket_lines"])
def test_no_adapter_ever_loads_a_pickle(name: str, tmp_path: Path) -> None:
    run = embodied_run(tmp_path / "run")
    put(run.root / "checkpoint.ckpt", pickle.dumps(Trap(tmp_path / "opened")), BEGAN + 51 * 118)
    output = tmp_path / "output.log"
    put(output, b"[5/5] R:1.0\n", BEGAN + 51 * 118)
    adapter = find_adapter(name)
    assert isinstance(adapter.prove_training(run, 5, output), TrainProof)
    adapter.read(run, output)
    adapter.results(run, output)
    assert not (tmp_path / "opened").exists()


def bracket_run(root: Path, last: int, stride: int = 1, total: int = 15_000, first: int = 1) -> tuple[RunFolder, Path]:
    numbers = [*range(first, last + 1, stride)]
    output = root / "attempt" / "output.log"
    put(output, "".join(f"[{done}/{total}] R:{done / 10:.2f} T:0.8\n" for done in numbers).encode(), BEGAN + HOUR)
    put(output.parent / "order.json", b"{}", BEGAN)
    put(root / "run" / "settings.json", b"{}", BEGAN)
    put(root / "run" / "nn" / "final.pt", b"weights", BEGAN + HOUR)
    return RunFolder(root / "run"), output


@pytest.mark.parametrize(("last", "stride", "first"), [(15_000, 1, 1), (14_999, 1, 0), (14_997, 4, 1)])
def test_lines_that_reach_their_total_prove_a_run_with_a_final_checkpoint(
    last: int, stride: int, first: int, tmp_path: Path
) -> None:
    run, output = bracket_run(tmp_path, last, stride, first=first)
    proof = find_adapter("bracket_lines").prove_training(run, 15_000, output)
    assert isinstance(proof, TrainProof)
    assert (proof.agent_steps, proof.gradient_steps, proof.checkpoint) == (15_000, last, "nn/final.pt")


def test_lines_that_stop_before_their_total_are_no_proof(tmp_path: Path) -> None:
    run, output = bracket_run(tmp_path, 9_073)
    adapter = find_adapter("bracket_lines")
    assert adapter.prove_training(run, 15_000, output) == "its output ends at [9073/15000]"
    assert adapter.read(run, output).agent_steps == 9_073


def test_rounds_are_agent_steps_times_what_the_study_declares(tmp_path: Path) -> None:
    run, output = bracket_run(tmp_path, 5_000, total=20_000)
    adapter = find_adapter("bracket_lines", TrainerFormat(steps_per_count=50))
    assert adapter.read(run, output).agent_steps == 250_000


def test_a_last_line_that_is_not_a_number_is_no_proof(tmp_path: Path) -> None:
    run, output = bracket_run(tmp_path, 15_000)
    put(output, b"[14999/15000] R:3.0\n[15000/15000] R:nan\n", BEGAN + HOUR)
    assert find_adapter("bracket_lines").prove_training(run, 15_000, output) == "R is nan at the end"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[7/10] R:1.5e2 T: 0.3", [(7, 10, {"R": 150.0, "T": 0.3})]),
        ("epoch [ 3 / 9 ] loss=0.5\r[4/9] loss=0.4", [(3, 9, {"loss": 0.5}), (4, 9, {"loss": 0.4})]),
        ("[11/10] [0/0] [x/10] nothing", []),
        ("\ufffd\ufffd[1/2] R:-inf", [(1, 2, {"R": float("-inf")})]),
    ],
)
def test_progress_lines_are_found_in_any_text(text: str, expected: list[tuple[int, int, dict[str, float]]]) -> None:
    assert [(line.done, line.total, line.values) for line in read_lines(text)] == expected


def jsonl_run(root: Path, key: str, last: int) -> RunFolder:
    put(root / "args.json", b"{}", BEGAN)
    rows = [json.dumps({key: step, "loss": 1.0 / (1 + step)}) for step in range(0, last + 1, 100)]
    put(root / "progress.jsonl", ("\n".join(rows) + '\n{"torn').encode(), BEGAN + HOUR)
    put(root / "models" / "last.safetensors", b"weights", BEGAN + HOUR)
    return RunFolder(root)


@pytest.mark.parametrize("key", ["step", "global_step", "env_steps", "total_timesteps"])
def test_rows_with_any_usual_step_key_are_read_and_prove(key: str, tmp_path: Path) -> None:
    run = jsonl_run(tmp_path, key, 1000)
    adapter = find_adapter("jsonl")
    assert adapter.read(run).agent_steps == 1000
    proof = adapter.prove_training(run, 1000)
    assert isinstance(proof, TrainProof)
    assert (proof.agent_steps, proof.gradient_steps, proof.checkpoint) == (1000, 11, "models/last.safetensors")
    assert adapter.results(run)["loss"][-1] == (1000, pytest.approx(1 / 1001))
    assert adapter.prove_training(run, 2000) == "progress.jsonl ends at 1,000 of 2,000 agent steps"


def test_a_loss_that_is_not_a_number_is_no_proof(tmp_path: Path) -> None:
    run = jsonl_run(tmp_path, "step", 1000)
    put(run.root / "progress.jsonl", b'{"step": 1000, "loss": NaN}\n', BEGAN + HOUR)
    assert find_adapter("jsonl").prove_training(run, 1000) == "loss is nan at the end"


def test_without_a_checkpoint_there_is_no_proof(tmp_path: Path) -> None:
    run = jsonl_run(tmp_path, "step", 1000)
    (run.root / "models" / "last.safetensors").unlink()
    assert find_adapter("jsonl").prove_training(run, 1000) == "no checkpoint file"


def test_a_native_beat_alone_is_no_progress_while_training(tmp_path: Path) -> None:
    writer = RunWriter(RunFolder(tmp_path))
    adapter = find_adapter("native")
    writer.beat(100, 50, "train")
    first = adapter.read(writer.run).counters
    writer.beat(100, 50, "train")
    assert adapter.read(writer.run).counters == first
    writer.beat(100, 50, "evaluate")
    second = adapter.read(writer.run).counters
    writer.beat(100, 50, "evaluate")
    assert adapter.read(writer.run).counters != second


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_an_empty_or_missing_folder_is_read_as_not_begun(adapter: Adapter, tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "missing"):
        run = RunFolder(root)
        reading = adapter.read(run, None)
        assert (reading.agent_steps, reading.phase) == (0, "start")
        assert adapter.kept_agent_steps(run) == 0
        assert isinstance(adapter.prove_training(run, 10), str)
        assert isinstance(adapter.prove_evaluation(run, "id", 1, "h"), str)
        assert adapter.results(run) == {}
        assert adapter.read_evaluation(run).phase == "evaluate"


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_a_folder_of_rubbish_is_survived(adapter: Adapter, tmp_path: Path) -> None:
    ours = ("metrics.jsonl", "heartbeat.json", "config.yaml", "checkpoint.ckpt", "train.log", "settings.json")
    for name in (*ours, *FOREIGN_FILES):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00[[[{{ \n: -\n")
    (tmp_path / "replay").write_bytes(b"not a folder")
    (tmp_path / "checkpoints").mkdir()
    run = RunFolder(tmp_path)
    assert adapter.read(run, None).agent_steps == 0
    assert isinstance(adapter.prove_training(run, 10), str)
    assert adapter.results(run) == {}


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
def test_a_file_of_a_gigabyte_without_lines_is_read_in_bounds(adapter: Adapter, tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "train.log"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 30)
    run = RunFolder(tmp_path)
    assert adapter.read(run).agent_steps == 0
    assert isinstance(adapter.prove_training(run, 10), str)


def test_replay_chunks_and_evaluations_are_not_taken_for_weights(tmp_path: Path) -> None:
    put(tmp_path / "replay" / chunk_name(1), b"x", BEGAN)
    put(tmp_path / "model.npz", b"x", BEGAN - 5)
    [found] = find_checkpoints(tmp_path)
    assert found.path.name == "model.npz"


def test_an_unknown_adapter_is_named_with_those_there_are() -> None:
    with pytest.raises(BadInput, match="unknown adapter 'tensorbord'"):
        find_adapter("tensorbord")


ODD_ROWS = ['{"step": NaN, "loss": 1}', '{"step": Infinity}', '{"step": -5}', '{"step": 1e300}', '{"step": true}']


@pytest.mark.parametrize("row", [*ODD_ROWS, '{"step": ' + "9" * 400 + "}", "[" * 5000])
@pytest.mark.parametrize("name", ADAPTERS)
def test_steps_that_are_no_count_are_left_out(tmp_path: Path, name: str, row: str) -> None:
    run = RunFolder(tmp_path)
    run.metrics.write_text(f'{{"step": 5, "agent_steps": 5, "loss": 1.0}}\n{row}\n')
    adapter = ADAPTERS[name]
    assert adapter.read(run).agent_steps in (0, 5)
    assert isinstance(adapter.prove_training(run, 10), str)
    assert adapter.kept_agent_steps(run) == 0
    adapter.results(run)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(
    "file", ["metrics.jsonl", "heartbeat.json", "config.yaml", "a.log", "checkpoint.ckpt", "replay", *FOREIGN_FILES]
)
@pytest.mark.parametrize("kind", KINDS)
def test_no_odd_file_of_a_folder_stops_an_adapter(tmp_path: Path, name: str, file: str, kind: str) -> None:
    KINDS[kind](tmp_path / file)
    run, adapter = RunFolder(tmp_path), ADAPTERS[name]
    assert adapter.read(run).agent_steps == 0
    assert adapter.read_evaluation(run).phase == "evaluate"
    assert isinstance(adapter.prove_training(run, 10), str)
    assert adapter.kept_agent_steps(run) == 0
    adapter.kept_unix_seconds(run)
    adapter.results(run)
