"""What a study can decide at best, before money is spent: what would forbid a verdict, and the smallest that could."""

import os
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dreamproof.base.text import count_text, duration_text, money_text
from dreamproof.report.data import Group
from dreamproof.report.lints.comparable import SAME_LENGTH
from dreamproof.report.lints.values import says_peak
from dreamproof.report.loading import analysis_changes, declared_before_results, load
from dreamproof.report.rounding import digits_apart, exact_text
from dreamproof.settings.study import CommandTrainer, Study, StudyCondition
from dreamproof.stats.limits import fewest_seeds_to_keep
from dreamproof.stats.permutation import fewest_seeds, smallest_possible_p
from dreamproof.stats.power import ALPHA, sd_upper_bound, seeds_needed
from dreamproof.stats.sequential import make_look_plan
from dreamproof.study.ledger.chain import checked_rows
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.money.budget import money_reserve
from dreamproof.study.money.spending import Forecast, cell_seconds, money_per_ms
from dreamproof.study.plan.commands import trains_no_policy
from dreamproof.study.plan.gap import find_gap
from dreamproof.study.plan.open_study import OpenStudy
from dreamproof.study.views.overview import seeds_text

FORBIDS, LIMITS = "forbids", "limits"
NAMED_SHIFT = re.compile(r"(?<![a-z])(ood|out_of_distribution|shift|genuine|real)(?![a-z])", re.IGNORECASE)


@dataclass(frozen=True)
class Obstacle:
    """Something that will forbid a verdict, or limit what may be said."""

    level: str
    code: str
    text: str


@dataclass(frozen=True)
class SmallestStudy:
    """The fewest cells with which the question could be decided; time and money None if no speed is known."""

    arms: list[str]
    seeds_per_arm: int
    cells: int
    missing_cells: int
    wall_seconds: float | None
    money: float | None
    spread_is_known: bool
    is_new: bool = False
    """Whether it must be another study: results are known, and it needs more seeds than were declared before."""

    def text(self, currency: str | None) -> str:
        """The proposal in one line."""
        arms = f"{' and '.join(self.arms)}, {count_text(self.seeds_per_arm, 'seed')} each"
        price = "price unknown before a speed is measured (dreamproof check, or a first cell)"
        if self.wall_seconds is not None:
            price = f"{duration_text(self.wall_seconds)} of work, {money_text(self.money, currency)}"
        spread = "" if self.spread_is_known else "; more if the spread over seeds turns out large"
        cells = f"{count_text(self.cells, 'cell')}, {self.missing_cells} of them missing"
        return f"{'in a new study: ' if self.is_new else ''}{arms}: {cells}; {price}{spread}"


@dataclass(frozen=True)
class Prospects:
    """What stands between a study and a verdict."""

    obstacles: list[Obstacle]
    smallest: SmallestStudy | None

    def lines(self, currency: str | None) -> list[str]:
        """The same for people; nothing if the declared study can decide."""
        lines = [f"{one.level:<12}{one.text}" for one in self.obstacles]
        if self.smallest is not None and any(one.level == FORBIDS for one in self.obstacles):
            lines.append(f"smallest    {self.smallest.text(currency)}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        smallest = asdict(self.smallest) if self.smallest is not None else None
        return {"obstacles": [asdict(one) for one in self.obstacles], "smallest_study": smallest}


def find_prospects(opened: OpenStudy, forecast: Forecast, spent: float, rates: dict[str, float]) -> Prospects:
    """Everything that would later forbid a verdict, as far as the declaration and the ledger show it."""
    study, state = opened.study, opened.state
    planned = _planned(opened)
    counted = planned or study
    found = [
        *_declaration(study),
        *_changes(opened),
        *_late_seeds(study, planned),
        *_seeds(counted, planned is not None),
        *_limits(counted),
        *_lengths(study, state),
        *(one for condition in study.conditions for one in _condition(study, condition)),
        *_budget(study, forecast, spent),
        *_documents(opened),
    ]
    return Prospects(sorted(found, key=lambda one: one.level != FORBIDS), _smallest(opened, planned, rates))


def _planned(opened: OpenStudy) -> Study | None:
    """The study with the seeds that count: those declared before results were known; None if there are no results."""
    declared, results_are_known = declared_before_results(checked_rows(opened.folder.ledger))
    if declared is None or not results_are_known:
        return None
    most = max(len(declared.seeds), declared.maximum_seeds or 0)
    plan = {"seeds": opened.study.seeds[:most], "maximum_seeds": declared.maximum_seeds}
    return opened.study.model_copy(update=plan)


def _changes(opened: OpenStudy) -> list[Obstacle]:
    """What was changed after results were known and forbids every verdict."""
    changes = analysis_changes(checked_rows(opened.folder.ledger), opened.study)
    text = (
        f"changed when results were known, so a verdict could have been chosen by them: {'; '.join(changes)}. Undo the "
        "change, or declare a new study with a folder of its own"
    )
    return [Obstacle(FORBIDS, "analysis_changed", text)] if changes else []


def late_changes(opened: OpenStudy) -> list[str]:
    """What `run` says before it trains what will not count; nothing where it trains nothing."""
    planned = _planned(opened)
    if planned is None:
        return []
    if changes := _changes(opened):
        return [one.text for one in changes]
    late = set(opened.study.seeds) - set(planned.seeds)
    if not any(one.cell.seed in late for one in find_gap(opened.state).train):
        return []
    return [one.text for one in _late_seeds(opened.study, planned)]


def _late_seeds(study: Study, planned: Study | None) -> list[Obstacle]:
    """Seeds that were declared after results were known."""
    if planned is None:
        return []
    most, late = max(len(planned.seeds), planned.maximum_seeds or 0), study.seeds[len(planned.seeds) :]
    if late:
        named = f"{'seed' if len(late) == 1 else 'seeds'} {seeds_text(late)}"
        found = f"{named}: declared after results were known, so trained but not counted in the verdict"
    elif (study.maximum_seeds or 0) > most:
        found = f"maximum_seeds {study.maximum_seeds}: declared after results were known, so more seeds do not count"
    else:
        return []
    text = (
        f"{found}; it rests on the {count_text(most, 'seed')} per arm declared before. For more seeds declare a new "
        "study with a folder of its own, or maximum_seeds before the first result"
    )
    return [Obstacle(LIMITS, "late_seeds", text)]


def _declaration(study: Study) -> list[Obstacle]:
    found = []
    if len(study.arms) < 2:
        found.append(Obstacle(FORBIDS, "one_arm", "one arm: there is nothing to compare it with"))
    if study.arms_on_other_tasks:
        text = "the arms are trained on different tasks: each is reported by itself, and none is compared"
        if study.treatments:
            text = f"not compared with {study.reference}, on other tasks: {', '.join(study.arms_on_other_tasks)}"
        found.append(Obstacle(LIMITS, "different_tasks", text))
    if not study.conditions and trains_no_policy(study, study.reference):
        text = "it trains world models and no policy, so there is nothing to evaluate or to compare"
        found.append(Obstacle(FORBIDS, "no_policy", text))
    elif not study.conditions:
        how = "add 'conditions: [id]'"
        if isinstance(study.trainer, CommandTrainer) and study.trainer.evaluate is None:
            how += " and 'trainer.evaluate'"
        text = f"no evaluation is declared: values of training logs give no verdict; {how}"
        found.append(Obstacle(FORBIDS, "no_evaluation", text))
    if says_peak(study.metric.name) and study.metric.checkpoint_rule is None:
        text = f"the metric {study.metric.name} is named after its best value: declare metric.checkpoint_rule"
        found.append(Obstacle(FORBIDS, "peak_named", text))
    return found


def _level(study: Study, comparisons: int) -> float:
    """The p that the last look must reach, shared among so many comparisons."""
    plan = make_look_plan(len(study.seeds), study.maximum_seeds)
    return min(plan.level(len(plan.looks) - 1, comparisons), ALPHA)


def _seeds(study: Study, results_are_known: bool) -> list[Obstacle]:
    most = max(len(study.seeds), study.maximum_seeds or 0)
    is_compared = bool(study.treatments) or not study.arms_on_other_tasks
    if most == 1:
        text = "one seed per arm: nothing shows how much seeds differ"
        return [Obstacle(FORBIDS if is_compared else LIMITS, "one_seed", text)]
    if not is_compared:
        return []
    comparisons = max(1, len(study.treatments))
    reachable = smallest_possible_p(most, study.paired_seeds)
    level = _level(study, comparisons)
    if reachable <= level:
        return [] if results_are_known else _first_analysis(study, comparisons)
    needed = fewest_seeds(level, study.paired_seeds)
    where = "in a new study, " if results_are_known else ""
    digits = digits_apart(reachable, level, 3)
    text = (
        f"{count_text(most, 'seed')} per arm and {count_text(comparisons, 'comparison')}: the smallest possible p is "
        f"{reachable:.{digits}f}, needed is {level:.{digits}f} or less; {where}{needed} seeds per arm could decide"
    )
    return [Obstacle(FORBIDS, "too_few_seeds", text)]


def _first_analysis(study: Study, comparisons: int) -> list[Obstacle]:
    """A first analysis that has too few seeds for any verdict, although the last one has enough."""
    plan = make_look_plan(len(study.seeds), study.maximum_seeds)
    level, reachable = plan.level(0, comparisons), smallest_possible_p(plan.looks[0], study.paired_seeds)
    if reachable <= level:
        return []
    better = next(
        count
        for count in range(plan.looks[0] + 1, plan.maximum + 1)
        if smallest_possible_p(count, study.paired_seeds) <= make_look_plan(count, plan.maximum).level(0, comparisons)
    )
    digits = digits_apart(reachable, level, 4)
    text = (
        f"the analysis at {count_text(plan.looks[0], 'seed')} per arm cannot decide: p is at least "
        f"{reachable:.{digits}f}, and {count_text(comparisons, 'comparison')} in the first of {len(plan.looks)} "
        f"analyses need {level:.{digits}f}; "
        f"seeds: {better} could"
    )
    return [Obstacle(LIMITS, "first_analysis", text)]


def _limits(study: Study) -> list[Obstacle]:
    """Limits that can never be shown to be kept."""
    found = []
    plan = make_look_plan(len(study.seeds), study.maximum_seeds)
    fewest, most = (
        fewest_seeds_to_keep(plan.level(len(plan.looks) - 1)),
        max(len(study.seeds), study.maximum_seeds or 0),
    )
    if study.limits and most < fewest:
        text = f"{count_text(most, 'seed')} per arm never show that a limit is kept: {fewest} are the fewest"
        found.append(Obstacle(LIMITS, "limit_seeds", text))
    for limit in study.limits:
        if limit.at_most <= 0:
            named = f"{limit.name} at most {exact_text(limit.at_most)}"
            text = f"{named}: values that are never below 0 cannot show that it is kept"
            found.append(Obstacle(LIMITS, "limit_zero", text))
    return found


def _lengths(study: Study, state: StudyState) -> list[Obstacle]:
    """Proven cells of different lengths, and imported runs that are too short to be used."""
    proven = [cell.proof.agent_steps for cell in state.cells.values() if cell.proof is not None]
    lengths = [*proven, study.agent_steps] if any(not state.trained(cell) for cell in state.cells.values()) else proven
    found = []
    if lengths and max(lengths) > SAME_LENGTH * min(lengths) and _differ(study, lengths):
        text = f"cells have {min(lengths):,} to {max(lengths):,} agent steps: declare agent_steps_tolerance, or retrain"
        found.append(Obstacle(FORBIDS, "different_lengths", text))
    short = {
        str(cell.cell): run["of_agent_steps"]
        for cell in state.cells.values()
        for run in cell.outside
        if run.get("of_agent_steps") and _differ(study, [run["of_agent_steps"], study.agent_steps])
    }
    if short:
        shown = ", ".join(f"{cell} ({steps:,})" for cell, steps in list(short.items())[:5])
        text = f"imported runs of another length than {study.agent_steps:,} agent steps cannot be used: {shown}"
        found.append(Obstacle(LIMITS, "imported_lengths", text))
    return found


def _differ(study: Study, lengths: list[int]) -> bool:
    return max(lengths) - min(lengths) > study.agent_steps_tolerance


def _condition(study: Study, condition: StudyCondition) -> list[Obstacle]:
    """A proxy imitates a shift: nothing may be said about the shift itself."""
    is_proxy = condition.kind == "proxy" or (condition.kind is None and bool(condition.settings))
    if condition.kind == "genuine" or not (is_proxy or NAMED_SHIFT.search(condition.name)):
        return []
    named = " although it is named so" if NAMED_SHIFT.search(condition.name) else ""
    what = "is a proxy" if is_proxy else "declares no kind"
    deciding = condition.name in {study.metric.condition, *study.named_by_decides}
    verdict = "; the verdict is taken on it" if deciding else ""
    text = (
        f"condition {condition.name} {what}: no claim about a real shift (OOD) follows from it{named}{verdict}; "
        "declare 'kind: genuine' only if the environment itself changes"
    )
    return [Obstacle(LIMITS, "proxy", text)]


def _budget(study: Study, forecast: Forecast, spent: float) -> list[Obstacle]:
    """A budget that is reached before the gap is closed, by the rule of the supervisor."""
    budget, currency, kept = study.money.budget, study.money.currency, money_reserve(study).money
    if budget is None or not (forecast.cells or forecast.eval_cells):
        return []
    left, needed = budget - spent - kept, forecast.money or 0.0
    digits = digits_apart(needed, left, 2)
    shown = [money_text(amount, currency, digits) for amount in (needed, max(0.0, budget - spent), kept)]
    if left <= 0 < kept:
        text = (
            f"nothing can start: {shown[1]} of the budget are left, and {shown[2]} are kept back for saving and reports"
        )
        return [Obstacle(FORBIDS, "budget_reached", text)]
    if needed <= left:
        return []
    text = f"the missing cells take about {shown[0]}, and {shown[1]} of the budget are left"
    return [Obstacle(FORBIDS, "budget", f"{text}, of which {shown[2]} are kept back for saving and reports")]


def _documents(opened: OpenStudy) -> list[Obstacle]:
    places = [opened.base_folder / document.file for document in opened.study.report.update]
    return [
        Obstacle(LIMITS, "no_document", f"report.update: {place} does not exist")
        for place in places
        if not os.path.isfile(place)
    ]


def _smallest(opened: OpenStudy, planned: Study | None, rates: dict[str, float]) -> SmallestStudy | None:
    """The reference and the arm of the question, or the last one, with as many seeds as a verdict needs at least."""
    study, state = opened.study, opened.state
    others = study.treatments
    if not others:
        return None
    named = [arm for arm in others if arm in study.question]
    arms = [study.reference, (named or others)[-1]]
    level = _level(planned or study, 1)
    count, spread = fewest_seeds(level, study.paired_seeds), _spread(opened, arms)
    needed = seeds_needed(study.metric.smallest_difference, spread, level) if spread is not None else None
    count = max(count, needed or 0)
    trained = [cell.cell for cell in state.cells.values() if cell.cell.arm in arms and state.trained(cell)]
    is_new = planned is not None and count > max(len(planned.seeds), planned.maximum_seeds or 0)
    missing = len(arms) * count - (0 if is_new else min(len(trained), len(arms) * count))
    seconds = [cell_seconds(state, arm, rates) for arm in arms]
    each = None if None in seconds else sum(filter(None, seconds)) / len(arms)
    work = None if each is None else each * missing
    price = None if work is None else work * 1000 * money_per_ms(study.money)
    return SmallestStudy(arms, count, len(arms) * count, missing, work, price, spread is not None, is_new)


def _spread(opened: OpenStudy, arms: list[str]) -> float | None:
    """An upper bound of the spread over seeds, from evaluations that are proven already."""
    if not any(known.proof is not None for known in opened.state.eval_cells.values()):
        return None
    values, metric = load(opened.folder.root, opened.study).values, opened.study.metric
    groups = [list(values.get(Group(arm, metric.condition, metric.name), {}).values()) for arm in arms]
    spreads = [(float(np.var(group, ddof=1)), len(group) - 1) for group in groups if len(group) >= 2]
    freedom = sum(degrees for _, degrees in spreads)
    if not freedom:
        return None
    pooled = float(np.sqrt(sum(variance * degrees for variance, degrees in spreads) / freedom))
    return sd_upper_bound(pooled, freedom)
