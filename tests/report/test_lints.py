"""Every remark appears when its reason does, and only then forbids a verdict."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.report import make_context
from dreamproof.report.data import StudyEvidence
from dreamproof.report.lints import find_lints
from dreamproof.report.lints.lint import BLOCK, Lint
from dreamproof.report.loading import changes_after_start
from dreamproof.settings.study import Constraint
from dreamproof.stats.verdict import Kind
from dreamproof.testing.made_study import Plan, make_study


def codes(root: Path) -> dict[str, Lint]:
    return {lint.code: lint for lint in make_context(root, "en").analysis.lints}


def table(values: dict[str, list[float]], condition: str = "id", checkpoint: str = "final") -> str:
    return "".join(
        f"{arm},{seed},{condition},{checkpoint},score,{value}\n"
        for arm, row in values.items()
        for seed, value in enumerate(row)
    )


GOOD = {"a": [1.0, 1.2, 0.9, 1.1, 1.3], "b": [5.0, 5.2, 4.9, 5.1, 5.3], "c": [1.05, 1.15, 0.95, 1.25, 1.0]}
WHOLE = table(GOOD) + table(GOOD, "shifted")


def test_a_whole_study_has_no_forbidding_lint(imported_study: Callable[..., Path]) -> None:
    different = table(GOOD) + table({arm: [v - 0.3 for v in row] for arm, row in GOOD.items()}, "shifted")
    found = codes(imported_study(different))
    assert [code for code, lint in found.items() if lint.level == BLOCK] == []
    assert make_context(imported_study(different), "en").analysis.verdicts["b"].kind is Kind.BETTER


def test_identical_arms_are_blocked(imported_study: Callable[..., Path]) -> None:
    found = codes(imported_study(table(GOOD | {"c": GOOD["a"]}) + table(GOOD, "shifted")))
    assert found["identical_arms"].level == BLOCK


def test_one_identical_value_warns(imported_study: Callable[..., Path]) -> None:
    found = codes(imported_study(table(GOOD | {"c": [1.0, 1.15, 0.95, 1.25, 1.01]}) + table(GOOD, "shifted")))
    assert found["identical_values"].level == "warn"
    assert "identical_arms" not in found


def test_values_that_are_not_numbers_block(imported_study: Callable[..., Path]) -> None:
    root = imported_study(table(GOOD | {"b": [5.0, float("nan"), 4.9, 5.1, 5.3]}) + table(GOOD, "shifted"))
    assert codes(root)["not_finite"].cells == ("b/1@id",)
    assert make_context(root, "en").analysis.verdicts["b"].kind is Kind.CANNOT_DECIDE


def test_contradicting_rows_are_left_out_and_block(imported_study: Callable[..., Path]) -> None:
    root = imported_study(WHOLE + "b,0,id,final,score,99\n")
    assert "b/0 id score (final)" in str(codes(root)["conflicting_rows"].facts["rows"])
    assert make_context(root, "en").analysis.verdicts["b"].kind is Kind.CANNOT_DECIDE


def test_repeated_rows_that_agree_are_one_row(imported_study: Callable[..., Path]) -> None:
    root = imported_study(WHOLE + "b,0,id,final,score,5.0\n")
    assert "conflicting_rows" not in codes(root)
    assert make_context(root, "en").analysis.verdicts["b"].kind is Kind.BETTER


def test_a_peak_is_no_headline(imported_study: Callable[..., Path]) -> None:
    found = codes(imported_study(table({"a": GOOD["a"]}) + table({"b": GOOD["b"], "c": GOOD["c"]}, checkpoint="peak")))
    assert found["peak_only"].level == BLOCK


def test_different_training_lengths_block_the_arm(imported_study: Callable[..., Path]) -> None:
    cells = "\n".join(f"{arm},{seed},proven,{200 if arm == 'b' else 100}" for arm in "abc" for seed in range(5))
    root = imported_study(WHOLE, cells)
    assert codes(root)["different_steps"].arms == ("b",)
    verdicts = make_context(root, "en").analysis.verdicts
    assert verdicts["b"].kind is Kind.CANNOT_DECIDE


def test_lengths_within_the_declared_tolerance_are_equal(imported_study: Callable[..., Path]) -> None:
    cells = "\n".join(f"{arm},{seed},proven,{124 if arm == 'b' else 100}" for arm in "abc" for seed in range(5))
    root = imported_study(WHOLE, cells)
    declared = root / "study.yaml"
    assert "different_steps" in codes(root)
    declared.write_text(declared.read_text() + "agent_steps_tolerance: 24\n")
    assert "different_steps" not in codes(root)


def test_unfinished_and_running_cells_are_named_with_their_share(imported_study: Callable[..., Path]) -> None:
    cells = "a,0,running,40\n" + "\n".join(
        f"{arm},{seed},proven,100" for arm in "abc" for seed in range(5) if arm + str(seed) != "a0"
    )
    assert codes(imported_study(WHOLE, cells))["unfinished"].facts["cells"] == "a/0 (40%)"


def test_collapsed_seeds_are_flagged(imported_study: Callable[..., Path]) -> None:
    found = codes(imported_study(table(GOOD | {"b": [0.0, 9.9, 10.0, 10.1, 10.2]}) + table(GOOD, "shifted")))
    assert found["two_groups"].facts["arms"] == "b"


def test_a_final_value_far_below_its_peak_is_flagged(imported_study: Callable[..., Path]) -> None:
    peaks = table({"b": [50.0, 50, 50, 50, 50]}, checkpoint="peak")
    assert "collapsed" in codes(imported_study(WHOLE + peaks))


def edited(root: Path, change: Callable[[StudyEvidence], None]) -> dict[str, Lint]:
    evidence = make_context(root, "en").analysis.evidence
    change(evidence)
    return {lint.code: lint for lint in find_lints(evidence)}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return make_study(tmp_path / "study", Plan(curves=False, deaths=False))


def test_different_code_and_versions_warn(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        first = next(iter(evidence.cells.values()))
        first.commit, first.versions = "another", {"jax": "9.9"}

    found = edited(made, change)
    assert "another" in str(found["different_code"].facts["commits"])
    assert found["different_versions"].facts["versions"] == "jax 0.10.2, jax 9.9"


def test_settings_that_differ_within_an_arm_block(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        next(facts for cell, facts in evidence.cells.items() if cell.arm == "full").settings_hash = "other"

    assert edited(made, change)["different_settings"].arms == ("full",)


def test_settings_that_a_changed_default_made_differ_within_an_arm_block(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        cells = [facts for cell, facts in evidence.cells.items() if cell.arm == "full"]
        cells[0].resolved_hash, cells[1].resolved_hash = "one", "other"

    assert edited(made, change)["different_settings"].arms == ("full",)


def test_a_source_that_changed_between_cells_blocks_the_arms_that_used_it(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        cells = [facts for cell, facts in evidence.cells.items() if cell.arm == "full"]
        for facts in cells:
            facts.sources = {"runs/before": "one"}
        cells[1].sources = {"runs/before": "other"}

    found = edited(made, change)["different_sources"]
    assert found.level == BLOCK and found.arms == ("full",)
    assert found.facts == {"cells": "full/0, full/1", "sources": "runs/before"}


def test_a_limit_of_a_metric_that_nothing_measures_is_shown(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        limits = [Constraint(name="cost_slipp", at_most=5.0)]
        evidence.study = evidence.study.model_copy(update={"constraint": None, "constraints": limits})

    found = edited(made, change)["limit_unmeasured"]
    assert found.facts["limits"] == "cost_slipp" and "return" in str(found.facts["metrics"])


def test_accepted_changes_are_shown(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        row = {"t": 0.0, "what": "code", "flag": "--accept-changed-code", "changes": ["changed train.py"]}
        evidence.accepted = [row]

    assert edited(made, change)["changes_accepted"].facts["changes"] == "changed train.py"


def test_the_same_checkpoint_in_two_arms_blocks(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        cells = list(evidence.cells.values())
        cells[-1].parameter_hash = cells[0].parameter_hash

    assert "baseline/0 = full/4" in str(edited(made, change)["identical_checkpoints"].facts["cells"])


def test_reporting_on_the_layouts_of_the_selection_blocks(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        next(iter(evidence.evals.values())).layouts = "validation"

    assert edited(made, change)["selection_layouts"].level == BLOCK


def test_frozen_replicas_remedies_and_changed_declarations_are_reported(made: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        next(iter(evidence.cells.values())).frozen = "loss is not finite"
        evidence.remedies = [{"cells": ["full/0"], "action": "halve_micro_batch", "reason": "device_oom"}]
        evidence.changes = [{"changes": ["agent_steps: 100 → 200"]}]

    found = edited(made, change)
    assert found["replica_frozen"].facts["cells"] == "baseline/0"
    assert found["remedy_changed_arm"].facts["arms"] == "full"
    assert found["declaration_changed"].facts["changes"] == "agent_steps: 100 → 200"


def change_rows(*events: str) -> list[dict[str, Any]]:
    return [{"event": event, "n": number} for number, event in enumerate(events, start=1)]


@pytest.mark.parametrize("work", ["attempt_started", "foreign_run_found", "imported", "eval_proven"])
def test_only_changes_since_the_first_work_count(work: str) -> None:
    rows = change_rows("study_declared", "declaration_changed", "preflight_passed", work, "declaration_changed")
    assert [row["n"] for row in changes_after_start(rows)] == [5]
    assert changes_after_start(rows[:3]) == []


def test_seeds_added_by_plan_are_no_change_of_mind(tmp_path: Path) -> None:
    def change(evidence: StudyEvidence) -> None:
        evidence.changes = [{"changes": ["seeds: 5 items → 10 items"]}]

    planned = make_study(tmp_path / "planned", Plan(curves=False, more={"maximum_seeds": 20}))
    unplanned = make_study(tmp_path / "unplanned", Plan(curves=False))
    assert "declaration_changed" not in edited(planned, change)
    assert "declaration_changed" in edited(unplanned, change)


def test_an_arm_no_better_than_a_floor_is_reported(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(floors={"go_to_goal": {"return": 12.0}}, curves=False))
    lint = codes(root)["below_floor"]
    assert "baseline" in str(lint.facts["arms"]) and lint.facts["floor"] == "go_to_goal"


def test_a_lower_is_better_metric_turns_floors_and_verdicts_round(imported_study: Callable[..., Path]) -> None:
    root = imported_study(WHOLE, direction="lower")
    assert make_context(root, "en").analysis.verdicts["b"].kind in (Kind.WORSE, Kind.CANNOT_DECIDE)
    different = table(GOOD) + table({arm: [v - 0.3 for v in row] for arm, row in GOOD.items()}, "shifted")
    assert make_context(imported_study(different, direction="lower"), "en").analysis.verdicts["b"].kind is Kind.WORSE


@pytest.mark.parametrize(("seeds", "hopeless"), [("3", True), ("4", True), ("5", False)])
def test_a_plan_that_cannot_decide_is_reported(imported_study: Callable[..., Path], seeds: str, hopeless: bool) -> None:
    rows = table({arm: values[: int(seeds)] for arm, values in GOOD.items()})
    assert ("hopeless_plan" in codes(imported_study(rows, seeds=seeds))) == hopeless


def test_the_evaluators_record_of_the_kind_of_a_shift_counts(tmp_path: Path) -> None:
    plan = Plan(more={"conditions": ["id", "hallu2", "mass_x2"]}, curves=False)
    root = make_study(tmp_path / "study", plan)
    assert "kind_unknown" not in codes(root)  # the evaluator recorded it
    assert "proxy" in codes(root)


def test_an_unknown_kind_of_shift_is_reported(imported_study: Callable[..., Path]) -> None:
    root = imported_study(WHOLE)
    assert "kind_unknown" not in codes(root)
    declared = (root / "study.yaml").read_text()
    (root / "study.yaml").write_text(declared.replace("{name: shifted, kind: genuine}", "shifted"))
    assert codes(root)["kind_unknown"].facts == {"condition": "shifted"}


def test_a_condition_that_nobody_evaluated_yet_may_be_of_any_kind(tmp_path: Path) -> None:
    gone = tuple((f"{arm}/{seed}", "mass_x2") for arm in ("baseline", "full") for seed in range(5))
    plan = Plan(arms=("baseline", "full"), missing_evals=gone, more={"conditions": ["id", "hallu2", "mass_x2"]})
    assert "kind_unknown" not in codes(make_study(tmp_path / "study", plan))


def test_seeds_have_one_mean_each_whatever_the_episodes(tmp_path: Path) -> None:
    def uneven(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
        return {"return": np.full(10 + 5 * seed, float(seed)), "cost": np.zeros(10 + 5 * seed)}

    root = make_study(tmp_path / "study", Plan(draw=uneven, curves=False))
    summary = next(iter(make_context(root, "en").analysis.summaries.values()))
    assert summary.seeds == 5
