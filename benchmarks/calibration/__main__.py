"""Prints the page of calibrations, or keeps it."""

import argparse
import sys
from pathlib import Path

from benchmarks.calibration import factor, limits, rates, shapes, verdicts

PAGE = Path(__file__).parent.with_name("CALIBRATION.md")
HEAD = (
    "Written by `python -m benchmarks.calibration` (`--part NAME --studies N` makes one part); random numbers are "
    "fixed, and every section names its number of studies."
)
PARTS = {
    "verdicts": verdicts.blocks,
    "shapes": shapes.blocks,
    "rates": rates.blocks,
    "limits": limits.blocks,
    "factor": factor.blocks,
}


def page(studies: int) -> str:
    """The whole page."""
    sections = [block for blocks in PARTS.values() for block in blocks(studies)]
    return "\n\n".join(["# Calibration of the statistics", HEAD, *sections]) + "\n"


def main() -> None:
    """Prints the page or one part of it; `--write` replaces the kept page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000, help="simulated studies a row")
    parser.add_argument("--part", choices=PARTS, help="print one part only")
    parser.add_argument("--write", action="store_true", help=f"replace {PAGE.name}")
    arguments = parser.parse_args()
    if arguments.part is not None:
        sys.stdout.write("\n\n".join(PARTS[arguments.part](arguments.studies)) + "\n")
        return
    text = page(arguments.studies)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
