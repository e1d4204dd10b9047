"""Plans are kept: seeds added after results decide nothing, early stops are corrected, pairs are declared."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dreamproof.report import make_context, next_seeds
from dreamproof.report.context import ReportContext
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.prose import verdict_sentence
from dreamproof.settings.study import Study
from dreamproof.stats.sequential import make_look_plan, shrinkage_after_stopping
from dreamproof.stats.verdict import Kind, Question, judge
from dreamproof.study.ledger import events
from dreamproof.study.ledger.chain import Ledger
from dreamproof.study.money.spending import count_money
from dreamproof.testing.made_study import Plan, declaration, make_study


def amend(root: Path, plan: Plan, **changes: Any) -> None:
    old = declaration(plan)
    new = Study.model_validate(old.model_dump(mode="json") | changes)
    ledger = Ledger(root / "ledger.jsonl")
    changed = events.DeclarationChanged(
        old.hash(), new.hash(), [f"{name}: changed" for name in changes], new.model_dump()
    )
    ledger.append(changed, durable=False)
    ledger.close()


def test_a_maximum_declared_after_the_results_gives_no_second_look(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "u_only"), curves=False)
    root = make_study(tmp_path / "study", plan)
    amend(root, plan, seeds=list(range(10)), maximum_seeds=20)
    analysis = make_context(root, "en").analysis
    assert analysis.look_plan.looks == (5,)
    assert "plan_used_up" in [lint.code for lint in analysis.lints]
    assert next_seeds(root).reason != "continue"


def test_an_undecided_fixed_plan_asks_for_a_new_study(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(arms=("baseline", "u_only"), curves=False)), "en")
    assert any("A new study of the 2 arms with" in step and "fresh seeds each" in step for step in next_steps(context))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "unknown for `cert_only` and `full`"),
        ("zh-Hans", "`cert_only` 和 `full` 的 seed 之间的波动未知"),
        ("zh-Hant", "`cert_only` 和 `full` 的 seed 之間的波動未知"),
    ],
)
def test_arms_without_values_are_named_where_their_spread_is_needed(tmp_path: Path, language: str, text: str) -> None:
    missing = tuple(f"{arm}/{seed}" for arm in ("cert_only", "full") for seed in range(5))
    arms = ("baseline", "cert_only", "full")
    context = make_context(make_study(tmp_path / "study", Plan(arms=arms, missing=missing, curves=False)), language)
    assert any(text in step for step in next_steps(context))


def test_a_verdict_at_an_early_look_is_marked_and_corrected(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "full"), curves=False, more={"maximum_seeds": 20})
    context = make_context(make_study(tmp_path / "study", plan), "en")
    verdict = context.analysis.verdicts["full"]
    assert verdict.adjusted_difference is not None and 0 < verdict.adjusted_difference < 4.5
    assert "Decided at 5 of at most 20 seeds." in verdict_sentence(context, "full")


def test_the_correction_for_early_stopping_halves_the_bias() -> None:
    assert shrinkage_after_stopping(3.0, 3.0) == 0.0
    assert shrinkage_after_stopping(9.0, 2.4) == pytest.approx(1.0, abs=1e-6)
    assert shrinkage_after_stopping(np.inf, 2.4) == 1.0
    generator, question = np.random.default_rng(3), Question(tuple(range(20)), make_look_plan(5, 20), 0.1)
    plain, adjusted = [], []
    for _ in range(300):
        reference, arm = generator.normal(0, 1, 20), generator.normal(1, 1, 20)
        found = judge(question, dict(enumerate(reference)), {"b": dict(enumerate(arm))})["b"]
        if found.kind is Kind.BETTER and found.seeds == 5:
            plain.append(float(arm[:5].mean() - reference[:5].mean()))
            adjusted.append(found.adjusted_difference or 0.0)
    assert np.mean(plain) > 1.6
    assert abs(np.median(adjusted) - 1) < 0.5 * abs(np.median(plain) - 1)


def test_paired_seeds_are_declared_and_decide(tmp_path: Path) -> None:
    def shared(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
        level = 10.0 * seed + (2.0 if arm == "full" else 0.0)
        return {"return": generator.normal(level, 0.2, 10), "cost": np.zeros(10)}

    plan = Plan(arms=("baseline", "full"), seeds=7, draw=shared, curves=False)
    assert make_context(make_study(tmp_path / "alone", plan), "en").analysis.verdicts["full"].kind is Kind.CANNOT_DECIDE
    paired = Plan(arms=("baseline", "full"), seeds=7, draw=shared, curves=False, more={"paired_seeds": True})
    context = make_context(make_study(tmp_path / "paired", paired), "en")
    assert context.analysis.verdicts["full"].kind is Kind.BETTER
    assert context.analysis.adjusted[context.analysis.primary("full")] == pytest.approx(2 / 2**7)


def test_a_study_without_the_new_keys_keeps_its_name() -> None:
    plain = declaration(Plan())
    assert plain.hash() == Study.model_validate(plain.model_dump() | {"paired_seeds": False}).hash()
    assert plain.hash() != Study.model_validate(plain.model_dump() | {"paired_seeds": True}).hash()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": [0, 1, 3, 4, 5]}, "seeds: [0, 1, 2, 3, 4] → [0, 1, 3, 4, 5]"),
        ({"seeds": [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]}, "seeds: "),
        ({"seeds": [0, 1, 2, 3]}, "seeds: "),
        ({"paired_seeds": True}, "paired_seeds: False → True"),
        ({"reference_arm": "u_only"}, "reference_arm: "),
        ({"arms": declaration(Plan(arms=("baseline", "full"))).model_dump()["arms"]}, "arm u_only: removed"),
        ({"metric": {"name": "return", "smallest_difference": 9.0}}, "metric.smallest_difference: "),
    ],
)
def test_a_change_of_the_analysis_after_results_forbids_every_verdict(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    plan = Plan(arms=("baseline", "u_only", "full"), curves=False, more={"maximum_seeds": 20})
    root = make_study(tmp_path / "study", plan)
    assert make_context(root, "en").analysis.verdicts["full"].kind is Kind.BETTER
    amend(root, plan, **change)
    analysis = make_context(root, "en").analysis
    assert all(verdict.kind is Kind.CANNOT_DECIDE for verdict in analysis.verdicts.values())
    [lint] = [lint for lint in analysis.lints if lint.code == "analysis_changed"]
    assert said in str(lint.facts["changes"]) and not analysis.evidence.declared_before_runs


def test_a_limit_that_was_raised_after_results_is_not_shown_to_be_kept(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "full"), curves=False, more={"constraint": {"name": "cost", "at_most": 500.0}})
    root = make_study(tmp_path / "study", plan)
    assert make_context(root, "en").analysis.constrained["full"].keeps
    amend(root, plan, constraint={"name": "cost", "at_most": 900.0})
    assert not make_context(root, "en").analysis.constrained["full"].keeps


def test_seeds_of_planned_batches_are_no_change_unless_their_order_changes_later(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "full"), curves=False, more={"maximum_seeds": 20})
    root = make_study(tmp_path / "study", plan)
    amend(root, plan, seeds=list(range(10)))
    assert make_context(root, "en").analysis.evidence.analysis_changes == []
    amend(root, plan, seeds=[0, 1, 2, 3, 4, 7, 5, 6, 8, 9])
    assert len(make_context(root, "en").analysis.evidence.analysis_changes) == 1


def test_what_a_later_batch_lacks_does_not_take_back_a_verdict(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "full"), curves=False, more={"maximum_seeds": 20})
    root = make_study(tmp_path / "study", plan)
    amend(root, plan, seeds=list(range(10)))
    context = make_context(root, "en")
    assert "incomplete_training" in [lint.code for lint in context.analysis.lints]
    verdict = context.analysis.verdicts["full"]
    assert verdict.kind is Kind.BETTER and verdict.seeds == 5 and verdict.blocked_by == ()


def test_a_lint_on_one_arm_does_not_end_the_plan_of_another(tmp_path: Path) -> None:
    def same(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, Any]:
        level = 5.0 * seed + {"open": 1.0, "baseline": -1.0}.get(arm, 0.0)
        return {"return": np.full(10, level), "cost": np.zeros(10)}

    plan = Plan(arms=("baseline", "twin", "other", "open"), curves=False, draw=same, more={"maximum_seeds": 20})
    root = make_study(tmp_path / "study", plan)
    analysis = make_context(root, "en").analysis
    assert {lint.arms for lint in analysis.lints if lint.level == "block"} == {("twin", "other")}
    assert next_seeds(root).reason == "continue"


MONEY = {"price_per_gpu_hour": 3.5, "currency": "CNY"}
SEQUENTIAL = {"maximum_seeds": 20, "backend": {"slots": 3}, "constraint": None}


def sequential(root: Path, arms: tuple[str, ...] = ("baseline", "u_only", "full"), **more: Any) -> ReportContext:
    plan = Plan(arms=arms, curves=False, trails=False, deaths=False, more=SEQUENTIAL | {"money": MONEY} | more)
    return make_context(make_study(root, plan), "en")


def test_a_further_batch_has_one_price_that_of_all_arms_with_idle_slots(tmp_path: Path) -> None:
    context = sequential(tmp_path / "study", metric={"name": "return", "smallest_difference": 1.5})
    analysis, state = context.analysis, context.analysis.evidence.state
    assert state is not None and state.study is not None and analysis.next is not None
    assert [arm for arm in analysis.treatments if analysis.undecided(arm)] == ["u_only"]
    assert analysis.next.seeds_per_arm == 10 and analysis.seeds_planned == 9
    first, second, *_ = next_steps(context)
    price = context.price(analysis.next.price)
    assert f"at 10 seeds per arm: 15 cells, 0.54 GPU hours, {price} (" in first
    assert "It trains all 3 arms" in first and "decided arms keep their verdict" in first
    assert "9 seeds per arm. The planned analysis at 10 seeds has them: " in second
    assert f"5 more in all 3 arms = 15 cells, 0.54 GPU hours, {price}." in second
    state.redeclare(state.study.model_copy(update={"seeds": list(range(10))}))
    assert state.last_moment is not None
    forecast = count_money(state, state.last_moment).forecast
    assert forecast.money == pytest.approx(analysis.next.price) and forecast.cells == 15


def test_where_no_arm_is_decided_nothing_is_said_of_decided_arms(tmp_path: Path) -> None:
    context = sequential(tmp_path / "study", arms=("baseline", "u_only"))
    assert "decided arms" not in " ".join(next_steps(context))


@pytest.mark.parametrize(("share", "reason"), [(0.999, "budget"), (1.001, "continue")])
def test_a_batch_is_added_only_where_its_price_and_what_is_kept_back_are_left(
    tmp_path: Path, share: float, reason: str
) -> None:
    metric = {"name": "return", "smallest_difference": 1.5}
    analysis = sequential(tmp_path / "free", metric=metric).analysis
    assert analysis.next is not None and analysis.next.price is not None
    needed, kept = analysis.spending.spent + analysis.next.price, 3 * 82 * 3.5 / 3600
    context = sequential(tmp_path / "study", metric=metric, money={**MONEY, "budget": needed + share * kept})
    found, steps = context.analysis.next, "\n".join(next_steps(context))
    assert found is not None and found.reason == reason
    clause = "does not cover these ¥1.9" if reason == "budget" else f"covers these ¥{analysis.next.price:.4f}"
    left = analysis.next.price + (share - 1) * kept
    assert "Continue to the next declared analysis, at 10 seeds per arm: " in steps
    assert f"The budget {clause}: ¥{left:.4f} are left for work" in steps


def test_missing_cells_have_the_price_that_plan_gives(tmp_path: Path) -> None:
    missing = ("u_only/3", "u_only/4")
    plan = Plan(arms=("baseline", "u_only"), missing=missing, curves=False, more=SEQUENTIAL | {"money": MONEY})
    context = make_context(make_study(tmp_path / "study", plan), "en")
    state = context.analysis.evidence.state
    assert state is not None and state.last_moment is not None
    forecast = count_money(state, state.last_moment).forecast
    assert forecast.billed_seconds is not None and forecast.busy_seconds is not None
    assert forecast.billed_seconds > 1.2 * forecast.busy_seconds
    train, evaluate, *_ = next_steps(context)
    assert f"GPU hours, {context.price(forecast.money)} (" in train
    assert evaluate == "Evaluate the 6 missing eval cells: part of the hours and the price above."
