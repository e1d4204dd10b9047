"""Figures of results: score against cost, performance profile, power."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray
from scipy import stats

from dreamproof.base.text import two_digits
from dreamproof.report.analysis import group_mean
from dreamproof.report.context import ReportContext
from dreamproof.report.data import FINAL, Group
from dreamproof.report.figures.conditions import DRAWABLE, INTERVAL_SEEDS, drawable_values, shown_interval
from dreamproof.report.figures.theme import INK, LIMIT, SOFT, add_note, arm_styles, legend_below, new_figure
from dreamproof.report.palette import COLOURS
from dreamproof.report.rounding import exact_text
from dreamproof.settings.study import Constraint
from dreamproof.stats.describe import Floats, Interval
from dreamproof.stats.permutation import fewest_seeds
from dreamproof.stats.power import POWER, power_of

POWER_SEEDS = 60


def _ends(middle: float, interval: Interval) -> list[list[float]]:
    """Lengths of an error bar below and above its middle."""
    return [[max(0.0, middle - interval.low)], [max(0.0, interval.high - middle)]]


def score_against_cost(context: ReportContext, constraint: Constraint) -> Figure | None:
    """One small mark per seed, a large one per arm, the limit as a line; means only if seeds are not known."""
    evidence = context.analysis.evidence
    metric, limits = evidence.study.metric.name, context.analysis.limits.items()
    found = {arm: each for arm, judged in limits for each in judged if each.metric == constraint.name}
    if not found:
        return None
    figure = new_figure(5.8, 4.4)
    axes = figure.subplots()
    styles = arm_styles(evidence.arms)
    drawn = False
    for arm, place in found.items():
        score = group_mean(context.analysis, Group(arm, place.condition, metric))
        if score is None or max(abs(score), abs(place.mean)) >= DRAWABLE:
            continue
        drawn = True
        scores = evidence.values.get(Group(arm, place.condition, metric), {})
        costs = evidence.values.get(Group(arm, place.condition, constraint.name, place.checkpoint), {})
        shared = [seed for seed in scores if seed in costs and np.isfinite(scores[seed]) and np.isfinite(costs[seed])]
        style = styles[arm]
        bounds = place.verdict.bounds
        if bounds is not None:
            axes.errorbar(place.mean, score, xerr=_ends(place.mean, bounds), color=style.colour, linewidth=1.2)
        interval = shown_interval(context, Group(arm, place.condition, metric))
        if interval is not None:
            axes.errorbar(place.mean, score, yerr=_ends(score, interval), color=style.colour, linewidth=1.2)
        if shared:
            axes.scatter(
                [costs[s] for s in shared],
                [scores[s] for s in shared],
                s=20,
                color=style.colour,
                marker=style.marker,
                alpha=0.55,
            )
        axes.scatter(
            [place.mean],
            [score],
            s=110,
            color=style.colour,
            marker=style.marker,
            edgecolor=INK,
            linewidth=1.0,
            label=f"{arm}: {context.texts(f'limit_verdict.{place.verdict.kind}')}",
            zorder=4,
        )
    if not drawn:
        return None
    limit = f"{context.texts('axis.limit')} {exact_text(constraint.at_most)}"
    axes.axvline(constraint.at_most, **LIMIT, label=limit)
    checkpoint = next(iter(found.values())).checkpoint
    axes.set_xlabel(constraint.name if checkpoint == FINAL else f"{constraint.name}@{checkpoint}")
    axes.set_ylabel(f"{metric} · {context.condition(next(iter(found.values())).condition)}")
    axes.margins(0.12)
    legend_below(figure, axes)
    add_note(figure, context.texts("figure_note.score_cost", seeds=_counts(context)))
    return figure


def _counts(context: ReportContext) -> str:
    """The numbers of seeds per arm in the deciding condition: 5, or 3–5."""
    found = [context.analysis.summaries.get(context.analysis.primary(arm)) for arm in context.analysis.evidence.arms]
    counts = {summary.seeds for summary in found if summary is not None}
    return "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else "0"


def performance_profile(context: ReportContext) -> Figure | None:
    """Share of seeds above a value, under the deciding condition; needs an arm with two seeds."""
    evidence = context.analysis.evidence
    metric, condition = evidence.study.metric.name, evidence.primary_condition
    tables = {arm: np.sort(drawable_values(evidence, Group(arm, condition, metric))) for arm in evidence.arms}
    tables = {arm: values for arm, values in tables.items() if len(values)}
    if not tables or max(map(len, tables.values())) < 2:
        return None
    everything = np.concatenate(list(tables.values()))
    margin = 0.05 * (float(np.ptp(everything)) or 1.0)
    grid = np.linspace(everything.min() - margin, everything.max() + margin, 400)
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    styles = arm_styles(evidence.arms)
    for arm, values in tables.items():
        above = len(values) - np.searchsorted(values, grid, side="right")
        share, style = above / len(values), styles[arm]
        if len(values) >= INTERVAL_SEEDS:
            low, high = share_band(above, len(values))
            axes.fill_between(grid, low, high, step="post", color=style.colour, alpha=0.05, linewidth=0)
        axes.step(
            grid,
            share,
            where="post",
            color=style.colour,
            linestyle=style.line,
            linewidth=1.8,
            label=f"{arm} (n={len(values)})",
        )
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel(f"{metric} · {context.condition(condition)}")
    axes.set_ylabel(context.texts("axis.share_above"))
    legend_below(figure, axes)
    add_note(figure, context.texts("figure_note.profile", seeds=_counts(context)))
    return figure


def share_band(above: NDArray[np.intp], count: int, level: float = 0.95) -> tuple[Floats, Floats]:
    """Exact (Clopper–Pearson) interval of the share of seeds above each value; it never leaves 0 to 1."""
    tail = (1 - level) / 2
    low = np.where(above > 0, stats.beta.ppf(tail, np.maximum(above, 1), count - above + 1), 0.0)
    high = np.where(above < count, stats.beta.ppf(1 - tail, above + 1, np.maximum(count - above, 1)), 1.0)
    return low, high


def power_curve(context: ReportContext) -> Figure | None:
    """The chance to find the smallest difference that matters, by seeds per arm, with the price of so many seeds."""
    analysis = context.analysis
    plans = [plan for plan in analysis.plans.values() if plan is not None]
    if not plans:
        return None
    plan = max(plans, key=lambda one: one.sd_upper)
    margin, have = analysis.evidence.study.metric.smallest_difference, len(analysis.evidence.study.seeds)
    needed = plan.seeds_per_arm or POWER_SEEDS
    seeds = np.unique(np.linspace(2, min(POWER_SEEDS, max(2 * have, round(1.3 * needed))), POWER_SEEDS).astype(int))
    level = analysis.look_plan.planning_level(len(analysis.treatments))
    fewest = fewest_seeds(level, analysis.evidence.study.paired_seeds)
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    for name, sd, line in (("sd", plan.sd, "-"), ("sd_upper", plan.sd_upper, "--")):
        powers = [power_of(int(count), margin / sd, level) if count >= fewest else 0.0 for count in seeds]
        axes.plot(seeds, powers, line, color=COLOURS[0], label=context.texts(f"axis.power_{name}", sd=two_digits(sd)))
    axes.axhline(POWER, **LIMIT)
    axes.axvline(have, color=SOFT, linewidth=0.8, label=context.texts("axis.seeds_declared", seeds=have))
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(context.texts("axis.seeds_per_arm"))
    axes.set_ylabel(context.texts("axis.power", margin=exact_text(margin)))
    _add_prices(axes, context)
    legend_below(figure, axes)
    add_note(figure, context.texts("figure_note.power", arms=len(analysis.treatments), fewest=fewest))
    return figure


def _add_prices(axes: Any, context: ReportContext) -> None:
    """A second axis: what all arms cost with so many fresh seeds; none if no run has a price."""
    per_cell = context.analysis.spending.price_per_cell
    if not per_cell:
        return
    per_seed = per_cell * len(context.analysis.evidence.arms)
    above = axes.secondary_xaxis("top", functions=(lambda seeds: seeds * per_seed, lambda price: price / per_seed))
    currency = context.analysis.spending.currency
    above.set_xlabel(context.texts("axis.price") + (f" ({currency})" if currency else ""))
