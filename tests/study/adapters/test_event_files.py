"""Event files of TensorBoard and offline runs of W&B."""

from pathlib import Path

import pytest
from tests.study.adapters.foreign_folders import BEGAN, HOUR, proof_of, put, study_of, wandb_run, write_events

from dreamproof.base.errors import BadInput
from dreamproof.runs.layout import AttemptFolder, RunFolder
from dreamproof.runs.reader import NotSaved, TrainProof
from dreamproof.study.adapters import find_adapter
from dreamproof.study.adapters import tensorboard as tensorboard_module
from dreamproof.study.adapters.api import TrainerFormat
from dreamproof.study.plan.commands import check_commands


def test_event_files_show_progress_and_prove_with_a_checkpoint(tmp_path: Path) -> None:
    run, adapter = RunFolder(tmp_path), find_adapter("tensorboard")
    write_events(tmp_path / "tb" / "PPO_1", list(range(0, 6001, 1000)))
    assert adapter.matches(run)
    assert adapter.read(run).agent_steps == 6000
    assert isinstance(adapter.prove_training(run, 6000), NotSaved)
    put(tmp_path / "policy.pt", b"weights", BEGAN + 360)
    proof = proof_of(adapter.prove_training(run, 6000))
    assert (proof.agent_steps, proof.gradient_steps, proof.checkpoint) == (6000, 7, "policy.pt")
    assert adapter.results(run)["train/loss"][-1][0] == 6000
    assert adapter.prove_training(run, 7000) == "its event files end at 6,000 of 7,000 agent steps"


def test_a_checkpoint_from_before_the_last_events_is_not_the_final_one(tmp_path: Path) -> None:
    run, adapter = RunFolder(tmp_path), find_adapter("tensorboard")
    write_events(tmp_path, list(range(0, 6001, 1000)))
    put(tmp_path / "policy.pt", b"weights", BEGAN + 60)
    assert "was written at 17% of the run" in str(adapter.prove_training(run, 6000))
    assert adapter.kept_agent_steps(run) == 1000


def test_a_restarted_run_counts_from_its_own_event_file(tmp_path: Path) -> None:
    write_events(tmp_path / "a", [0, 4000])
    write_events(tmp_path / "b", [0, 500], began=BEGAN + HOUR)
    assert find_adapter("tensorboard").read(RunFolder(tmp_path)).agent_steps == 500


def test_an_event_file_shows_where_its_attempt_began(tmp_path: Path) -> None:
    attempt, adapter = AttemptFolder(tmp_path / "attempts" / "a000002"), find_adapter("tensorboard")
    attempt.root.mkdir(parents=True)
    put(attempt.order, b"{}", BEGAN - 1)
    write_events(tmp_path / "run" / "a", [2048, 4096], began=BEGAN - HOUR)
    assert adapter.began_agent_steps(RunFolder(tmp_path / "run"), attempt.output) is None, "an earlier attempt's"
    write_events(tmp_path / "run" / "b", [2048, 4096])
    assert adapter.began_agent_steps(RunFolder(tmp_path / "run"), attempt.output) == 0
    write_events(tmp_path / "run" / "c", [6144, 8192], began=BEGAN + HOUR)
    assert adapter.began_agent_steps(RunFolder(tmp_path / "run"), attempt.output) == 4096


def test_one_tag_can_be_declared_to_count_the_steps(tmp_path: Path) -> None:
    write_events(tmp_path / "a", [0, 4000])
    write_events(tmp_path / "b", [90_000], began=BEGAN + HOUR, tag="video/frames")
    adapter = find_adapter("tensorboard", TrainerFormat(step_key="video/frames", steps_per_count=0.25))
    assert adapter.read(RunFolder(tmp_path)).agent_steps == 22_500


def test_a_broken_event_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_events(tmp_path, [0, 1000, 2000])
    content = path.read_bytes()
    put(path, content[:-20], BEGAN)
    assert find_adapter("tensorboard").read(RunFolder(tmp_path)).agent_steps == 1000


def test_without_tensorboard_the_install_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_events(tmp_path, [0, 1000])
    monkeypatch.setattr(tensorboard_module, "is_installed", lambda: False)
    with pytest.raises(BadInput, match="not installed") as error:
        find_adapter("tensorboard").read(RunFolder(tmp_path))
    assert error.value.hint == "pip install 'dreamproof[tensorboard]'"
    with pytest.raises(BadInput, match="not installed"):
        check_commands(study_of(adapter="tensorboard"), tmp_path)


def test_an_offline_run_of_wandb_is_proven_by_its_summary(tmp_path: Path) -> None:
    summary = {"_step": 10, "_runtime": HOUR, "_timestamp": BEGAN + HOUR, "global_step": 5000, "losses/loss": 0.5}
    run, adapter = wandb_run(tmp_path, summary), find_adapter("wandb")
    assert adapter.read(run).agent_steps == 5000
    proof = proof_of(adapter.prove_training(run, 5000))
    assert (proof.agent_steps, proof.gradient_steps, proof.checkpoint) == (5000, 1, "model.pt")
    assert adapter.results(run) == {"losses/loss": [(5000, 0.5)]}


def test_calls_of_log_are_steps_only_where_that_is_declared(tmp_path: Path) -> None:
    run = wandb_run(tmp_path, {"_step": 5000, "loss": 0.5})
    assert "declare trainer.step_key, e.g. _step" in str(find_adapter("wandb").prove_training(run, 5000))
    declared = find_adapter("wandb", TrainerFormat(step_key="_step"))
    assert isinstance(declared.prove_training(run, 5000), TrainProof)


def test_a_living_run_of_wandb_shows_its_printed_lines(tmp_path: Path) -> None:
    run, adapter = wandb_run(tmp_path, None, "[300/5000] R:1.0\n"), find_adapter("wandb")
    assert adapter.read(run).agent_steps == 300
    assert "did not call wandb.finish" in str(adapter.prove_training(run, 5000))
