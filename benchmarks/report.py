"""How long the documents of large studies take: `python -m benchmarks.report`. Figures are timed apart."""

import tempfile
import time
from pathlib import Path

from dreamproof.report import write_all
from dreamproof.testing.made_study import Plan, make_study

CONDITIONS = (("id", "in_distribution"), *((f"shift{number}", "genuine") for number in range(1, 8)))
STUDIES = {
    "4 arms × 5 seeds × 8 conditions": (Plan(conditions=CONDITIONS), 5.0),
    "25 arms × 50 seeds × 8 conditions": (
        Plan(arms=tuple(f"arm{number:02}" for number in range(25)), seeds=50, conditions=CONDITIONS),
        10.0,
    ),
}


def main() -> None:
    """Prints wall seconds of all documents without figures, and of the same with them."""
    for name, (plan, limit) in STUDIES.items():
        with tempfile.TemporaryDirectory() as folder:
            root = make_study(Path(folder) / "study", plan)
            seconds = []
            for figures in (False, True):
                began = time.perf_counter()
                write_all(root, figures=figures)
                seconds.append(time.perf_counter() - began)
        met = "met" if seconds[0] < limit else "NOT MET"
        print(f"{name:<36} {seconds[0]:6.1f} s  limit {limit:g} s  {met}   with figures {seconds[1]:.1f} s")


if __name__ == "__main__":
    main()
