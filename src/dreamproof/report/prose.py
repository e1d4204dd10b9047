"""Sentences made from numbers and nothing else."""

from dataclasses import dataclass
from datetime import UTC, datetime

from dreamproof.base.text import money_text
from dreamproof.report.analysis import Analysis, Constrained
from dreamproof.report.data import FINAL, TRAIN, Group
from dreamproof.report.document import Stamp
from dreamproof.report.language import Words
from dreamproof.report.lints import BLOCK, Lint
from dreamproof.report.numbers import DASH, Numbers, group_key, number_text
from dreamproof.stats.verdict import Kind, Verdict, Why

LOOKS_LEVEL = 0.05
MOST_HINTS = 20


@dataclass(frozen=True)
class Telling:
    """What every document is written with."""

    analysis: Analysis
    numbers: Numbers
    words: Words

    @property
    def reference(self) -> str:
        return self.analysis.evidence.study.reference

    def condition(self, name: str) -> str:
        """A condition as people read it: the training log has a word, others keep their name."""
        return self.words("condition.train") if name == TRAIN else name

    def money(self, amount: float | None) -> str:
        return money_text(amount, self.analysis.spending.currency)

    def hours(self, seconds: float | None) -> str:
        """GPU-hours with two decimals."""
        return number_text(None if seconds is None else seconds / 3600, 2)

    def listing(self, items: list[str]) -> str:
        """a, b and c in the language's own commas."""
        return self.words("list.comma").join(items)


def moment_text(unix_seconds: float | None) -> str:
    """2026-02-26 03:16 UTC, or a dash."""
    if unix_seconds is None:
        return "–"
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def answer(telling: Telling) -> str:
    """The answer to the declared question in running text."""
    return telling.words("list.sentences").join(answer_points(telling))


def answer_stamp(telling: Telling) -> Stamp:
    """The answer to the declared question where it stands out: one point an arm where several are decided."""
    points, label = answer_points(telling), telling.words("decision.answer")
    return Stamp("answer", label, points[0]) if len(points) == 1 else Stamp("answer", label, "", tuple(points))


def answer_points(telling: Telling) -> list[str]:
    """The answer to the declared question, one sentence or more about each decided arm."""
    words, analysis = telling.words, telling.analysis
    study = analysis.evidence.study
    if not analysis.treatments:
        return [words("answer.one_arm", arm=study.reference)]
    decided = [arm for arm in analysis.treatments if not analysis.undecided(arm)]
    where = {
        "metric": study.metric.name,
        "condition": telling.condition(analysis.evidence.primary_condition),
        "reference": study.reference,
    }
    if not decided:
        return [words("answer.cannot_decide", reason=main_reason(telling), **where)]
    parts = [verdict_sentence(telling, arm) for arm in decided]
    rest = [arm for arm in analysis.treatments if arm not in decided]
    if rest:
        parts.append(words("answer.rest", arms=telling.listing(rest)))
    if reference_breaks_limit(telling):
        found = analysis.constrained[study.reference]
        parts.append(words("constraint.broken", **constraint_facts(telling, study.reference, found)))
    return parts


def reference_breaks_limit(telling: Telling) -> bool:
    """Whether the arm that the others are held against is itself not acceptable."""
    found = telling.analysis.constrained.get(telling.reference)
    return found is not None and not found.kept


def main_reason(telling: Telling) -> str:
    """Why nothing can be decided: the fact that a person can do most about, first."""
    analysis, words = telling.analysis, telling.words
    codes = {code for verdict in analysis.verdicts.values() for code in verdict.blocked_by}
    order = (
        "conflicting_rows",
        "not_finite",
        "never_updated",
        "identical_checkpoints",
        "training_log_only",
        "one_seed",
        "never_significant",
        "incomplete_training",
        "incomplete_evaluation",
        "identical_arms",
        "peak_only",
        "different_steps",
        "different_settings",
        "selection_layouts",
    )
    chosen = [code for code in order if code in codes][:3]
    if chosen:
        lints = {lint.code: lint for lint in analysis.lints if lint.level == BLOCK}
        return words("list.semicolon").join(words(f"reason.{code}", **lints[code].facts) for code in chosen)
    first = next(iter(analysis.verdicts.values()))
    return why_text(telling, first)


def why_text(telling: Telling, verdict: Verdict) -> str:
    """Why this verdict is not more, in a clause."""
    return telling.words(f"why.{verdict.why}", seeds=verdict.seeds, level=number_text(verdict.level, 4))


def verdict_sentence(telling: Telling, arm: str) -> str:
    """One arm's verdict with its numbers and its constraint."""
    analysis, words = telling.analysis, telling.words
    verdict = analysis.verdicts[arm]
    study = analysis.evidence.study
    key = f"versus.{group_key(analysis, analysis.primary(arm))}"
    facts = {
        "arm": arm,
        "reference": study.reference,
        "metric": study.metric.name,
        "condition": telling.condition(analysis.evidence.primary_condition),
        "difference": telling.numbers.token(f"{key}.difference"),
        "low": telling.numbers.token(f"{key}_low"),
        "high": telling.numbers.token(f"{key}_high"),
        "p": telling.numbers.token(f"{key}.p"),
        "margin": f"{study.metric.smallest_difference:g}",
        "seeds": verdict.seeds,
    }
    if verdict.kind is Kind.CANNOT_DECIDE:
        form = "bare" if DASH in (facts["low"], facts["high"]) else "cannot_decide"
        form = "nothing" if facts["difference"] == DASH else form
        return words(f"verdict_sentence.{form}", reason=arm_reason(telling, verdict), **facts)
    sentence = words(f"verdict_sentence.{verdict.kind}", **facts)
    return sentence + constraint_clause(telling, arm, verdict.kind)


def arm_reason(telling: Telling, verdict: Verdict) -> str:
    """Why one arm has no verdict: missing or blocked first, then what the seeds do not show."""
    if verdict.why is Why.BLOCKED or (verdict.blocked_by and verdict.why is Why.NOT_SIGNIFICANT):
        titles = [telling.words(f"lint_title.{code}") for code in verdict.blocked_by]
        return telling.words("why.blocked_by", lints=telling.listing(titles))
    return why_text(telling, verdict)


def constraint_clause(telling: Telling, arm: str, kind: Kind) -> str:
    """Says when a better arm breaks the declared limit, or a decided one keeps it."""
    found = telling.analysis.constrained.get(arm)
    constraint = telling.analysis.evidence.study.constraint
    if found is None or constraint is None:
        return ""
    key = (
        "constraint.kept" if found.kept else "constraint.broken_better" if kind is Kind.BETTER else "constraint.broken"
    )
    clause = telling.words("list.space") + telling.words(key, **constraint_facts(telling, arm, found))
    safer = safer_elsewhere(telling, arm)
    if not found.kept or not safer:
        return clause
    elsewhere = telling.analysis.elsewhere
    means = {
        who: telling.listing([str(constraint_facts(telling, name, elsewhere[name][each])["mean"]) for each in safer])
        for who, name in (("own", arm), ("theirs", telling.reference))
    }
    conditions = telling.listing([telling.condition(name) for name in safer])
    told = telling.words("constraint.safer", conditions=conditions, reference=telling.reference, **means)
    return clause + telling.words("list.space") + told


def safer_elsewhere(telling: Telling, arm: str) -> list[str]:
    """Conditions that do not decide in which this arm keeps the limit and the reference breaks it."""
    own, theirs = (telling.analysis.elsewhere.get(name, {}) for name in (arm, telling.reference))
    return [name for name, found in own.items() if found.kept and name in theirs and not theirs[name].kept]


def limit_sentences(telling: Telling) -> list[str]:
    """Every arm against the limit where it is decided, then whoever breaks it elsewhere."""
    analysis = telling.analysis
    broken = [(arm, each) for arm, found in analysis.elsewhere.items() for each in found.values() if not each.kept]
    return [
        telling.words("constraint.kept" if each.kept else "constraint.broken", **constraint_facts(telling, arm, each))
        for arm, each in [*analysis.constrained.items(), *broken]
    ]


def constraint_facts(telling: Telling, arm: str, found: Constrained) -> dict[str, object]:
    """The numbers of an arm against the declared limit."""
    constraint = telling.analysis.evidence.study.constraint
    assert constraint is not None
    group = Group(arm, found.condition, constraint.name, found.checkpoint)
    mark = "" if found.checkpoint == FINAL else f"@{found.checkpoint}"
    return {
        "arm": arm,
        "metric": f"{constraint.name}{mark}",
        "mean": telling.numbers.token(f"main.{group_key(telling.analysis, group)}.mean"),
        "limit": f"{constraint.at_most:g}",
        "condition": telling.condition(found.condition),
    }


def hints(telling: Telling) -> list[str]:
    """Differences whose plain interval excludes zero though no verdict was given: harms first, never a claim."""
    analysis = telling.analysis
    study = analysis.evidence.study
    sign = 1.0 if study.metric.direction == "higher" else -1.0
    found: list[tuple[bool, str]] = []
    for group, comparison in analysis.comparisons.items():
        decided = group == analysis.primary(group.arm) and not analysis.undecided(group.arm)
        if group.metric != study.metric.name or group.checkpoint != FINAL or decided:
            continue
        interval = comparison.interval
        if interval is None or not interval.finite or not interval.excludes(0) or interval.low == interval.high:
            continue
        good = sign * comparison.difference > 0
        key = f"versus.{group_key(analysis, group)}"
        facts = {
            "arm": group.arm,
            "reference": study.reference,
            "condition": telling.condition(group.condition),
            "difference": telling.numbers.token(f"{key}.difference"),
            "low": telling.numbers.token(f"{key}_low"),
            "high": telling.numbers.token(f"{key}_high"),
            "welch_p": telling.numbers.token(f"{key}.welch_p"),
            "p": telling.numbers.token(f"{key}.p"),
            "smallest_p": telling.numbers.token(f"{key}.smallest_p"),
        }
        sentence = telling.words("hint.better" if good else "hint.worse", **facts)
        found.append(
            (good, sentence + telling.words("list.space") + telling.words(_no_verdict(telling, group), **facts))
        )
    return [sentence for _, sentence in sorted(found, key=lambda pair: pair[0])][:MOST_HINTS]


def _no_verdict(telling: Telling, group: Group) -> str:
    """The key of the sentence that says why a visible difference is no verdict."""
    analysis = telling.analysis
    if analysis.comparisons[group].smallest_p > LOOKS_LEVEL:
        return "hint.too_few"
    return "hint.undecided" if group == analysis.primary(group.arm) else "hint.not_declared"


def lint_stamp(telling: Telling, lint: Lint) -> Stamp:
    """A lint as a stamp."""
    facts = dict(lint.facts)
    if "condition" in facts:
        facts["condition"] = telling.condition(str(facts["condition"]))
    title = telling.words(f"lint_title.{lint.code}")
    level = telling.words(f"lint_level.{lint.level}")
    return Stamp(lint.level, f"{level} · {title}", telling.words(f"lint.{lint.code}", **facts))


def coverage_sentence(telling: Telling) -> str:
    """17/20 train cells and 16/40 eval cells are proven."""
    token = telling.numbers.token
    reported = any(facts.state == "reported" for facts in telling.analysis.evidence.cells.values())
    return telling.words(
        "coverage.reported" if reported else "coverage.sentence",
        trained=token("coverage.train.proven"),
        cells=token("coverage.train.declared"),
        evaluated=token("coverage.eval.proven"),
        evals=token("coverage.eval.declared"),
    )


def complete(telling: Telling) -> bool:
    """Whether every declared cell is proven."""
    spending = telling.analysis.spending
    return spending.missing_cells == 0 and spending.missing_evals == 0


def as_of(telling: Telling) -> str:
    """Which state of the ledger a document shows; that there is none where there is none."""
    evidence = telling.analysis.evidence
    if not evidence.ledger_hash:
        return telling.words("header.no_ledger")
    return telling.words("header.as_of", moment=moment_text(evidence.last_event), hash=evidence.ledger_hash[:12])


def header(telling: Telling) -> list[str]:
    """The lines under every title: study, state, ledger, coverage."""
    evidence, words = telling.analysis.evidence, telling.words
    return [
        words("header.study", name=evidence.study.name, task=evidence.study.task),
        as_of(telling),
        coverage_sentence(telling),
    ]


def seeds_price(telling: Telling) -> dict[str, object] | None:
    """How many more seeds an arm decide, their hours and price; None where it cannot be said."""
    analysis = telling.analysis
    needed = analysis.seeds_planned
    spending = analysis.spending
    if needed is None:
        return None
    have = len(analysis.evidence.study.seeds)
    more = max(0, needed - have)
    arms = 1 + sum(analysis.undecided(arm) for arm in analysis.treatments)
    per_cell = spending.seconds_per_cell
    train = None if per_cell is None else per_cell + spending.conditions * (spending.seconds_per_eval or 0.0)
    seconds = None if train is None else more * arms * train
    price = None if seconds is None else spending.money(seconds)
    return {
        "needed": f"{needed:,}",
        "more": f"{more:,}",
        "arms": arms,
        "cells": f"{more * arms:,}",
        "hours": telling.hours(seconds),
        "price": telling.money(price),
        "amount": price,
        "count": more,
    }
