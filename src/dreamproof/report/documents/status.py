"""Status of the study: done, running, failed with causes, remaining time, and values (final first)."""

from dreamproof.report.context import ReportContext
from dreamproof.report.curves import read_curves
from dreamproof.report.data import Group, StudyEvidence
from dreamproof.report.document import Block, Bullets, CodeBlock, Document, Heading, Paragraph, Picture, Stamp, Table
from dreamproof.report.markdown import cells_text
from dreamproof.report.numbers import metric_decimals, number_text
from dreamproof.report.prose import answer, header
from dreamproof.report.quotes import local_duration, translated
from dreamproof.study.ledger.status import NOT_SAVED

STATES = ("proven", "reported", "running", "unfinished", "stopped", "missing")
FAILED = ("stopped", "unfinished", NOT_SAVED)
MANY_ROWS = 60
QUOTE_LENGTH = 160


def status(context: ReportContext, pictures: list[str]) -> Document:
    """The status report."""
    texts, evidence = context.texts, context.analysis.evidence
    document = Document(texts("status.title", name=evidence.study.name), texts.language)
    document.add(Bullets(header(context)), Heading(texts("status.overview")), _overview(context))
    document.add(CodeBlock(_chart(context), "mermaid"))
    if "coverage" in pictures:
        document.add(Picture("coverage", texts("figure.coverage")))
    document.add(Heading(texts("status.running")), *_running(context))
    document.add(Heading(texts("status.failed")), *_failed(context))
    document.add(Heading(texts("status.eta")), Paragraph(_eta(context)))
    document.add(Heading(texts("status.ranking")), *_ranking(context))
    if "timeline" in pictures:
        document.add(Picture("timeline", texts("figure.timeline")))
    return document


def _overview(context: ReportContext) -> Table:
    texts, evidence = context.texts, context.analysis.evidence
    shown = (*STATES, NOT_SAVED) if context.analysis.spending.not_saved_cells else STATES
    rows = []
    for arm in evidence.arms:
        states = [facts.state for cell, facts in evidence.cells.items() if cell.arm == arm]
        evals = [facts for (cell, _), facts in evidence.evals.items() if cell.arm == arm]
        done = sum(facts.evaluated for facts in evals)
        rows.append([arm, *(str(states.count(state)) for state in shown), f"{done}/{len(evals)}"])
    total = [str(sum(facts.state == state for facts in evidence.cells.values())) for state in shown]
    done = sum(facts.evaluated for facts in evidence.evals.values())
    rows.append([texts("table.total"), *total, f"{done}/{len(evidence.evals)}"])
    return Table([texts("table.arm"), *(texts(f"state.{state}") for state in shown), texts("table.evaluated")], rows)


def _chart(context: ReportContext) -> list[str]:
    """From the declaration to the decision as a Mermaid chart: what is done, and what is missing."""
    texts, analysis = context.texts, context.analysis
    cells, evals = analysis.evidence.cells, analysis.evidence.evals
    missing = [str(cell) for cell, facts in cells.items() if not facts.trained]
    not_evaluated = sum(not facts.evaluated for facts in evals.values())
    decided = sum(not analysis.undecided(arm) for arm in analysis.treatments)
    lines = [
        _node("A", texts("status.chart_declared", cells=len(cells), evals=len(evals))),
        _node("B", texts("status.chart_trained", done=len(cells) - len(missing), total=len(cells)), "A --> "),
        _node("C", texts("status.chart_evaluated", done=len(evals) - not_evaluated, total=len(evals)), "B --> "),
    ]
    if analysis.treatments:
        lines.append(_node("D", texts("status.chart_decided", done=decided, total=len(analysis.treatments)), "C --> "))
    if missing:
        lines.append(_node("M", texts("status.chart_missing", what=cells_text(tuple(missing), 8)), "B -.-> "))
    if not_evaluated:
        what = texts("status.chart_evaluations", count=not_evaluated)
        lines.append(_node("N", texts("status.chart_missing", what=what), "C -.-> "))
    return ["flowchart LR", *lines]


def _node(name: str, text: str, arrow: str = "") -> str:
    """A node of the chart; a quotation mark would end its text."""
    inside = text.replace('"', "'")
    return f'  {arrow}{name}["{inside}"]'


def _running(context: ReportContext) -> list[Block]:
    texts, evidence = context.texts, context.analysis.evidence
    running = [facts for facts in evidence.cells.values() if facts.state == "running"]
    if not running:
        return [Paragraph(texts("status.none_running"))]
    rows = []
    for facts in running[:MANY_ROWS]:
        share = facts.agent_steps / facts.of_agent_steps
        left = facts.wall_seconds / share * (1 - share) if facts.wall_seconds and share > 0 else None
        rows.append([str(facts.cell), f"{facts.agent_steps:,}", f"{share:.0%}", local_duration(left, texts)])
    return [Table([texts(f"table.{name}") for name in ("cell", "agent_steps", "share", "time_left")], rows)]


def _failed(context: ReportContext) -> list[Block]:
    texts, evidence = context.texts, context.analysis.evidence
    failed = [facts for facts in evidence.cells.values() if facts.state in FAILED]
    if not failed:
        return [Paragraph(texts("status.none_failed"))]
    rows = []
    for facts in failed[:MANY_ROWS]:
        quote = translated((facts.evidence[0] if facts.evidence else facts.reason) or "–", texts)
        cause = texts.or_itself("cause", facts.cause or "unknown")
        rows.append([str(facts.cell), cause, f"{facts.agent_steps:,}", str(facts.attempts), quote[:QUOTE_LENGTH]])
    names = ("cell", "cause", "agent_steps", "attempts", "evidence")
    return [Table([texts(f"table.{name}") for name in names], rows, left=(0, 1, 4))]


def _eta(context: ReportContext) -> str:
    texts, spending = context.texts, context.analysis.spending
    seconds = spending.completion_seconds
    if not spending.missing_cells and not spending.missing_evals:
        return texts("status.eta_done")
    if seconds is None or not seconds:
        return texts("status.eta_unknown")
    slots, forecast = context.analysis.evidence.study.backend.slots, spending.forecast
    wall = seconds / slots if forecast is None or forecast.wall_seconds is None else forecast.wall_seconds
    return texts(
        "status.eta_sentence",
        cells=spending.missing_cells,
        evals=spending.missing_evals,
        hours=context.planned_hours(seconds),
        wall=local_duration(wall, texts),
        slots=slots,
        price=context.price(spending.money(seconds)),
    )


def _ranking(context: ReportContext) -> list[Block]:
    """Final values first, peaks beside them; the order is not a claim, and that of the declaration if tasks differ."""
    texts, evidence = context.texts, context.analysis.evidence
    metric = evidence.study.metric
    decimals = metric_decimals(context.analysis).get(metric.name, 3)
    peaks = peak_values(evidence)
    rows = []
    for arm in evidence.arms:
        finals = evidence.values.get(Group(arm, evidence.primary_condition, metric.name), {})
        mean = sum(finals.values()) / len(finals) if finals else None
        known = [value for (owner, _), value in peaks.items() if owner == arm]
        peak = max(known) if known else None
        trained = [facts for cell, facts in evidence.cells.items() if cell.arm == arm]
        share = sum(min(1.0, facts.agent_steps / facts.of_agent_steps) for facts in trained) / len(trained)
        rows.append(
            (mean, [arm, number_text(mean, decimals), str(len(finals)), number_text(peak, decimals), f"{share:.0%}"])
        )
    sign = -1.0 if metric.direction == "higher" else 1.0
    apart = bool(context.analysis.arms_on_other_tasks)
    if not apart:
        rows.sort(key=lambda row: (row[0] is None or row[0] != row[0], sign * (row[0] or 0.0)))
    names = ("arm", "final", "seeds", "peak", "trained_share")
    table = Table([texts(f"table.{name}") for name in names], [row for _, row in rows])
    undecided = [arm for arm in context.analysis.treatments if context.analysis.undecided(arm)]
    kind = "warn" if undecided or not context.analysis.treatments else "note"
    note = texts("status.declared_order" if apart else "status.no_ranking" if undecided else "status.ranking_note")
    return [table, Stamp(kind, texts("status.reading"), note), Paragraph(answer(context))]


def peak_values(evidence: StudyEvidence) -> dict[tuple[str, int], float]:
    """(arm, seed): the highest (or lowest, if lower is better) value seen in training."""
    metric = evidence.study.metric
    found: dict[tuple[str, int], float] = {}
    for group, values in evidence.values.items():
        if group.metric == metric.name and group.checkpoint == "peak":
            found |= {(group.arm, seed): value for seed, value in values.items()}
    for cell, curve in read_curves(evidence, metric.name).items():
        best = curve.peak if metric.direction == "higher" else float(curve.values.min())
        found.setdefault((cell.arm, cell.seed), best)
    return found
