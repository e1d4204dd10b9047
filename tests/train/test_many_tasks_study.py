"""A study over several tasks through the study engine: from recorded episodes to the report."""

import sys
from pathlib import Path

import pytest
import yaml

from dreamproof import load, open_policy
from dreamproof.cli.main import main
from dreamproof.data.recordings import write_recording
from dreamproof.record.episodes import record
from dreamproof.record.policies import find_policies
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.runs.reader import read_evaluation
from dreamproof.settings.study_file import read_study
from dreamproof.study.plan.packs import pack_groups
from dreamproof.testing.small_agent import tiny_pwm_settings

pytestmark = pytest.mark.long(60)

STUDIES = Path(__file__).parents[2] / "studies"
TASKS = ["ProbeTarget", "ProbeCostLine"]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two arms, two seeds, two tasks, and random episodes of both."""
    made = record(find_policies(TASKS, ["random"]), TASKS, 60, 0, lambda batches: batches)
    write_recording(tmp_path / "both.npz", made)
    behavior = {"warm_up_epochs": 60, "replayed_starts": 16}
    agent = tiny_pwm_settings({"world_model": {"task_size": 4}, "behavior": behavior})["agent"]
    sizes = {"observation_size": made.observation.shape[2], "action_size": made.action.shape[2]}
    declared = {
        "name": "many",
        "question": "Does learning in imagination beat copying what was recorded?",
        "metric": {"name": "relative_score", "smallest_difference": 0.05},
        "tasks": TASKS,
        "trainer": "pwm_offline",
        "settings": {
            "agent": agent,
            "data": {"files": ["both.npz"], **sizes},
            "train": {"batch": 8, "window": 5, "chunk_agent_steps": 60, "evaluate_every_agent_steps": 120},
        },
        "arms": {"mlp": {}, "cloning": {"agent": {"behavior": {"objective": "cloning"}}}},
        "seeds": 2,
        "agent_steps": 120,
        "evaluation_episodes": 4,
        "pack_cells": 2,
    }
    path = tmp_path / "many.yaml"
    path.write_text(yaml.safe_dump(declared))
    return path


def test_cells_are_trained_on_all_tasks_and_evaluated_on_each(
    study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> str:
        monkeypatch.setattr(sys, "argv", ["dreamproof", "run", str(study), "--no-check", "--plain"])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert not ended.value.code, printed.out + printed.err
        return printed.out

    printed = run()
    assert "train       4/4 proven" in printed and "evaluate    8/8 proven" in printed
    folder = StudyFolder(study.parent / "results" / "many")
    for arm in ("mlp", "cloning"):
        for task in TASKS:
            found = read_evaluation(folder.run(Cell(arm, 1)), task)
            assert found is not None and found.floors.keys() >= {"random", "data mean", "data best"}
            assert len(found.checkpoints["final"].episodes["relative_score"]) == 4
    written = [path.name for path in load(folder.root).write_policies(study.parent / "policies")]
    steps = folder.run(Cell("mlp", 1)).checkpoint_folders()[-1].agent_steps
    assert {f"{arm}-{task}-seed1-step{steps}.npz" for arm in ("mlp", "cloning") for task in TASKS} <= set(written)
    assert open_policy(study.parent / "policies" / f"mlp-{TASKS[1]}-seed1-step{steps}.npz").spec.name == TASKS[1]
    decision = (folder.reports / "decision.md").read_text()
    assert "the IQM over 2 tasks" in decision and "task_scores.png" in decision
    (study.parent / "both.npz").unlink()
    assert "train       4/4 proven" in run()  # nothing is left to learn from the episodes


@pytest.mark.parametrize(("name", "shapes", "tasks"), [("mt8", 3, 8)])
def test_the_declared_studies_over_several_tasks_are_valid(name: str, shapes: int, tasks: int) -> None:
    declared = read_study(STUDIES / f"{name}.yaml")
    assert len(set(pack_groups(declared).values())) == shapes
    assert len(declared.conditions) == tasks
