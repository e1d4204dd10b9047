"""No headline is made of peaks unless the study explains them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dreamproof.report import make_context, write_all
from dreamproof.report.lints.lint import BLOCK
from dreamproof.report.lints.values import says_peak
from dreamproof.stats.verdict import Kind

VALUES = {"a": [1.0, 1.2, 0.9, 1.1, 1.05], "b": [5.0, 5.2, 4.9, 5.1, 5.05], "c": [1.1, 1.0, 1.05, 0.95, 1.15]}
Study = Callable[..., Path]


def rows(metric: str, checkpoint: str, condition: str = "id") -> str:
    return "".join(
        f"{arm},{seed},{condition},{checkpoint},{metric},{value}\n"
        for arm, values in VALUES.items()
        for seed, value in enumerate(values)
    )


def declare(root: Path, old: str, new: str) -> Path:
    path = root / "study.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return root


def blocking(root: Path) -> list[str]:
    return [lint.code for lint in make_context(root, "en").analysis.lints if lint.level == BLOCK]


@pytest.mark.parametrize("name", ["peak_R", "R_max10", "峰值R", "best return", "R.best", "Max-R"])
def test_a_metric_that_says_peak_gets_no_verdict(imported_study: Study, name: str) -> None:
    both = rows(name, "final") + rows(name, "final", "shifted").replace("5.2", "5.3")
    root = declare(imported_study(both), "name: score", f"name: {name}")
    assert "peak_named" in blocking(root)
    assert {verdict.kind for verdict in make_context(root, "en").analysis.verdicts.values()} == {Kind.CANNOT_DECIDE}
    explained = declare(root, f"name: {name}", f"name: {name}, checkpoint_rule: the last one")
    assert blocking(explained) == []
    write_all(explained, figures=False)
    assert "Checkpoint of every value: the last one." in (root / "reports" / "decision.md").read_text()


def test_ordinary_names_do_not_say_peak() -> None:
    assert not any(map(says_peak, ("return", "score", "maximise", "climax", "stopwatch", "final", "selected", "R")))


def test_a_table_without_checkpoints_gets_no_verdict(imported_study: Study) -> None:
    root = imported_study(rows("score", "") + rows("score", "final", "shifted").replace("5.2", "5.3"))
    assert "checkpoint_unknown" in blocking(root)
    assert blocking(declare(root, "name: score", "name: score, checkpoint_rule: the last one")) == []


def test_imported_peaks_stand_in_the_key_table_as_peaks(imported_study: Study) -> None:
    root = imported_study(rows("score", "peak", "train"))
    write_all(root, figures=False)
    text = (root / "reports" / "decision.md").read_text()
    assert "| arm | score@peak · training log (peak, not a result) |" in text
    assert "| b | 5.05 ± 0.11 |" in text
