"""Study folders that reports are written from."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture
def users_case(tmp_path: Path) -> Path:
    """The users' first study: 17 of 20 train cells, 16 of 40 eval cells, two seeds in the main table."""
    return Path(shutil.copytree(FIXTURES / "safedreamer_v2", tmp_path / "safedreamer_v2"))


@pytest.fixture
def peaks_case(tmp_path: Path) -> Path:
    """The users' second study: eight runs of one seed, ranked by their peaks, two still running."""
    return Path(shutil.copytree(FIXTURES / "pwm_peaks", tmp_path / "pwm_peaks"))


@pytest.fixture
def imported_study(tmp_path: Path) -> Callable[..., Path]:
    """Makes a study folder out of a results table: arms a, b, c and conditions id (deciding) and shifted."""

    def make(results: str, cells: str | None = None, **changes: str) -> Path:
        root = tmp_path / "made"
        (root / "imported").mkdir(parents=True, exist_ok=True)
        lines = {"seeds": "5", "maximum_seeds": "", "constraint": "", "direction": "higher"} | changes
        maximum = f"maximum_seeds: {lines['maximum_seeds']}\n" if lines["maximum_seeds"] else ""
        limit = f"constraint: {lines['constraint']}\n" if lines["constraint"] else ""
        (root / "study.yaml").write_text(
            "name: made\nquestion: Is b better than a?\n"
            f"metric: {{name: score, smallest_difference: 1.0, direction: {lines['direction']}}}\n{limit}"
            "task: line\n"
            "trainer: {command: [train], evaluate: [evaluate]}\n"
            f"arms: {{a: {{}}, b: {{x: 1}}, c: {{x: 2}}}}\nseeds: {lines['seeds']}\n{maximum}agent_steps: 100\n"
            "conditions: [{name: id, kind: in_distribution}, {name: shifted, kind: genuine}]\n"
        )
        header = "arm,seed,condition,checkpoint,metric,value\n"
        (root / "imported" / "results.csv").write_text(header + results)
        if cells is None:
            rows = [f"{arm},{seed},proven,100" for arm in "abc" for seed in range(int(lines["seeds"]))]
            cells = "\n".join(rows)
        (root / "imported" / "cells.csv").write_text("arm,seed,state,agent_steps\n" + cells + "\n")
        return root

    return make
