"""Next steps and their price, shared by all documents."""

from dreamproof.report.prose import ReportContext, reference_breaks_limit, safer_elsewhere, seeds_price
from dreamproof.stats.verdict import Kind

LOOK_FIRST = ("conflicting_rows", "not_finite", "never_updated", "identical_checkpoints", "identical_arms")


def next_steps(context: ReportContext) -> list[str]:
    """Steps in order: resolve suspicious results, fill the gap, add seeds or stop spending, or act on the verdict."""
    texts, analysis = context.texts, context.analysis
    codes = [lint.code for lint in analysis.lints]
    steps = [texts(f"step.{code}") for code in LOOK_FIRST if code in codes]
    if analysis.spending.not_saved_cells:
        steps.append(texts("step.not_saved", count=analysis.spending.not_saved_cells))
    steps += _gap(context)
    undecided = [arm for arm in analysis.treatments if analysis.undecided(arm)]
    if undecided:
        steps += _seeds(context)
    for arm in analysis.treatments:
        kind = analysis.verdicts[arm].kind
        if kind is Kind.BETTER:
            found = analysis.constrained.get(arm)
            steps.append(texts("step.take" if found is None or found.kept else "step.take_broken", arm=arm))
        elif kind is Kind.WORSE:
            found = analysis.constrained.get(arm)
            safer = found is not None and found.kept and reference_breaks_limit(context)
            elsewhere = context.listing([context.condition(name) for name in safer_elsewhere(context, arm)])
            key = "drop_or_keep" if safer else "drop_or_keep_elsewhere" if elsewhere else "drop"
            facts = {"arm": arm, "reference": context.reference, "conditions": elsewhere}
            steps.append(texts(f"step.{key}", **facts))
        elif kind is Kind.EQUIVALENT:
            steps.append(texts("step.equivalent", arm=arm, reference=context.reference))
    return steps or [texts("step.nothing")]


def _gap(context: ReportContext) -> list[str]:
    texts, spending = context.texts, context.analysis.spending
    steps = []
    if spending.missing_cells:
        seconds = spending.completion_seconds
        price = context.money(None if seconds is None else spending.money(seconds))
        key = "step.train_gap" if seconds is not None else "step.train_gap_unpriced"
        steps.append(texts(key, cells=spending.missing_cells, hours=context.hours(seconds), price=price))
    if spending.missing_evals:
        seconds = None if spending.seconds_per_eval is None else spending.missing_evals * spending.seconds_per_eval
        key = "step.eval_gap" if seconds is not None else "step.eval_gap_unpriced"
        price = context.money(None if seconds is None else spending.money(seconds))
        steps.append(texts(key, evals=spending.missing_evals, hours=context.hours(seconds), price=price))
    seconds, left = spending.completion_seconds, spending.money_left
    if seconds and left is not None and spending.money(seconds) > left:
        steps.append(texts("step.gap_unaffordable", left=context.money(left)))
    return steps


def _seeds(context: ReportContext) -> list[str]:
    """Seeds that the declared difference needs, against money and the declared maximum."""
    texts, analysis = context.texts, context.analysis
    found = seeds_price(context)
    if found is None:
        return [texts("step.spread_unknown")]
    facts = {**found, "margin": f"{analysis.evidence.study.metric.smallest_difference:g}"}
    if found["count"] == 0:
        return [texts("step.enough_seeds", **facts)]
    steps = [texts("step.more_seeds", **facts)]
    left, amount = analysis.spending.money_left, found["amount"]
    if left is not None and isinstance(amount, float):
        affordable = amount <= left
        steps.append(texts("step.affordable" if affordable else "step.unaffordable", left=context.money(left), **facts))
    if len(analysis.look_plan.looks) > 1 and analysis.next is not None and analysis.next.add_seeds:
        steps.append(
            texts("step.sequential", seeds=analysis.next.seeds_per_arm, price=context.money(analysis.next.price))
        )
    elif len(analysis.look_plan.looks) == 1:
        steps.append(texts("step.declare_maximum"))
    return steps
