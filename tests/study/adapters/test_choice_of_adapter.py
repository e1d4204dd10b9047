"""Which adapter a folder gets, what each one says of itself, and the commands that trainers are given."""

from pathlib import Path

import pytest
from tests.study.adapters.foreign_folders import (
    BEGAN,
    PATTERN,
    dreamer_log,
    put,
    sb3_model,
    sb3_run,
    study_of,
    wandb_run,
    write_events,
)

from dreamproof.runs.layout import Cell, RunFolder
from dreamproof.settings.study import CommandTrainer
from dreamproof.study.adapters import ADAPTERS, find_adapter, guess_adapter
from dreamproof.study.adapters.api import TrainerFormat
from dreamproof.study.adapters.automatic import AutoAdapter
from dreamproof.study.plan.commands import Target, fill, train_commands


def make_folder(kind: str, root: Path) -> None:
    if kind == "embodied":
        dreamer_log(root / "20260222-023040_a_b_0")
    elif kind == "sb3":
        sb3_run(root, "monitor")
    elif kind == "tensorboard":
        write_events(root / "tb", [0, 100])
    elif kind == "wandb":
        wandb_run(root, None)
    elif kind == "jsonl":
        put(root / "log.jsonl", '{"step": 5, "loss": 1}\n', BEGAN)
    elif kind == "csv":
        put(root / "log.csv", "step,loss\n5,1\n", BEGAN)
    elif kind == "line_pattern":
        put(root / "train.log", "update 5 | return 1\n", BEGAN)
    elif kind == "bracket_lines":
        put(root / "train.log", "[5/10] R:1\n", BEGAN)
    else:
        put(root / "heartbeat.json", '{"agent_steps": 5}', BEGAN)


@pytest.mark.parametrize("kind", [name for name in ADAPTERS if name != "auto"])
def test_auto_chooses_the_adapter_whose_files_are_there(kind: str, tmp_path: Path) -> None:
    adapter = find_adapter("auto", TrainerFormat(line_pattern=PATTERN))
    assert isinstance(adapter, AutoAdapter)
    run = RunFolder(tmp_path)
    assert not adapter.matches(run)
    make_folder(kind, tmp_path)
    assert adapter.chosen(run).name == kind
    assert guess_adapter(run, TrainerFormat(line_pattern=PATTERN)).name == kind
    assert adapter.read(run).counters == adapter.chosen(run).read(run).counters


def test_a_folder_of_checkpoints_alone_is_not_taken_for_the_native_form(tmp_path: Path) -> None:
    sb3_model(tmp_path / "checkpoints" / "rl_model_100_steps.zip", 100)
    sb3_run(tmp_path)
    assert guess_adapter(RunFolder(tmp_path)).name == "sb3"


def test_every_adapter_says_what_it_looks_for_and_what_it_can_prove() -> None:
    for adapter in ADAPTERS.values():
        assert len(adapter.looks_for) > 15 and len(adapter.proves) > 15
    declared = CommandTrainer.model_fields["adapter"].annotation
    assert set(ADAPTERS) == set(declared.__args__)  # type: ignore[union-attr]


@pytest.mark.parametrize("given", ["{run_dir}", "{run_dir}/", "--logdir={run_dir}"])
@pytest.mark.parametrize("adapter", ["embodied", "auto"])
def test_a_trainer_that_appends_its_own_name_writes_into_the_run_folder(given: str, adapter: str) -> None:
    study = study_of(command=["train.py", given], adapter=adapter)
    [[_, logdir]] = train_commands(study, [Target(Cell("a", 0), RunFolder(Path("/runs/a-seed0")), 10)])
    assert logdir.removeprefix("--logdir=") == "/runs/a-seed0/"


def test_other_trainers_get_the_folder_as_it_is() -> None:
    study = study_of(command=["train.py", "{run_dir}"], adapter="jsonl")
    assert train_commands(study, [Target(Cell("a", 0), RunFolder(Path("/r")), 10)]) == [["train.py", "/r"]]


def test_settings_reach_hydra_as_overrides() -> None:
    study = study_of(command=["train.py", "{overrides}", "seed={seed}"])
    filled = fill(study.trainer.command, study, Target(Cell("a", 3), RunFolder(Path("/r")), 10))  # type: ignore[union-attr]
    assert filled == ["train.py", "risk.u=true", "layers=[64,64]", "note=null", "seed=3"]


def test_an_evaluation_is_given_the_proven_checkpoint() -> None:
    study = study_of(command=["eval.py", "{checkpoint}", "{checkpoint_hash}"])
    target = Target(Cell("a", 0), RunFolder(Path("/r")), 10, "id", 1, Path("/r/m.zip"), "abc")
    assert fill(study.trainer.command, study, target) == ["eval.py", "/r/m.zip", "abc"]  # type: ignore[union-attr]
