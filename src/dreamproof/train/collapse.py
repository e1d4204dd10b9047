"""The validation curve of a run: its summary, and collapses of the return."""

from itertools import pairwise

from dreamproof.base.lines import each_row, read_rows
from dreamproof.runs.layout import RunFolder
from dreamproof.runs.records import CollapseRecord, SummaryRecord
from dreamproof.settings.train import Collapse

Curve = dict[int, float]


def validation_curve(run: RunFolder, until_agent_steps: int) -> Curve:
    """Mean validation returns by agent steps; the later row of a step counts."""
    # Row by row: it is read at every save, and the log grows during the whole run.
    rows = (row for row in each_row(run.metrics) if "validation/return" in row)
    found = {int(row["agent_steps"]): float(row["validation/return"]) for row in rows}
    return {steps: found[steps] for steps in sorted(found) if steps <= until_agent_steps}


def past_collapses(run: RunFolder, before_agent_steps: int) -> list[CollapseRecord]:
    """Collapses recorded before a step, oldest first: a resumed run repeats its last steps."""
    records = [CollapseRecord.model_validate(row) for row in read_rows(run.collapses)]
    return [record for record in records if record.agent_steps < before_agent_steps]


def find_collapse(curve: Curve, past: list[CollapseRecord], settings: Collapse) -> int | None:
    """Agent steps of the best validation, if the newest ones since the last collapse are all far below it."""
    since = max((record.agent_steps for record in past), default=-1)
    recent = [value for steps, value in curve.items() if steps > since][-settings.evaluations :]
    if len(recent) < settings.evaluations or settings.fraction == 0:
        return None
    best = _best(curve)
    # A fraction of a return is a threshold only if the return is positive.
    collapsed = curve[best] > 0 and all(value < settings.fraction * curve[best] for value in recent)
    return best if collapsed else None


def summarise(curve: Curve, past: list[CollapseRecord]) -> SummaryRecord:
    """Peak, final and area of a curve that has at least one point."""
    final, peak = max(curve), _best(curve)
    spans = [(after - before, (curve[before] + curve[after]) / 2) for before, after in pairwise(curve)]
    whole = sum(width for width, _ in spans)
    return SummaryRecord(
        final_return=curve[final],
        final_agent_steps=final,
        peak_return=curve[peak],
        peak_agent_steps=peak,
        area_return=sum(width * mean for width, mean in spans) / whole if whole else curve[final],
        validations=len(curve),
        collapses=len(past),
        rollbacks=sum(record.rolled_back_to is not None for record in past),
    )


def _best(curve: Curve) -> int:
    """The earliest maximum."""
    return max(curve, key=lambda steps: (curve[steps], -steps))
