"""Next steps and their price, shared by all documents."""

import numpy as np

from dreamproof.base.text import money_text, two_digits
from dreamproof.report.analysis import Analysis
from dreamproof.report.context import ReportContext
from dreamproof.report.data import Group
from dreamproof.report.limits import Constrained
from dreamproof.report.lints.lint import primary
from dreamproof.report.prose import reference_breaks_limit, safer_elsewhere, seeds_price
from dreamproof.report.rounding import digits_apart, exact_text
from dreamproof.report.spending import seconds_of_seeds
from dreamproof.stats.describe import finite_values
from dreamproof.stats.limits import seeds_to_show
from dreamproof.stats.sequential import NextBatch
from dreamproof.stats.shape import ENOUGH_SEEDS
from dreamproof.stats.verdict import Kind, Why

LOOK_FIRST = (
    *("conflicting_rows", "not_finite", "never_updated", "identical_checkpoints", "identical_arms"),
    *("peak_named", "checkpoint_unknown"),
)

# States of cells that `run` leaves out until it is asked.
HELD = ("stopped", "not_saved")


def next_steps(context: ReportContext) -> list[str]:
    """Steps in order: resolve suspicious results, fill the gap, add seeds or stop spending, or act on the verdict."""
    texts, analysis = context.texts, context.analysis
    if analysis.evidence.runs_absent:
        return [texts("step.put_runs_back")]
    codes = [lint.code for lint in analysis.lints]
    steps = [texts(f"step.{code}") for code in LOOK_FIRST if code in codes]
    if analysis.spending.not_saved_cells:
        steps.append(texts("step.not_saved", count=analysis.spending.not_saved_cells))
    steps += _repair(context) + _gap(context)
    if any(_seeds_could_decide(context, arm) for arm in analysis.treatments if analysis.undecided(arm)):
        steps += _seeds(context)
    together: dict[tuple[str, str], list[str]] = {}
    for arm in analysis.treatments:
        if not analysis.undecided(arm):
            together.setdefault(_action(context, arm), []).append(arm)
    for (action, conditions), arms in together.items():
        action = "take_several" if action == "take" and len(arms) > 1 else action
        named = context.listing([f"`{arm}`" for arm in arms])
        steps.append(texts(f"step.{action}", arms=named, conditions=conditions, reference=context.reference))
        steps += [step for arm in arms if action.endswith("_unshown") for step in _limit_seeds(context, arm)]
    if analysis.treatments:
        return steps or [texts("step.nothing")]
    return steps or [texts("step.different_tasks" if analysis.arms_on_other_tasks else "step.one_arm")]


def _seeds_could_decide(context: ReportContext, arm: str) -> bool:
    """Whether seeds are what an undecided arm lacks; not if its values are no result or equal the reference's."""
    verdict, condition = context.analysis.verdicts[arm], context.analysis.evidence.primary_condition
    same = [lint for lint in context.analysis.lints if lint.code == "identical_arms" and arm in lint.arms]
    identical = any(lint.facts.get("condition") == condition for lint in same)
    unexplained = any(code in verdict.blocked_by for code in ("peak_named", "checkpoint_unknown"))
    return verdict.why is not Why.BLOCKED and not identical and not unexplained


def _action(context: ReportContext, arm: str) -> tuple[str, str]:
    """What follows from the verdict on one arm and from what is shown about the limit, and under which conditions."""
    analysis = context.analysis
    kind, found = analysis.verdicts[arm].kind, analysis.constrained.get(arm)
    keeps = found is not None and found.keeps
    if kind is Kind.BETTER:
        if not analysis.evidence.study.limits or keeps:
            return "take", ""
        return "take_broken" if found is not None and found.breaks else "take_unshown", ""
    if kind is Kind.EQUIVALENT:
        return _equivalent_action(context, found), ""
    safer = dict.fromkeys(condition for _, condition in safer_elsewhere(context, arm))
    elsewhere = context.listing([context.condition(name) for name in safer])
    if keeps and reference_breaks_limit(analysis):
        return "drop_or_keep", ""
    return ("drop_or_keep_elsewhere", elsewhere) if elsewhere else ("drop", "")


def _equivalent_action(context: ReportContext, found: Constrained | None) -> str:
    """An equivalent arm is a free choice only where the limit does not choose."""
    analysis = context.analysis
    if not analysis.evidence.study.limits:
        return "equivalent"
    if found is None or not found.keeps:
        return "equivalent_broken" if found is not None and found.breaks else "equivalent_unshown"
    reference = analysis.constrained.get(context.reference)
    return "equivalent" if reference is not None and reference.keeps else "equivalent_keeps"


def _limit_seeds(context: ReportContext, arm: str) -> list[str]:
    """How many seeds would show whether an arm keeps the limit, if further ones are like those seen."""
    analysis = context.analysis
    found, study = analysis.constrained.get(arm), analysis.evidence.study
    if found is None or found.verdict.bounds is None:
        return []
    known = analysis.evidence.values[Group(arm, found.condition, found.metric, found.checkpoint)]
    values = np.array([known[seed] for seed in study.seeds[: found.verdict.seeds] if seed in known])
    needed = seeds_to_show(values, found.limit, found.verdict.level)
    if needed is None:
        return []
    planned = max(analysis.look_plan.maximum, len(study.seeds)) >= needed
    spending, each = analysis.spending, analysis.spending.seconds_per_fresh_cell
    seconds = None if each is None else each * needed
    if planned:
        seconds = seconds_of_seeds(analysis.evidence, spending, max(0, needed - len(study.seeds)))
    price = context.price(None if seconds is None else spending.money(seconds))
    return [context.texts(f"step.limit_seeds{'' if planned else '_new'}", arm=arm, needed=needed, price=price)]


def _repair(context: ReportContext) -> list[str]:
    """The files that keep cells in quarantine, and checkpoints that are gone, by the first of them."""
    cells, steps = context.analysis.evidence.cells.values(), []
    blocked = [(facts.cell, facts.reason) for facts in cells if facts.cause == "quarantined"]
    lost = [(facts.cell, facts.lost) for facts in cells if facts.lost]
    for key, found in (("step.repair", blocked), ("step.lost", lost)):
        if found:
            steps.append(context.texts(key, count=len(found), cell=found[0][0], reason=found[0][1]))
    return steps


def _gap(context: ReportContext) -> list[str]:
    texts, spending = context.texts, context.analysis.spending
    steps = []
    if spending.missing_cells:
        seconds = spending.completion_seconds
        price = context.price(None if seconds is None else spending.money(seconds))
        key = "step.train_gap" if seconds is not None else "step.train_gap_unpriced"
        cells = context.analysis.evidence.cells.values()
        held = any(facts.state in HELD and facts.cause != "quarantined" for facts in cells)
        again, hours = " --retry-stopped" if held else "", context.planned_hours(seconds)
        steps.append(texts(key, cells=spending.missing_cells, hours=hours, price=price, again=again))
    if spending.missing_evals:
        seconds = spending.completion_seconds if spending.seconds_per_eval is not None else None
        key = "step.eval_gap" if seconds is not None else "step.eval_gap_unpriced"
        key = "step.eval_gap_included" if seconds is not None and spending.missing_cells else key
        price = context.price(None if seconds is None else spending.money(seconds))
        steps.append(texts(key, evals=spending.missing_evals, hours=context.planned_hours(seconds), price=price))
    seconds, left = spending.completion_seconds, spending.money_left
    if seconds and left is not None and spending.money(seconds) > left:
        steps.append(texts("step.gap_unaffordable", **_budget(context, spending.money(seconds), left)))
    return steps


def _budget(context: ReportContext, amount: float, left: float) -> dict[str, object]:
    """An amount that is to be paid and what the budget leaves for it, in digits that show which is larger."""
    currency = context.analysis.spending.currency
    digits = digits_apart(max(amount, left), min(amount, left), 2)
    is_clear = (float(two_digits(amount).replace(",", "")) > left) == (amount > left)
    price = context.price(amount) if is_clear else money_text(amount, currency, digits)
    return {"price": price, "left": money_text(left, currency, digits)}


def _plan_is_too_small(analysis: Analysis) -> bool:
    """Whether no planned look has the seeds that are needed; missing cells may still close a plan that has them."""
    needed, have, maximum = analysis.seeds_planned, len(analysis.evidence.study.seeds), analysis.look_plan.maximum
    gap = analysis.spending.missing_cells + analysis.spending.missing_evals
    if needed is None or (gap and needed <= have):
        return False
    return maximum <= have or needed > maximum


def _seeds(context: ReportContext) -> list[str]:
    """Seeds that undecided arms need: by their shape, or by the declared difference."""
    analysis = context.analysis
    shaped = [arm for arm, verdict in analysis.verdicts.items() if verdict.why is Why.SHAPE]
    steps = []
    # What was declared comes before what would be a new study.
    batch = analysis.next
    if len(analysis.look_plan.looks) > 1 and batch is not None and (batch.add_seeds or batch.reason == "budget"):
        steps.append(_next_look(context, batch))
        if not batch.add_seeds and batch.price is not None and batch.money_left is not None:
            steps.append(context.texts("step.unaffordable", **_budget(context, batch.price, batch.money_left)))
    if shaped:
        steps += _seeds_by_shape(context, shaped)
    if analysis.open_arms:
        steps += _seeds_by_power(context)
    return steps


def _next_look(context: ReportContext, batch: NextBatch) -> str:
    """The next planned look: its cells in all arms and their price, and that decided arms are trained too."""
    texts, analysis = context.texts, context.analysis
    arms, have = len(analysis.evidence.arms), len(analysis.evidence.study.seeds)
    look = next(seeds for seeds in analysis.look_plan.looks if seeds > have)
    more = look - have
    hours = context.planned_hours(seconds_of_seeds(analysis.evidence, analysis.spending, more))
    facts = {"cells": more * arms, "hours": hours, "price": context.price(batch.price)}
    step = texts("step.sequential", seeds=look, **facts)
    if all(analysis.undecided(arm) for arm in analysis.treatments):
        return step
    return step + texts("list.space") + texts("step.sequential_decided", arms=arms)


def _seeds_by_shape(context: ReportContext, arms: list[str]) -> list[str]:
    """Seeds from which on means of such arms can be compared, with the price of a new study."""
    per_cell, cells = context.analysis.spending.price_per_cell, ENOUGH_SEEDS * (1 + len(arms))
    price = context.price(None if per_cell is None else per_cell * cells)
    named = context.listing([f"`{arm}`" for arm in arms])
    return [context.texts("step.shape", arms=named, seeds=ENOUGH_SEEDS, cells=cells, price=price)]


def _unplanned(context: ReportContext) -> str:
    """Why no number of seeds can be planned: arms without a known spread, or else the open arms without a plan."""
    analysis = context.analysis
    plans = {arm: analysis.plans.get(arm) for arm in analysis.open_arms}
    open_arms = [arm for arm, plan in plans.items() if plan is None or plan.seeds_per_arm is None]
    compared = [context.reference, *open_arms]
    few = [arm for arm in compared if len(finite_values(list(primary(analysis.evidence, arm).values()))) < 2]
    if few and set(few) == {context.reference, *analysis.treatments}:
        return context.texts("step.spread_unknown")
    key = "step.spread_unknown_of" if few else "step.no_plan"
    return context.texts(key, arms=context.both([f"`{arm}`" for arm in few or open_arms]))


def _seeds_by_power(context: ReportContext) -> list[str]:
    """Seeds that the declared difference needs, against money and the declared maximum."""
    texts, analysis = context.texts, context.analysis
    used_up = _plan_is_too_small(analysis)
    found = seeds_price(context, fresh=used_up)
    if found is None:
        return [_unplanned(context)]
    facts = {**found, "margin": exact_text(analysis.evidence.study.metric.smallest_difference)}
    if found["count"] == 0:
        return [texts("step.enough_seeds", **facts)]
    if used_up:
        steps = [texts("step.new_study", seeds=analysis.look_plan.maximum, **facts)]
    else:
        steps = [texts("step.more_seeds", **facts)]
    left, amount = analysis.spending.money_left, found["amount"]
    if left is not None and isinstance(amount, float):
        affordable = amount <= left
        key = "step.affordable" if affordable else "step.unaffordable"
        steps.append(texts(key, **_budget(context, amount, left)))
    return steps
