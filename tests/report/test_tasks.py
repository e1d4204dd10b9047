"""A study over several tasks: its verdict is that over all of them, and each is shown."""

import csv
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from pptx import Presentation
from tests.report.task_study import TASKS, make_task_study, score

from dreamproof.report import write_all
from dreamproof.report.analysis import Analysis, analyse
from dreamproof.report.data import Group, OtherScore
from dreamproof.report.language import read_texts
from dreamproof.report.loading import load
from dreamproof.report.numbers import register
from dreamproof.report.tasks import over_tasks, task_statements, task_tables
from dreamproof.settings.study_file import read_study
from dreamproof.stats.describe import interquartile_mean
from dreamproof.testing.gallery import unpack


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


def add_relative(
    folder: Path, value: Callable[[str, int, str], object], arms: tuple[str, ...] = ("mlp", "flow")
) -> None:
    """Adds a row of relative_score to every evaluation for which `value` gives one."""
    with (folder / "imported" / "results.csv").open("a", newline="") as file:
        rows = csv.writer(file)
        for arm, seed, task in product(arms, range(5), TASKS):
            found = value(arm, seed, task)
            if found is not None:
                rows.writerow([arm, seed, task, "final", "relative_score", found])


def relative(arm: str, seed: int, task: str) -> float:
    return 2 * score(arm, seed, task) - 0.3


def loaded(folder: Path) -> Analysis:
    return analyse(load(folder, read_study(folder / "study.yaml")))


def test_the_other_normalisation_has_mean_iqm_and_interval_as_the_deciding_one(folder: Path) -> None:
    add_relative(folder, relative)
    analysis = loaded(folder)
    assert analysis.evidence.other_score == OtherScore("relative_score", list(TASKS), [], [])
    deciding = over_tasks(task_tables(analysis)["flow"])
    other = over_tasks(task_tables(analysis, "relative_score")["flow"])
    assert deciding.interval is not None and other.interval is not None
    for name in ("mean", "iqm"):
        assert getattr(other, name) == pytest.approx(2 * getattr(deciding, name) - 0.3)
    assert other.interval.low == pytest.approx(2 * deciding.interval.low - 0.3)
    numbers = register(analysis)
    assert numbers.by_key["over_tasks.flow.relative_score.iqm"].value == other.iqm
    assert numbers.by_key["over_tasks.flow.relative_score_high"].value == other.interval.high
    assert numbers.by_key["over_tasks.flow.score.iqm"].cells == tuple(f"flow/{seed}@several" for seed in range(5))
    by_seed = analysis.evidence.values[Group("flow", "several", "relative_score")]
    assert by_seed[3] == pytest.approx(interquartile_mean(np.array([relative("flow", 3, task) for task in TASKS])))


@pytest.mark.parametrize("undefined", [float("nan"), None], ids=["not a number", "missing"])
def test_a_task_without_it_is_left_out_for_all_arms(folder: Path, undefined: float | None) -> None:
    """One seed of one arm is enough; both arms are then averaged over the same four tasks."""
    add_relative(folder, lambda arm, seed, task: undefined if (arm, seed, task) == ("flow", 2, "spin") else 0.5)
    analysis = loaded(folder)
    assert analysis.evidence.other_score == OtherScore(
        "relative_score", ["reach", "swing", "balance", "walk"], ["spin"], []
    )
    assert {arm: table.shape for arm, table in task_tables(analysis, "relative_score").items()} == {
        "mlp": (5, 4),
        "flow": (5, 4),
    }
    assert task_tables(analysis)["flow"].shape == (5, 5)
    write_all(folder, figures=False, declared=read_study(folder / "study.yaml"))
    decision, appendix = ((folder / "reports" / f"{name}.md").read_text() for name in ("decision", "appendix"))
    for text in (decision, appendix):
        assert "Left out of `relative_score` for all arms, because not every run has it: spin." in text
    assert "relative_score · the IQM over 4 tasks" in decision and "score · the IQM over 5 tasks" in decision


def test_an_arm_without_it_leaves_no_task_out(folder: Path) -> None:
    add_relative(folder, relative, arms=("flow",))
    analysis = loaded(folder)
    assert analysis.evidence.other_score == OtherScore("relative_score", list(TASKS), [], ["mlp"])
    assert list(task_tables(analysis, "relative_score")) == ["flow"]
    write_all(folder, figures=False, declared=read_study(folder / "study.yaml"))
    for name in ("decision", "appendix"):
        assert "No run of `mlp` has `relative_score`." in (folder / "reports" / f"{name}.md").read_text()


@pytest.mark.parametrize("language", ["en", "zh-Hans", "zh-Hant"])
@pytest.mark.parametrize("gaps", [2, 3, 5])
def test_less_than_half_of_the_tasks_do_not_stand_for_all(folder: Path, gaps: int, language: str) -> None:
    """One run lacks it on so many of five tasks."""
    lacking = [("flow", 2, task) for task in TASKS[:gaps]]
    add_relative(folder, lambda arm, seed, task: None if (arm, seed, task) in lacking else 0.5)
    evidence = loaded(folder).evidence
    assert (evidence.other_score is None, evidence.hidden_score is None) == (gaps > 2, gaps < 3)
    write_all(folder, language, figures=False, declared=read_study(folder / "study.yaml"))
    reports = folder / "reports" / ("" if language == "en" else language)
    sentence = read_texts(language)("tasks.not_shown", metric="relative_score", missing=gaps, count=5)
    for name in ("decision", "appendix"):
        text = (reports / f"{name}.md").read_text()
        assert (sentence in text) == (gaps > 2) and (f"{5 - gaps} tasks" not in text or gaps < 3)
    assert "relative_score" not in (folder / "tables" / "over_tasks.csv").read_text() or gaps < 3


def test_one_task_that_is_left_is_named(folder: Path) -> None:
    study = folder / "study.yaml"
    study.write_text(study.read_text().replace("[reach, swing, balance, spin, walk]", "[reach, swing]"))
    path = folder / "imported" / "results.csv"
    kept = [line for line in path.read_text().splitlines() if not any(f",{task}," in line for task in TASKS[2:])]
    path.write_text("\n".join(kept) + "\n")
    add_relative(folder, lambda arm, seed, task: 0.5 if task == "swing" else None)
    write_all(folder, figures=False, declared=read_study(study))
    decision = (folder / "reports" / "decision.md").read_text()
    assert "relative_score · swing" in decision and "1 tasks" not in decision


def test_score_is_shown_beside_a_deciding_relative_score(folder: Path) -> None:
    study = folder / "study.yaml"
    study.write_text(study.read_text().replace("name: score", "name: relative_score"))
    add_relative(folder, relative)
    assert loaded(folder).evidence.other_score == OtherScore("score", list(TASKS), [], [])


@pytest.mark.parametrize("language", ["en", "zh-Hans", "zh-Hant"])
def test_the_report_shows_the_other_normalisation_or_nothing(folder: Path, language: str) -> None:
    own = "" if language == "en" else language
    for is_there in (False, True):
        if is_there:
            add_relative(folder, relative)
        write_all(folder, language, figures=False, declared=read_study(folder / "study.yaml"))
        documents = [(folder / "reports" / own / f"{name}.md").read_text() for name in ("decision", "appendix")]
        tables = [folder / "tables" / "over_tasks.csv", folder / "tables" / own / "over_tasks.md"]
        shown = [*documents, *(path.read_text() for path in tables)]
        assert [("relative_score" in text) for text in shown] == [is_there] * 4
    decision, appendix = documents
    (row,) = [line for line in decision.splitlines() if line.startswith("| flow | ") and line.count("±") == 2]
    assert "1.144 ± 0.035" in row  # 2 × 0.722 − 0.3
    assert appendix.count("| walk | ") == 2 and "−0.244 ±" in appendix
    rows = list(csv.DictReader(tables[0].open()))
    assert [(one["arm"], one["metric"], one["tasks"]) for one in rows][-1] == ("flow", "relative_score", "5")
    found = over_tasks(task_tables(loaded(folder), "relative_score")["flow"])
    assert float(rows[-1]["iqm"]) == pytest.approx(found.iqm) and float(rows[-1]["mean"]) == pytest.approx(found.mean)


def test_mt30_of_the_gallery_has_the_numbers_of_its_page(tmp_path: Path) -> None:
    gallery = Path(__file__).parents[2] / "gallery" / "mt30"
    numbers = register(analyse(load(unpack(gallery, tmp_path / "mt30"))))
    page = (gallery / "README.md").read_text()
    for arm, mean in (("mlp", "0.445"), ("flow_v1", "0.437"), ("behaviour_cloning", "0.532")):
        assert numbers.by_key[f"main.{arm}.mt30.relative_score.mean"].text == mean
        key = f"over_tasks.{arm}.relative_score"
        iqm, low, high = (numbers.by_key[f"{key}{end}"].text for end in (".iqm", "_low", "_high"))
        assert f" {iqm} [{low}, {high}] " in page


@pytest.mark.parametrize(
    ("language", "forbidden"),
    [
        ("en", "forbids a verdict of flow_v3"),
        ("zh-Hans", "对 flow_v3 禁止下结论"),
        ("zh-Hant", "對 flow_v3 禁止下結論"),
    ],
)
def test_what_an_arm_lacks_forbids_only_its_verdict(tmp_path: Path, language: str, forbidden: str) -> None:
    """mt30 with an arm that was never trained: the others have their verdicts."""
    folder = unpack(Path(__file__).parents[2] / "gallery" / "mt30", tmp_path / "mt30")
    write_all(folder, language, figures=False)
    reports = folder / "reports" / ("" if language == "en" else language)
    documents = {path.stem: path.read_text(encoding="utf-8") for path in reports.glob("*.md")}
    texts = read_texts(language)
    assert forbidden in documents["decision"] and forbidden in documents["appendix"]
    for text in documents.values():
        assert text.count(texts("lint_level.block")) == text.count(forbidden)
        assert f"- {texts('step.spread_unknown')}" not in text
    slides = Presentation(str(reports / "slides.pptx")).slides
    shown = [shape.text_frame.text for slide in slides for shape in slide.shapes if shape.has_text_frame]
    lines = [line for text in shown for line in text.splitlines()]
    assert any(line.startswith(f"flow_v3{texts('list.colon')}{texts('why.no_values')}") for line in lines)
