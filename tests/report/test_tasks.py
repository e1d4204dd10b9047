"""A study over several tasks: its verdict is that over all of them, and each is shown."""

from pathlib import Path

import numpy as np
import pytest
from tests.report.task_study import TASKS, make_task_study, score

from dreamproof.report import write_all
from dreamproof.report.analysis import Analysis, analyse
from dreamproof.report.data import Group, load
from dreamproof.report.tasks import over_tasks, task_statements, task_tables
from dreamproof.settings.study_file import read_study
from dreamproof.stats.describe import interquartile_mean


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of five tasks from tables."""
    return make_task_study(tmp_path / "study")


@pytest.fixture
def analysis(folder: Path) -> Analysis:
    """What the tables allow to say."""
    return analyse(load(folder, read_study(folder / "study.yaml")))


def test_the_value_of_a_seed_is_the_iqm_over_its_tasks(analysis: Analysis) -> None:
    found = analysis.evidence.values[Group("flow", "several", "score")]
    for seed, value in found.items():
        assert value == pytest.approx(interquartile_mean(np.array([score("flow", seed, task) for task in TASKS])))


def test_the_verdict_is_that_over_all_tasks(analysis: Analysis) -> None:
    # The middle three of five gain 0.2; the mean would gain only 0.06.
    assert analysis.verdicts["flow"].kind.value == "better"
    assert analysis.comparisons[analysis.primary("flow")].difference == pytest.approx(0.2, abs=0.01)


def test_every_task_has_its_statement(analysis: Analysis) -> None:
    found = task_statements(analysis, "flow")
    assert (found.higher, found.compared) == (4, 5)
    assert found.better == list(TASKS[:4]) and found.worse == ["walk"]


def test_the_interval_over_tasks_resamples_whole_seeds(analysis: Analysis) -> None:
    found = over_tasks(task_tables(analysis)["flow"])
    assert found.interval is not None and found.interval.low <= found.iqm <= found.interval.high
    assert found.mean == pytest.approx(np.mean([score("flow", seed, task) for seed in range(5) for task in TASKS]))


def test_tasks_with_equal_scores_all_count(folder: Path) -> None:
    path = folder / "imported" / "results.csv"
    lines = path.read_text().splitlines()
    same = [
        ",".join([*line.split(",")[:-1], "0.3"]) if ",reach," in line or ",swing," in line else line for line in lines
    ]
    path.write_text("\n".join(same) + "\n")
    evidence = load(folder, read_study(folder / "study.yaml"))
    assert evidence.deciding_conditions == list(TASKS)


@pytest.mark.parametrize("language", ["en", "zh-Hans", "zh-Hant"])
def test_the_report_shows_every_task(folder: Path, language: str) -> None:
    write_all(folder, language, declared=read_study(folder / "study.yaml"))
    own = "" if language == "en" else language
    decision, appendix = ((folder / "reports" / own / f"{name}.md").read_text() for name in ("decision", "appendix"))
    assert "task_scores.png" in decision and "task_profile.png" in decision and "IQM" in decision
    assert len(decision.split()) < 700
    for task in TASKS:
        assert f"| {task} |" in appendix
    for name in ("task_scores", "task_profile"):
        assert (folder / "figures" / own / f"{name}.png").is_file()
