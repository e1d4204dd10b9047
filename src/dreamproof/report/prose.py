"""Sentences generated from numbers only."""

from collections.abc import Iterable
from datetime import UTC, datetime

from dreamproof.report.analysis import Analysis
from dreamproof.report.context import ReportContext
from dreamproof.report.data import FINAL, Group
from dreamproof.report.document import Stamp
from dreamproof.report.limits import Constrained, unmeasured
from dreamproof.report.lints.lint import BLOCK, Lint, names
from dreamproof.report.numbers import DASH, group_key
from dreamproof.report.quotes import translated
from dreamproof.report.rounding import digits_apart, exact_text
from dreamproof.report.spending import seconds_of_seeds
from dreamproof.stats.limits import fewest_seeds_to_keep
from dreamproof.stats.permutation import smallest_possible_p
from dreamproof.stats.verdict import Kind, Verdict, Why

MAX_REASONS = 4


SHOWN_RESULTS = 6
"""Results of arms that are not compared are written out up to this number of arms; the key table has all."""


def moment_text(unix_seconds: float | None) -> str:
    """2026-02-26 03:16 UTC, or a dash."""
    if unix_seconds is None:
        return "–"
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def answer(context: ReportContext) -> str:
    """The answer to the declared question in running text."""
    return context.texts("list.sentences").join(answer_points(context))


def answer_stamp(context: ReportContext) -> Stamp:
    """The answer to the declared question as a highlighted block; one point per arm if several are decided."""
    points, label = answer_points(context), context.texts("decision.answer")
    return Stamp("answer", label, points[0]) if len(points) == 1 else Stamp("answer", label, "", tuple(points))


def answer_points(context: ReportContext) -> list[str]:
    """The answer to the declared question, one sentence or more about each decided arm."""
    texts, analysis = context.texts, context.analysis
    study = analysis.evidence.study
    if not analysis.treatments:
        return uncompared(context)
    decided = [arm for arm in analysis.treatments if not analysis.undecided(arm)]
    where = {
        "metric": study.metric.name,
        "condition": context.condition(analysis.evidence.primary_condition),
        "reference": study.reference,
    }
    declared = declared_decision(context)
    breaking = _breaking(context)
    apart = uncompared(context)
    if not decided:
        return [texts("answer.cannot_decide", reason=main_reason(context), **where), *apart, *breaking, *declared]
    parts = [verdict_sentence(context, arm) for arm in decided]
    rest = [arm for arm in analysis.treatments if arm not in decided]
    if rest:
        parts.append(texts("answer.rest", arms=context.listing(rest)))
    return [*parts, *apart, *breaking, *declared]


def uncompared(context: ReportContext) -> list[str]:
    """The results of arms that are compared with nothing, and why they are not; nothing if all are compared."""
    texts, analysis = context.texts, context.analysis
    apart, reference = analysis.arms_on_other_tasks, context.reference
    if not apart:
        return [] if analysis.treatments else [texts("answer.one_arm", arm=reference)]
    if analysis.treatments:
        if len(apart) > SHOWN_RESULTS:
            return [texts("answer.many_other_tasks", count=len(apart), reference=reference)]
        return [texts("answer.other_tasks", parts=_results(context, apart), reference=reference)]
    arms, study = analysis.evidence.arms, analysis.evidence.study
    facts = {"metric": study.metric.name, "condition": context.condition(analysis.evidence.primary_condition)}
    if len(arms) <= SHOWN_RESULTS:
        form = "answer.results" if len(study.seeds) > 1 else "answer.results_one_seed"
        return [texts(form, parts=_results(context, arms), **facts), texts("answer.not_compared"), *_breaking(context)]
    empty = sum(not _seeds_known(context, arm) for arm in arms)
    some = [texts("answer.without_values", count=empty)] if empty else []
    return [texts("answer.many_results", count=len(arms), **facts), *some, texts("answer.not_compared")]


def _results(context: ReportContext, arms: list[str]) -> str:
    """What each of these arms reached where it decides, with the number of its seeds."""
    analysis, texts, declared = context.analysis, context.texts, len(context.analysis.evidence.study.seeds)
    parts = []
    for arm in arms:
        seeds = _seeds_known(context, arm)
        form = "missing" if not seeds else "bare" if declared == 1 else "whole" if seeds == declared else "part"
        value = mean_sd(context, analysis.primary(arm))
        parts.append(texts(f"result.{form}", arm=arm, value=value, seeds=seeds, declared=declared))
    return texts("list.semicolon").join(parts)


def _seeds_known(context: ReportContext, arm: str) -> int:
    """How many seeds of an arm have a value where it decides."""
    number = context.numbers.by_key.get(f"main.{group_key(context.analysis, context.analysis.primary(arm))}.seeds")
    return 0 if number is None else round(number.value or 0)


def mean_sd(context: ReportContext, group: Group) -> str:
    """mean ± sd, mean only if the sd is unknown, or a dash."""
    key = f"main.{group_key(context.analysis, group)}"
    mean, sd = context.numbers.token(f"{key}.mean"), context.numbers.token(f"{key}.sd")
    return mean if sd == DASH else f"{mean} ± {sd}"


def arms_sentence(context: ReportContext) -> str:
    """The reference, what is compared with it, and what is not."""
    texts, analysis = context.texts, context.analysis
    apart = context.listing(analysis.arms_on_other_tasks)
    if apart and not analysis.treatments:
        return texts("question.arms_on_tasks", arms=context.listing(analysis.evidence.arms))
    compared = context.listing(analysis.treatments) or DASH
    sentence = texts("question.arms", reference=context.reference, arms=compared)
    others = [texts("question.other_tasks", arms=apart)] if apart else []
    return texts("list.sentences").join([sentence, *others])


def _breaking(context: ReportContext) -> list[str]:
    """One sentence about every arm that breaks a limit and has no verdict that says so."""
    analysis = context.analysis
    return [limit_sentence(context, arm, analysis.constrained[arm]) for arm in undecided_breaking(analysis)]


def undecided_breaking(analysis: Analysis) -> list[str]:
    """Arms that are shown to break a limit and of which no verdict says so: undecided ones, and the reference."""
    silent = [arm for arm in analysis.evidence.arms if arm not in analysis.verdicts or analysis.undecided(arm)]
    return [arm for arm in silent if arm in analysis.constrained and analysis.constrained[arm].breaks]


def declared_decision(context: ReportContext) -> list[str]:
    """Who wins by the declared rule over several conditions; nothing without such a rule."""
    study, winners = context.analysis.evidence.study, context.analysis.winners
    if study.decides is None:
        return []
    limited = study.decides.limited if study.limits else []
    key = f"answer.{'winner' if winners else 'no_winner'}{'_limited' if limited else ''}"
    arms = context.listing([f"`{arm}`" for arm in winners])
    return [context.texts(key, arms=arms, conditions=context.listing(limited))]


def main_reason(context: ReportContext) -> str:
    """Why nothing can be decided, the most actionable reason first."""
    analysis, texts = context.analysis, context.texts
    codes = {code for verdict in analysis.verdicts.values() for code in verdict.blocked_by}
    order = (
        "runs_absent",
        "analysis_changed",
        "conflicting_rows",
        "not_finite",
        "never_updated",
        "identical_checkpoints",
        "identical_arms",
        "peak_named",
        "peak_only",
        "one_seed",
        "training_log_only",
        "never_significant",
        "incomplete_training",
        "incomplete_evaluation",
        "checkpoint_unknown",
        "different_steps",
        "different_settings",
        "different_sources",
        "selection_layouts",
    )
    chosen = [code for code in order if code in codes][:MAX_REASONS]
    if chosen:
        lints = {lint.code: lint for lint in analysis.lints if lint.level == BLOCK}
        return texts("list.semicolon").join(texts(f"reason.{code}", **_facts(context, lints[code])) for code in chosen)
    first = next(iter(analysis.verdicts.values()))
    return why_text(context, first)


def why_text(context: ReportContext, verdict: Verdict) -> str:
    """Why this verdict is not stronger, as a clause."""
    smallest = smallest_possible_p(verdict.seeds, context.analysis.evidence.study.paired_seeds)
    digits = digits_apart(smallest, verdict.level, 2, "g") if verdict.why is Why.TOO_FEW_SEEDS else 2
    facts = {"seeds": verdict.seeds, "level": f"{verdict.level:.{digits}g}", "smallest": f"{smallest:.{digits}g}"}
    return context.texts(f"why.{verdict.why}", **facts)


def verdict_sentence(context: ReportContext, arm: str) -> str:
    """One arm's verdict with its numbers and its constraint."""
    analysis, texts = context.analysis, context.texts
    verdict = analysis.verdicts[arm]
    study = analysis.evidence.study
    key = f"versus.{group_key(analysis, analysis.primary(arm))}"
    interval = f"{key}.paired" if study.paired_seeds else key
    low, high = (context.numbers.token(f"{interval}_{end}") for end in ("low", "high"))
    facts = {
        "arm": arm,
        "reference": study.reference,
        "metric": study.metric.name,
        "condition": context.condition(analysis.evidence.primary_condition),
        "difference": context.numbers.token(f"{key}.{'paired' if study.paired_seeds else 'difference'}"),
        "interval": texts("interval.no_spread" if DASH in (low, high) else "interval.known", low=low, high=high),
        "p": context.numbers.token(f"{key}.holm_p"),
        "margin": exact_text(study.metric.smallest_difference),
        "seeds": verdict.seeds,
    }
    if verdict.kind is Kind.CANNOT_DECIDE:
        form = "bare" if DASH in (low, high) else "cannot_decide"
        form = "nothing" if facts["difference"] == DASH else form
        return texts(f"verdict_sentence.{form}", reason=arm_reason(context, verdict), **facts)
    sentence = texts(f"verdict_sentence.{verdict.kind}", **facts) + _stopped_early(context, arm)
    return sentence + limit_clause(context, arm, verdict.kind)


def _stopped_early(context: ReportContext, arm: str) -> str:
    """That an early look decided, with the interval of that look and the corrected difference if there is one."""
    token, verdict = context.numbers.token, context.analysis.verdicts[arm]
    if not verdict.stopped_early:
        return ""
    facts = {name: token(f"stopped.{arm}{end}") for name, end in (("adjusted", ""), ("low", "_low"), ("high", "_high"))}
    key = "verdict_sentence.early_no_spread" if DASH in facts.values() else "verdict_sentence.early"
    looks = {"seeds": verdict.seeds, "maximum": context.analysis.look_plan.maximum}
    return context.texts("list.space") + context.texts(key, **looks, **facts)


def arm_reason(context: ReportContext, verdict: Verdict) -> str:
    """Why one arm has no verdict: missing or blocked first, then missing significance."""
    undecided = (Why.NOT_SIGNIFICANT, Why.INTERVAL_DISAGREES, Why.SHAPE)
    if verdict.why is Why.BLOCKED or (verdict.blocked_by and verdict.why in undecided):
        titles = [context.texts(f"lint_title.{code}") for code in verdict.blocked_by]
        return context.texts("why.blocked_by", lints=context.listing(titles))
    return why_text(context, verdict)


def limit_clause(context: ReportContext, arm: str, kind: Kind) -> str:
    """A clause that states what is shown of a decided arm and the declared limit."""
    if not context.analysis.evidence.study.limits:
        return ""
    space, found = context.texts("list.space"), context.analysis.constrained.get(arm)
    if found is None:
        return "".join(space + text for text in _unmeasured(context, arm))
    clause = space + limit_sentence(context, arm, found, "_better" if kind is Kind.BETTER and found.breaks else "")
    safer = safer_elsewhere(context, arm)
    if not found.keeps or not safer:
        return clause
    elsewhere = context.analysis.elsewhere
    means = {
        who: context.listing([str(limit_facts(context, name, elsewhere[name][each])["mean"]) for each in safer])
        for who, name in (("own", arm), ("theirs", context.reference))
    }
    conditions = _listed(context, dict.fromkeys(condition for _, condition in safer))
    return (
        clause + space + context.texts("constraint.safer", conditions=conditions, reference=context.reference, **means)
    )


def _unmeasured(context: ReportContext, arm: str) -> list[str]:
    """A sentence about every limited metric of which an arm has no value."""
    missing = unmeasured(context.analysis.evidence, arm).items()
    return [
        context.texts("constraint.no_values", arm=arm, metric=metric, conditions=_listed(context, conditions))
        for metric, conditions in missing
    ]


def _listed(context: ReportContext, conditions: Iterable[str]) -> str:
    return context.listing([context.condition(name) for name in conditions])


def reference_breaks_limit(analysis: Analysis) -> bool:
    """Whether the reference arm itself is shown to break the limit."""
    found = analysis.constrained.get(analysis.evidence.study.reference)
    return found is not None and found.breaks


def safer_elsewhere(context: ReportContext, arm: str) -> list[tuple[str, str]]:
    """Metric and non-deciding condition where this arm is shown to keep the limit and the reference to break it."""
    own, theirs = (context.analysis.elsewhere.get(name, {}) for name in (arm, context.reference))
    return [place for place, found in own.items() if found.keeps and place in theirs and theirs[place].breaks]


def limit_sentences(context: ReportContext) -> list[str]:
    """Every arm against the limits in the deciding condition, then every arm that breaks one in another condition."""
    analysis = context.analysis
    deciding = [(arm, each) for arm, found in analysis.limits.items() for each in found]
    broken = [(arm, each) for arm, found in analysis.elsewhere.items() for each in found.values() if each.breaks]
    found = [limit_sentence(context, arm, each) for arm, each in [*deciding, *broken]]
    evaluated = [arm for arm in analysis.evidence.arms if analysis.primary(arm) in analysis.evidence.values]
    return found + [text for arm in evaluated if arm not in analysis.limits for text in _unmeasured(context, arm)]


def limit_sentence(context: ReportContext, arm: str, found: Constrained, form: str = "") -> str:
    """Whether an arm keeps the limit, with the bounds that show it."""
    bare = "_bare" if found.verdict.bounds is None else ""
    return context.texts(f"constraint.{found.verdict.kind}{bare}{form}", **limit_facts(context, arm, found))


def limit_facts(context: ReportContext, arm: str, found: Constrained) -> dict[str, object]:
    """The numbers of an arm against a declared limit."""
    group, verdict = Group(arm, found.condition, found.metric, found.checkpoint), found.verdict
    mark = "" if found.checkpoint == FINAL else f"@{found.checkpoint}"
    key = group_key(context.analysis, group)
    fewest = fewest_seeds_to_keep(verdict.level)
    return {
        "arm": arm,
        "metric": f"{found.metric}{mark}",
        "mean": context.numbers.token(f"main.{key}.mean"),
        "low": context.numbers.token(f"limit.{key}_low"),
        "high": context.numbers.token(f"limit.{key}_high"),
        "limit": exact_text(found.limit),
        "condition": context.condition(found.condition),
        "seeds": verdict.seeds,
        "confidence": f"{100 * (1 - verdict.level):.3g}",
        "reason": context.texts(f"limit_why.{verdict.why}", seeds=verdict.seeds, needed=fewest),
    }


def _facts(context: ReportContext, lint: Lint) -> dict[str, object]:
    """The facts of a lint as the language writes them."""
    texts, facts = context.texts, dict(lint.facts)
    if "condition" in facts:
        facts["condition"] = context.condition(str(facts["condition"]))
    if "reason" in facts:
        facts["reason"] = translated(str(facts["reason"]), texts)
    if "what" in facts:
        facts["what"] = texts(f"what.{facts['what']}")
    if "arms" in facts:
        facts["arms"] = str(facts["arms"]).replace(", ", texts("list.comma"))
    return facts


def level_text(context: ReportContext, lint: Lint) -> str:
    """What a lint does; one that forbids the verdict of some arms only names them."""
    analysis = context.analysis
    compared = analysis.treatments or analysis.evidence.arms
    if lint.level != BLOCK or not lint.arms or set(compared) <= set(lint.arms):
        return context.texts(f"lint_level.{lint.level}")
    judged = analysis.evidence.arms if analysis.evidence.study.limits else compared
    arms = names(arm for arm in judged if arm in lint.arms).replace(", ", context.texts("list.comma"))
    return context.texts("lint_level.block_of", arms=arms)


def lint_stamp(context: ReportContext, lint: Lint) -> Stamp:
    """A lint as a stamp."""
    title = context.texts(f"lint_title.{lint.code}")
    text = context.texts(f"lint.{lint.code}", **_facts(context, lint))
    return Stamp(lint.level, f"{level_text(context, lint)} · {title}", text)


def coverage_sentence(context: ReportContext) -> str:
    """17/20 train cells and 16/40 eval cells are proven."""
    token = context.numbers.token
    reported = any(facts.state == "reported" for facts in context.analysis.evidence.cells.values())
    return context.texts(
        "coverage.reported" if reported else "coverage.sentence",
        trained=token("coverage.train.proven"),
        cells=token("coverage.train.declared"),
        evaluated=token("coverage.eval.proven"),
        evals=token("coverage.eval.declared"),
    )


def complete(context: ReportContext) -> bool:
    """Whether every declared cell is proven."""
    spending = context.analysis.spending
    return spending.missing_cells == 0 and spending.missing_evals == 0


def as_of(context: ReportContext) -> str:
    """The ledger state that a document shows, or that there is no ledger."""
    evidence = context.analysis.evidence
    if not evidence.ledger_hash:
        return context.texts("header.no_ledger")
    return context.texts("header.as_of", moment=moment_text(evidence.last_event), hash=evidence.ledger_hash[:12])


def header(context: ReportContext) -> list[str]:
    """The lines under every title: study, state, ledger, coverage."""
    return [
        study_line(context),
        as_of(context),
        coverage_sentence(context),
        *not_saved_sentence(context),
    ]


def study_line(context: ReportContext) -> str:
    """The study and its task, or how many tasks it has."""
    study, texts = context.analysis.evidence.study, context.texts
    tasks = study.tasks or list(dict.fromkeys(study.task_of(arm) for arm in study.arms))
    if study.task in tasks or len(tasks) < 2:
        return texts("header.study", name=study.name, task=study.task)
    return texts("header.study_tasks", name=study.name, count=len(tasks))


def not_saved_sentence(context: ReportContext) -> list[str]:
    """Cells that were trained to their end and not saved, with hours, money and the remedy; none if there are none."""
    spending = context.analysis.spending
    if not spending.not_saved_cells:
        return []
    facts = {
        "count": spending.not_saved_cells,
        "hours": context.gpu_hours(spending.not_saved_seconds),
        "price": context.money(spending.money(spending.not_saved_seconds)),
    }
    return [context.texts("coverage.not_saved", **facts)]


def seeds_price(context: ReportContext, fresh: bool = False) -> dict[str, object] | None:
    """How many more seeds per arm are needed, their hours and price; None if unknown.

    Up to the planned look that has them, in all arms; if `fresh`, all of them in a study of the undecided arms.
    """
    analysis = context.analysis
    needed = analysis.seeds_planned
    spending = analysis.spending
    if needed is None:
        return None
    have, evidence = len(analysis.evidence.study.seeds), analysis.evidence
    look = next((seeds for seeds in analysis.look_plan.looks if seeds >= needed), needed)
    more = needed if fresh else max(0, look - have) if needed > have else 0
    arms = 1 + len(analysis.open_arms) if fresh else len(evidence.arms)
    each = spending.seconds_per_fresh_cell
    work = None if each is None else more * arms * each
    seconds = work if fresh else seconds_of_seeds(evidence, spending, more)
    price = None if seconds is None else spending.money(seconds)
    return {
        "needed": f"{needed:,}",
        "look": f"{look:,}",
        "more": f"{more:,}",
        "arms": arms,
        "cells": f"{more * arms:,}",
        "hours": context.planned_hours(seconds),
        "price": context.price(price),
        "amount": price,
        "count": more,
    }
