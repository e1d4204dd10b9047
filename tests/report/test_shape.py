"""What the shape of seeds allows to be said: ceilings, two groups, directions, shared seeds."""

from collections.abc import Callable
from pathlib import Path

from dreamproof.report import make_context
from dreamproof.report.data import Group
from dreamproof.report.lints.lint import BLOCK
from dreamproof.report.prose import verdict_sentence
from dreamproof.stats.verdict import Kind, Why

Study = Callable[..., Path]


def rows(arms: dict[str, list[float]], metric: str = "score", condition: str = "id") -> str:
    return "".join(
        f"{arm},{seed},{condition},final,{metric},{value}\n"
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    )


ORDINARY = {"a": [1.0, 1.2, 0.9, 1.1, 1.05], "b": [5.0, 5.2, 4.9, 5.1, 5.05], "c": [1.1, 1.0, 1.05, 0.95, 1.15]}


def test_two_arms_at_the_ceiling_are_equivalent_and_a_remark_says_why(imported_study: Study) -> None:
    ceiling = {"a": [1.0] * 5, "b": [1.0] * 5, "c": [0.4, 0.5, 0.3, 0.2, 0.6]}
    root = imported_study(rows(ceiling) + rows(ORDINARY, condition="shifted"))
    analysis = make_context(root, "en").analysis
    assert analysis.verdicts["b"].kind is Kind.EQUIVALENT
    codes = {lint.code: lint for lint in analysis.lints}
    assert "identical_arms" not in codes and codes["constant_arms"].facts["arms"] == "a, b"


def test_arms_that_agree_seed_by_seed_are_still_blocked(imported_study: Study) -> None:
    same = {**ORDINARY, "b": ORDINARY["a"]}
    root = imported_study(rows(same) + rows(ORDINARY, condition="shifted"))
    lints = make_context(root, "en").analysis.lints
    assert any(lint.code == "identical_arms" and lint.level == BLOCK for lint in lints)


def test_an_improvement_in_cost_is_a_lower_cost(imported_study: Study) -> None:
    cost = {"a": [9.0, 8.0, 9.5, 8.5, 9.2], "b": [1.0, 2.0, 1.5, 0.5, 1.2], "c": [20.0, 21.0, 19.0, 22.0, 20.5]}
    both = rows(ORDINARY) + rows(ORDINARY, condition="shifted") + rows(cost, metric="damage")
    root = imported_study(both, constraint="{name: damage, at_most: 5}")
    comparisons = make_context(root, "en").analysis.comparisons
    better, worse = (comparisons[Group(arm, "id", "damage")] for arm in "bc")
    assert (better.improvement, worse.improvement) == (1.0, 0.0)
    assert better.improvement_interval is not None and better.improvement_interval.low < 0.7


def test_seeds_in_two_groups_are_not_decided_by_the_mean_and_the_report_says_so(imported_study: Study) -> None:
    grouped = {
        "a": [0.1, 0.4, 0.2, 0.5, 0.3, 0.6, 0.2, 0.45],
        "b": [9.0, 9.2, 9.1, 9.3, 8.9, 9.0, 9.1, 0.0],
        "c": [0.2, 0.35, 0.25, 0.55, 0.3, 0.5, 0.2, 0.4],
    }
    root = imported_study(rows(grouped) + rows(grouped, condition="shifted"), seeds="8")
    context = make_context(root, "en")
    verdict = context.analysis.verdicts["b"]
    assert (verdict.kind, verdict.why) == (Kind.CANNOT_DECIDE, Why.SHAPE)
    assert "cannot decide by the mean" in verdict_sentence(context, "b")


def test_a_condition_that_repeats_another_counts_once_over_all_shifts(imported_study: Study) -> None:
    root = imported_study(rows(ORDINARY) + rows(ORDINARY, condition="shifted") + rows(ORDINARY, condition="again"))
    text = (root / "study.yaml").read_text()
    (root / "study.yaml").write_text(text.replace("kind: genuine}]", "kind: genuine}, {name: again, kind: genuine}]"))
    assert make_context(root, "en").analysis.shifted == {}
