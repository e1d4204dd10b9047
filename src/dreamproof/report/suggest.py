"""Proposes which cells of a user's own tables are which numbers, from the headers of those tables."""

import re
from pathlib import Path

from dreamproof.report.data import StudyEvidence
from dreamproof.report.numbers import Numbers
from dreamproof.report.rebind import NUMBER, Binding, table_cells

# What a header may say besides a condition if it means the deciding metric; any other word may mean another number.
SCORE_WORDS = {
    "score", "scores", "mean", "means", "average", "avg", "value", "values", "result", "results", "final", "test",
    "eval", "evaluation", "performance", "sd", "std", "stdev", "得分", "分数", "分數", "成绩", "成績",
    "均值", "平均", "平均值", "标准差", "標準差", "结果", "結果", "最终得分", "最終得分",
}  # fmt: skip
WORD = re.compile(r"[a-z0-9@]+|[\u3400-\u9fff]+")


def suggest(path: Path, numbers: Numbers, evidence: StudyEvidence) -> list[Binding]:
    """Bindings for table cells whose row is an arm and whose header says which metric and condition it means."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    found = []
    for start, end, row, column in table_cells(text):
        place = _meant(column, evidence) if row in evidence.arms else None
        spots = re.findall(NUMBER, text[start:end])
        keys = [f"main.{row}.{place}.{part}" for part in ("mean", "sd")[: len(spots)]]
        fits = len(spots) == 1 or (len(spots) == 2 and "±" in text[start:end])
        if place is not None and fits and all(key in numbers.by_key for key in keys):
            found.append(Binding(keys=keys, row=row, column=column))
    return found


def _meant(column: str, evidence: StudyEvidence) -> str | None:
    """condition, or condition.metric, that a header means; None if it says too little or something else."""
    header, deciding = column.lower(), evidence.study.metric.name
    metrics = [name for name in evidence.metrics if _names(header, name)]
    conditions = [name for name in evidence.conditions if _names(header, name)]
    for name in sorted([*metrics, *conditions], key=len, reverse=True):
        header = header.replace(name.lower(), " ")
    if len(conditions) > 1 or len(metrics) > 1 or not (conditions or metrics):
        return None
    if any(word not in SCORE_WORDS for word in WORD.findall(header)):
        return None
    condition = conditions[0] if conditions else evidence.primary_condition
    return condition if metrics in ([], [deciding]) else f"{condition}.{metrics[0]}"


def _names(header: str, name: str) -> bool:
    """Whether a header holds this name as words of its own: `id` is in "ID score" and not in "validation"."""
    return re.search(rf"(?<![a-z0-9]){re.escape(name.lower())}(?![a-z0-9])", header) is not None
