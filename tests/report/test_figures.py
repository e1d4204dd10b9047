"""Figures: every label inside the picture, arms distinguishable in grey, the same look everywhere."""

import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from tests.report.task_study import make_task_study

from dreamproof.report import make_context
from dreamproof.report.context import ReportContext
from dreamproof.report.curves import Curve, arm_band, logged_name, read_curves
from dreamproof.report.figures import NAMES
from dreamproof.report.figures.campaign import _cause_look
from dreamproof.report.figures.draw import drawings
from dreamproof.report.figures.results import share_band
from dreamproof.report.figures.theme import arm_styles, look, new_figure, save
from dreamproof.report.language import LANGUAGES
from dreamproof.report.palette import BAD, COLOURS, GOOD, HARMLESS
from dreamproof.runs.layout import Cell
from dreamproof.settings.study_file import read_study
from dreamproof.testing.made_study import Plan, make_study


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("made") / "study", Plan(missing=("full/2",)))


@pytest.fixture(scope="module")
def several_tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_task_study(tmp_path_factory.mktemp("tasks") / "study")


def drawn(context: ReportContext, name: str) -> Figure:
    figure = drawings(context)[name](context)
    assert figure is not None
    FigureCanvasAgg(figure).draw()
    return figure


class Picture(NamedTuple):
    """A figure that was drawn once for all tests that only look at it."""

    figure: Figure
    context: ReportContext
    warnings: list[str]


Pictures = Callable[[str, str], Picture]


@pytest.fixture(scope="module")
def pictures(made: Path, several_tasks: Path) -> Pictures:
    """Draws a figure, given its name and language, of the study that has it."""

    @cache
    def context_of(several: bool, language: str) -> ReportContext:
        if several:
            return make_context(several_tasks, language, read_study(several_tasks / "study.yaml"))
        return make_context(made, language)

    @cache
    def picture(name: str, language: str) -> Picture:
        context = context_of(name.startswith("task_"), language)
        with look(context.texts), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            figure = drawn(context, name)
        return Picture(figure, context, [str(warning.message) for warning in caught])

    return picture


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_no_label_leaves_the_picture(pictures: Pictures, name: str, language: str) -> None:
    figure, context, _ = pictures(name, language)
    with look(context.texts):
        drawn_box = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())
        width, height = figure.get_size_inches()
        assert figure.findobj(matplotlib.text.Text)
        assert drawn_box.x0 >= -0.01 and drawn_box.x1 <= width + 0.01
        assert drawn_box.y0 >= -0.01 and drawn_box.y1 <= height + 0.01


@pytest.mark.parametrize("language", ["zh-Hans", "zh-Hant"])
@pytest.mark.parametrize("name", NAMES)
def test_no_glyph_is_missing(pictures: Pictures, name: str, language: str) -> None:
    assert [text for text in pictures(name, language).warnings if "missing from font" in text] == []


def test_arms_differ_by_colour_marker_and_line() -> None:
    styles = arm_styles([f"arm{n}" for n in range(16)])
    assert len({style.colour for style in list(styles.values())[: len(COLOURS)]}) == len(COLOURS)
    looks = [(style.colour, str(style.line)) for style in styles.values()]
    assert len(set(looks)) == len(looks)


def test_the_same_arm_has_the_same_colour_in_every_figure(made: Path) -> None:
    context = make_context(made, "en")
    first = arm_styles(context.analysis.evidence.arms)["full"].colour
    with look(context.texts):
        lines = drawn(context, "curves_primary").axes[0].get_lines()
    assert {line.get_color() for line in lines if str(line.get_label()).startswith("full")} == {first}


def test_a_curve_uses_one_logged_column_and_the_last_row_of_a_step(made: Path) -> None:
    assert logged_name(["agent_steps", "episode/return", "validation/return"], "return") == "validation/return"
    assert logged_name(["agent_steps", "train/episode_return"], "return") == "train/episode_return"
    assert logged_name(["loss"], "return") is None
    evidence = make_context(made, "en").analysis.evidence
    path = evidence.kept_run(Cell("baseline", 0)).metrics
    path.write_text(path.read_text() + '{"agent_steps": 0, "return": 77}\n{"agent_steps": 5, "return": "text"}\n{"ret')
    curve = read_curves(evidence, "return")[Cell("baseline", 0)]
    assert curve.values[0] == 77.0 and curve.peak == 77.0


def test_a_study_without_trails_has_no_picture_of_them(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(trails=False)), "en")
    assert drawings(context)["trails"](context) is None


def test_vases_are_drawn_and_all_panels_have_one_scale(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=2)), "en")
    path = context.analysis.evidence.kept_run(Cell("full", 0)).evaluations / "id.json"
    record = json.loads(path.read_text())
    record["trail"] |= {"vases": [[(0, 0.5, 0.5), (9, 2.6, 0.5)], [(0, -0.5, 0.5)]], "vase_size": 0.2}
    path.write_text(json.dumps(record))
    with look(context.texts):
        figure = drawn(context, "trails")
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    squares = [[one for one in axes.patches if isinstance(one, Rectangle)] for axes in figure.axes]
    assert [len(each) for each in squares] == [0, 4], "a vase that moved is shown at its first and its last place"
    assert "vase (dotted: at first)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_axis_of_a_curve_separates_validation_from_training(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=2, curves=False))
    context = make_context(root, "en")
    rows = '{"agent_steps": 1, "X": 1.0}\n{"agent_steps": 2, "X": 2.0}\n'
    for cell in context.analysis.evidence.cells:
        path = context.analysis.evidence.kept_run(cell).metrics
        path.write_text(rows.replace("X", "validation/return" if cell.arm == "full" else "episode/return"))
    with look(context.texts):
        label = drawn(context, "curves_primary").axes[0].get_ylabel()
    assert label == "episode/return, validation/return"


@pytest.mark.parametrize(("seeds", "intervals"), [(2, 0), (3, 2)])
def test_an_interval_is_drawn_from_three_seeds_on(tmp_path: Path, seeds: int, intervals: int) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=seeds)), "en")
    with look(context.texts):
        axes = drawn(context, "curves_primary").axes[0]
    assert len(axes.collections) == intervals


def test_every_figure_says_what_its_marks_mean_and_how_many_there_are(pictures: Pictures) -> None:
    notes = {name: pictures(name, "en").figure.get_suptitle() for name in NAMES}
    assert all(notes.values())
    assert notes["conditions"].startswith("n = 4–5 seeds per arm")
    assert "upper one-sided 95 %" in notes["conditions_cost"] and "≤ keeps it" in notes["conditions_cost"]


def test_conditions_are_small_multiples_that_fit_on_a_page(tmp_path: Path) -> None:
    kinds = (("id", "in_distribution"), *((f"shift{n}", "genuine") for n in range(7)))
    context = make_context(make_study(tmp_path / "study", Plan(conditions=kinds, curves=False)), "en")
    with look(context.texts):
        for name in ("conditions", "conditions_cost", "coverage"):
            width, height = drawn(context, name).get_size_inches()
            assert width <= 8.5 and height <= 8
        panels = drawn(context, "conditions").axes
    assert [axes.get_title(loc="left") for axes in panels][:2] == ["id", "shift0"]
    assert panels[0].get_xlim() == panels[5].get_xlim()


def test_a_cost_band_does_not_go_below_zero(made: Path) -> None:
    context = make_context(made, "en")
    with look(context.texts):
        bands = drawn(context, "curves_cost").axes[0].collections
    assert bands and min(path.vertices[:, 1].min() for band in bands for path in band.get_paths()) >= 0


def test_a_floor_far_from_the_curves_does_not_stretch_the_axis(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "full"), seeds=2, floors={"random": {"return": -1e6}})
    context = make_context(make_study(tmp_path / "study", plan), "en")
    with look(context.texts):
        axes = drawn(context, "curves_primary").axes[0]
    assert axes.get_ylim()[0] > -1e3
    assert any(str(line.get_label()).startswith("random: -1e+06") for line in axes.get_lines())


def test_a_stop_that_was_asked_for_is_not_drawn_as_a_failure() -> None:
    assert _cause_look("completed", 0)[0] == GOOD
    assert _cause_look("stopped_by_user", 1)[0] == HARMLESS
    assert _cause_look("host_oom", 2)[0] == BAD


def test_the_band_of_a_profile_is_exact() -> None:
    low, high = share_band(np.array([0, 3, 5]), 5)
    assert (low[0], high[2]) == (0.0, 1.0)
    assert (low[1], high[1]) == pytest.approx((0.1466, 0.9473), abs=1e-4)


def test_the_power_curve_rises_and_has_a_price(made: Path) -> None:
    context = make_context(made, "en")
    with look(context.texts):
        axes = drawn(context, "power").axes[0]
    powers = axes.get_lines()[0].get_ydata()
    assert all(np.diff(np.asarray(powers, float)) >= 0)
    assert axes.child_axes and "CNY" in axes.child_axes[0].get_xlabel()


def test_chinese_names_are_drawn_in_english_figures_too(made: Path) -> None:
    with look(make_context(made, "en").texts, "回报 回報"):
        assert {"DreamproofSansSC", "DreamproofSansTC"} <= set(matplotlib.rcParams["font.family"])


def test_power_is_zero_where_no_exact_test_can_decide(made: Path) -> None:
    context = make_context(made, "en")
    with look(context.texts):
        curve = drawn(context, "power").axes[0].lines[0]
    found = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    assert found[2] == found[4] == 0.0 < found[5]  # three comparisons: 4 seeds per arm reach 0.029, needed is 0.017


def test_a_figure_is_laid_out_once_for_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = new_figure(2.0, 1.0)
    figure.subplots().plot([0, 1], [0, 1])
    engine, calls = figure.get_layout_engine(), []
    assert engine is not None
    monkeypatch.setattr(engine, "execute", calls.append)
    assert [path.suffix for path in save(figure, tmp_path, "one")] == [".png", ".pdf"]
    assert len(calls) == 1


def test_a_mean_is_drawn_where_all_seeds_have_values() -> None:
    short = Curve("return", np.array([0.0, 10.0]), np.array([5.0, 5.0]))
    long = Curve("return", np.array([0.0, 20.0]), np.array([1.0, 1.0]))
    band = arm_band([short, long, long])
    assert band.agent_steps.max() == 10.0 and set(np.round(band.mean, 6)) == {round(7 / 3, 6)}
    assert np.isfinite(band.low).all()
