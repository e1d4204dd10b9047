"""What would forbid a verdict is reported before any money is spent, with the smallest study that could decide."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dreamproof.cli.main import app
from dreamproof.report.prospects import FORBIDS, LIMITS, Prospects, find_prospects, late_changes
from dreamproof.runs.layout import Cell
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.money.spending import Forecast
from dreamproof.study.plan.open_study import OpenStudy, open_study
from dreamproof.testing.made_study import Plan, declaration, make_study
from dreamproof.testing.small_study import QUICK, declare, run_small

NOTHING_KNOWN = Forecast(None, None, None, None, 0, 0)
FOUR_ARMS: dict[str, Any] = {f"arm{number}": {"level": number} for number in range(4)}
SIX_ARMS: dict[str, Any] = {f"arm{number}": {"level": number} for number in range(6)}


def prospects(folder: Path, forecast: Forecast = NOTHING_KNOWN, **changes: Any) -> Prospects:
    return find_prospects(open_study(declare(folder, **changes)), forecast, 0.0, {})


def codes(found: Prospects, level: str = "forbids") -> list[str]:
    return [one.code for one in found.obstacles if one.level == level]


def test_a_study_that_can_decide_has_no_obstacle(tmp_path: Path) -> None:
    found = prospects(tmp_path, seeds=5)
    assert found.obstacles == [] and found.lines("CNY") == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"seeds": 1}, "one_seed"),
        ({"seeds": 3}, "too_few_seeds"),
        ({"seeds": 4, "arms": FOUR_ARMS}, "too_few_seeds"),
        ({"seeds": 5, "paired_seeds": True}, "too_few_seeds"),
        ({"seeds": 5, "arms": {"low": {}}}, "one_arm"),
        ({"seeds": 5, "conditions": []}, "no_evaluation"),
        ({"seeds": 5, "metric": {"name": "peak_return", "smallest_difference": 1.0}}, "peak_named"),
    ],
)
def test_what_would_forbid_a_verdict_is_named(changes: dict[str, Any], code: str, tmp_path: Path) -> None:
    assert codes(prospects(tmp_path, **changes)) == [code]


@pytest.mark.parametrize("changes", [{"seeds": 4}, {"seeds": 2, "maximum_seeds": 8}, {"seeds": 5, "arms": FOUR_ARMS}])
def test_enough_seeds_are_enough(changes: dict[str, Any], tmp_path: Path) -> None:
    assert codes(prospects(tmp_path, **changes)) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"seeds": 4, "constraint": {"name": "cost", "at_most": 5.0}}, "limit_seeds"),
        ({"seeds": 8, "constraint": {"name": "cost", "at_most": 0.0}}, "limit_zero"),
        ({"seeds": 8, "constraint": {"name": "cost", "at_most": -3.0}}, "limit_zero"),
    ],
)
def test_a_limit_that_cannot_be_shown_to_be_kept_is_named(changes: dict[str, Any], code: str, tmp_path: Path) -> None:
    found = prospects(tmp_path, **changes)
    assert codes(found, "limits") == [code] and codes(found) == []


def test_the_text_names_what_is_needed(tmp_path: Path) -> None:
    [obstacle] = prospects(tmp_path, seeds=3, arms=FOUR_ARMS).obstacles
    assert obstacle.text == (
        "3 seeds per arm and 3 comparisons: the smallest possible p is 0.100, needed is 0.017 or less; "
        "5 seeds per arm could decide"
    )


def test_a_first_analysis_that_cannot_decide_is_named_with_the_seeds_that_could(tmp_path: Path) -> None:
    [obstacle] = prospects(tmp_path, seeds=5, maximum_seeds=10, arms=SIX_ARMS).obstacles
    assert (obstacle.level, obstacle.code) == (LIMITS, "first_analysis")
    assert obstacle.text == (
        "the analysis at 5 seeds per arm cannot decide: p is at least 0.0079, and 5 comparisons in the first of "
        "2 analyses need 0.0062; seeds: 6 could"
    )
    again = prospects(tmp_path, seeds=6, maximum_seeds=10, arms=SIX_ARMS)
    assert again.obstacles == []


def test_a_proxy_that_is_named_ood_is_called_a_proxy(tmp_path: Path) -> None:
    conditions = ["id", {"name": "ood", "settings": {"hallu": 2}}, {"name": "mass", "kind": "genuine"}, "shift_2"]
    found = prospects(tmp_path, seeds=5, conditions=conditions)
    first, second = [one.text for one in found.obstacles]
    assert first.startswith("condition ood is a proxy: no claim about a real shift (OOD) follows from it although")
    assert second.startswith("condition shift_2 declares no kind") and codes(found) == []


def test_a_budget_that_ends_before_the_gap_is_named(tmp_path: Path) -> None:
    money = {"price_per_gpu_hour": 3.5, "currency": "CNY", "budget": 10.0}
    found = prospects(tmp_path, Forecast(36000.0, 36000.0, 36000.0, 35.0, 4, 4), seeds=5, money=money)
    [obstacle] = found.obstacles
    assert obstacle.text == (
        "the missing cells take about ¥35.00, and ¥10.00 of the budget are left, of which ¥0.32 are kept back for "
        "saving and reports"
    )


@pytest.mark.parametrize(
    ("left", "code"), [(35.34, None), (35.30, "budget"), (0.32, "budget"), (0.31, "budget_reached")]
)
def test_what_a_budget_pays_for_is_what_a_supervisor_starts(left: float, code: str | None, tmp_path: Path) -> None:
    money = {"price_per_gpu_hour": 3.5, "currency": "CNY", "budget": 100.0}
    opened = open_study(declare(tmp_path, seeds=5, money=money))
    found = find_prospects(opened, Forecast(36000.0, 36000.0, 36000.0, 35.0, 4, 4), 100.0 - left, {})
    assert [one.code for one in found.obstacles] == ([] if code is None else [code])


def test_small_amounts_of_money_are_shown_apart(tmp_path: Path) -> None:
    money = {"price_per_gpu_hour": 0.001, "currency": "CNY", "budget": 0.0100}
    opened = open_study(declare(tmp_path, seeds=5, money=money, backend={"slots": 1}))
    [obstacle] = find_prospects(opened, Forecast(36000.0, 36000.0, 36000.0, 0.0102, 4, 4), 0.0, {}).obstacles
    assert obstacle.text.startswith("the missing cells take about ¥0.0102, and ¥0.0100 of the budget are left")


def test_a_document_that_does_not_exist_is_named_before_the_night(tmp_path: Path) -> None:
    assert codes(prospects(tmp_path, seeds=5, report={"update": ["ppt.md"]}), "limits") == ["no_document"]
    (tmp_path / "ppt.md").write_text("")
    assert prospects(tmp_path, seeds=5, report={"update": ["ppt.md"]}).obstacles == []


def with_events(folder: Path, *rows: dict[str, Any], **changes: Any) -> OpenStudy:
    opened = open_study(declare(folder, seeds=5, **changes))
    state = StudyState()
    state.redeclare(opened.study)
    opened.state = state
    for number, row in enumerate(rows):
        state.apply({"n": number, "t": 1000.0 + number, **row})
    return opened


def test_cells_and_imported_runs_of_another_length_are_named(tmp_path: Path) -> None:
    proof = {"gradient_steps": 1, "parameter_hash": "h", "checkpoint": "c"}
    opened = with_events(
        tmp_path,
        {"event": "imported", "cell": "low/0", "source": "a.out", "of_agent_steps": 15},
        {"event": "train_proven", "cell": "low/1", "agent_steps": 40, **proof},
    )
    found = find_prospects(opened, NOTHING_KNOWN, 0.0, {})
    assert codes(found) == ["different_lengths"] and codes(found, "limits") == ["imported_lengths"]
    assert "cells have 20 to 40 agent steps" in found.obstacles[0].text
    assert "low/0 (15)" in found.obstacles[1].text


def test_the_smallest_study_has_a_price_and_counts_what_is_proven(tmp_path: Path) -> None:
    proof = {"gradient_steps": 1, "parameter_hash": "h", "checkpoint": "c", "agent_steps": 20}
    rows: list[dict[str, Any]] = []
    for cell in ("low/0", "low/1", "high/0"):
        rows.append({"event": "imported", "cell": cell, "source": cell, "wall_seconds": 3600.0, "agent_steps": 20})
        rows.append({"event": "train_proven", "cell": cell, **proof})
    opened = with_events(
        tmp_path, *rows, money={"price_per_gpu_hour": 2.0, "currency": "CNY"}, question="Is high better?"
    )
    smallest = find_prospects(opened, NOTHING_KNOWN, 0.0, {}).smallest
    assert smallest is not None
    assert (smallest.arms, smallest.seeds_per_arm, smallest.missing_cells) == (["low", "high"], 4, 5)
    assert smallest.wall_seconds == pytest.approx(5 * 3600) and smallest.money == pytest.approx(10.0)
    assert smallest.text("CNY") == (
        "low and high, 4 seeds each: 8 cells, 5 of them missing; 5 h 0 min of work, ¥10.00; "
        "more if the spread over seeds turns out large"
    )


def test_a_known_spread_sets_the_number_of_seeds(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan())
    opened = open_study(root)
    smallest = find_prospects(opened, NOTHING_KNOWN, 0.0, {}).smallest
    assert smallest is not None and smallest.spread_is_known and smallest.seeds_per_arm >= 4
    assert Cell(smallest.arms[0], 0) in opened.state.cells


def test_plan_and_its_json_say_it(tmp_path: Path) -> None:
    file = str(declare(tmp_path, seeds=3))
    shown = CliRunner().invoke(app, ["plan", file]).output
    assert "forbids     3 seeds per arm and 1 comparison: the smallest possible p is 0.100" in shown
    assert "smallest    low and high, 4 seeds each: 8 cells, 8 of them missing; price unknown" in shown
    facts = json.loads(CliRunner().invoke(app, ["plan", file, "--json"]).stdout)
    assert facts["obstacles"][0]["code"] == "too_few_seeds" and facts["smallest_study"]["seeds_per_arm"] == 4


def test_check_says_it_at_the_speed_that_it_measured(tmp_path: Path) -> None:
    file = str(declare(tmp_path, seeds=3))
    shown = CliRunner().invoke(app, ["check", file]).output
    assert "forbids     3 seeds per arm" in shown and "smallest    low and high, 4 seeds each" in shown


def test_arms_on_different_tasks_are_not_compared(tmp_path: Path) -> None:
    study = Path(__file__).parents[2] / "studies" / "mt30_data.yaml"
    (tmp_path / "data.yaml").write_text(study.read_text())
    found = find_prospects(open_study(tmp_path / "data.yaml"), NOTHING_KNOWN, 0.0, {})
    assert {one.code: one.level for one in found.obstacles}["different_tasks"] == LIMITS
    assert found.smallest is None and not any(one.level == FORBIDS for one in found.obstacles)


def test_arms_on_other_tasks_do_not_count_as_comparisons(tmp_path: Path) -> None:
    arms = {"a": {}, "b": {"risk": 1}} | {f"c{count}": {"task": "point_button", "risk": count} for count in range(9)}
    plan = Plan(seeds=4, conditions=(("id", "in_distribution"),), constraint=None, more={"arms": arms})
    (tmp_path / "mixed.yaml").write_text(yaml.safe_dump(declaration(plan).model_dump(mode="json")))
    found = find_prospects(open_study(tmp_path / "mixed.yaml"), NOTHING_KNOWN, 0.0, {})
    assert [one.code for one in found.obstacles] == ["different_tasks"]
    assert found.obstacles[0].text.startswith("not compared with a, on other tasks: c0, c1")
    assert found.smallest is not None and found.smallest.arms == ["a", "b"]


def with_results(place: Path, seeds: int, **changes: Any) -> Path:
    """A study file with more seeds than the results beside it were made with."""
    plan = Plan(seeds=seeds, curves=False, **changes)
    value = declaration(plan).model_dump(mode="json", exclude_none=True)
    file = place / "study.yaml"
    file.write_text(yaml.safe_dump({**value, "seeds": 5, "folder": str(make_study(place / "study", plan))}))
    return file


def test_seeds_declared_after_results_are_said_not_to_count(tmp_path: Path) -> None:
    opened = open_study(with_results(tmp_path, 3, conditions=(("id", "in_distribution"),), constraint=None))
    found = find_prospects(opened, NOTHING_KNOWN, 0.0, {})
    assert codes(found) == ["too_few_seeds"] and codes(found, LIMITS) == ["late_seeds"]
    few, late = (one.text for one in found.obstacles)
    assert few.startswith("3 seeds per arm and") and few.endswith("in a new study, 5 seeds per arm could decide")
    assert late == (
        "seeds 3-4: declared after results were known, so trained but not counted in the verdict; it rests on the "
        "3 seeds per arm declared before. For more seeds declare a new study with a folder of its own, or "
        "maximum_seeds before the first result"
    )
    assert late_changes(opened) == [late]
    assert found.smallest is not None and found.smallest.is_new
    assert found.smallest.missing_cells == found.smallest.cells
    assert found.smallest.text(None).startswith("in a new study: ")


def test_seeds_of_a_plan_declared_before_results_count(tmp_path: Path) -> None:
    more = {"maximum_seeds": 8}
    plan: dict[str, Any] = {"conditions": (("id", "in_distribution"),), "constraint": None, "more": more}
    opened = open_study(with_results(tmp_path, 3, **plan))
    found = find_prospects(opened, NOTHING_KNOWN, 0.0, {})
    assert found.obstacles == [] and late_changes(opened) == []


def test_a_maximum_declared_after_results_does_not_count(tmp_path: Path) -> None:
    file = with_results(tmp_path, 5, conditions=(("id", "in_distribution"),), constraint=None)
    file.write_text(file.read_text() + "maximum_seeds: 20\n")
    found = find_prospects(open_study(file), NOTHING_KNOWN, 0.0, {})
    assert [one.code for one in found.obstacles] == ["late_seeds"]
    assert found.obstacles[0].text.startswith("maximum_seeds 20: declared after results were known")


def test_run_warns_before_it_trains_seeds_that_do_not_count(tmp_path: Path) -> None:
    file = run_small(tmp_path)
    declare(tmp_path, seeds=3)
    shown = CliRunner().invoke(app, ["plan", str(file)]).output
    assert "limits      seed 2: declared after results were known" in shown
    ran = CliRunner().invoke(app, ["run", str(file), *QUICK])
    assert ran.exit_code == 0 and "warning: seed 2: declared after results were known" in ran.stderr
    assert "warning" not in CliRunner().invoke(app, ["run", str(file), *QUICK]).stderr
