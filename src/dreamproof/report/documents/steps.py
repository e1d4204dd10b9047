"""What to do next and its price; the same list in every document that ends with one."""

from dreamproof.report.prose import Telling, reference_breaks_limit, safer_elsewhere, seeds_price
from dreamproof.stats.verdict import Kind

LOOK_FIRST = ("conflicting_rows", "not_finite", "never_updated", "identical_checkpoints", "identical_arms")


def next_steps(telling: Telling) -> list[str]:
    """Steps in order: understand what looks wrong, fill the gap, add seeds or stop spending, or act on the verdict."""
    words, analysis = telling.words, telling.analysis
    codes = [lint.code for lint in analysis.lints]
    steps = [words(f"step.{code}") for code in LOOK_FIRST if code in codes]
    steps += _gap(telling)
    undecided = [arm for arm in analysis.treatments if analysis.undecided(arm)]
    if undecided:
        steps += _seeds(telling)
    for arm in analysis.treatments:
        kind = analysis.verdicts[arm].kind
        if kind is Kind.BETTER:
            found = analysis.constrained.get(arm)
            steps.append(words("step.take" if found is None or found.kept else "step.take_broken", arm=arm))
        elif kind is Kind.WORSE:
            found = analysis.constrained.get(arm)
            safer = found is not None and found.kept and reference_breaks_limit(telling)
            elsewhere = telling.listing([telling.condition(name) for name in safer_elsewhere(telling, arm)])
            key = "drop_or_keep" if safer else "drop_or_keep_elsewhere" if elsewhere else "drop"
            facts = {"arm": arm, "reference": telling.reference, "conditions": elsewhere}
            steps.append(words(f"step.{key}", **facts))
        elif kind is Kind.EQUIVALENT:
            steps.append(words("step.equivalent", arm=arm, reference=telling.reference))
    return steps or [words("step.nothing")]


def _gap(telling: Telling) -> list[str]:
    words, spending = telling.words, telling.analysis.spending
    steps = []
    if spending.missing_cells:
        seconds = spending.completion_seconds
        price = telling.money(None if seconds is None else spending.money(seconds))
        key = "step.train_gap" if seconds is not None else "step.train_gap_unpriced"
        steps.append(words(key, cells=spending.missing_cells, hours=telling.hours(seconds), price=price))
    if spending.missing_evals:
        seconds = None if spending.seconds_per_eval is None else spending.missing_evals * spending.seconds_per_eval
        key = "step.eval_gap" if seconds is not None else "step.eval_gap_unpriced"
        price = telling.money(None if seconds is None else spending.money(seconds))
        steps.append(words(key, evals=spending.missing_evals, hours=telling.hours(seconds), price=price))
    seconds, left = spending.completion_seconds, spending.money_left
    if seconds and left is not None and spending.money(seconds) > left:
        steps.append(words("step.gap_unaffordable", left=telling.money(left)))
    return steps


def _seeds(telling: Telling) -> list[str]:
    """Seeds that the declared difference needs, against money and the declared maximum."""
    words, analysis = telling.words, telling.analysis
    found = seeds_price(telling)
    if found is None:
        return [words("step.spread_unknown")]
    facts = {**found, "margin": f"{analysis.evidence.study.metric.smallest_difference:g}"}
    if found["count"] == 0:
        return [words("step.enough_seeds", **facts)]
    steps = [words("step.more_seeds", **facts)]
    left, amount = analysis.spending.money_left, found["amount"]
    if left is not None and isinstance(amount, float):
        affordable = amount <= left
        steps.append(words("step.affordable" if affordable else "step.unaffordable", left=telling.money(left), **facts))
    if len(analysis.look_plan.looks) > 1 and analysis.next is not None and analysis.next.add_seeds:
        steps.append(
            words("step.sequential", seeds=analysis.next.seeds_per_arm, price=telling.money(analysis.next.price))
        )
    elif len(analysis.look_plan.looks) == 1:
        steps.append(words("step.declare_maximum"))
    return steps
