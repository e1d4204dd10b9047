"""Draws recorded test episodes of a study as one animated GIF: `python -m benchmarks.agent_gif STUDY OUT.gif`.

A dashed ring around every hazard is the fixed margin of the arm (`agent.planner.margin`). Margins that follow
disagreement or innovation change with every step and are not recorded, so they are named and not drawn.
"""

import argparse
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.patches import Circle
from PIL import Image

from dreamproof.report.figures.theme import INK, SOFT, arm_styles, look, new_figure
from dreamproof.report.figures.trails import draw_vases, farthest
from dreamproof.report.language import read_texts
from dreamproof.runs.layout import RunFolder, StudyFolder
from dreamproof.runs.reader import read_evaluation
from dreamproof.runs.records import Trail
from dreamproof.runs.resolved import read_resolved
from dreamproof.testing.gallery import unpack

HAZARD, HIT = "#f3c6c0", "#c0392b"
FRAME_MILLISECONDS = 70
PIXELS_PER_INCH = 90


@dataclass(frozen=True)
class Margin:
    """What an arm adds to the radius of hazards: a fixed part in metres, and whether a part of it changes."""

    fixed: float
    changes: bool

    @property
    def text(self) -> str:
        """The line below the panel."""
        parts = [f"fixed margin {100 * self.fixed:g} cm (dashed)"] if self.fixed > 0 else []
        parts += ["margin changes, not recorded"] if self.changes else []
        return ", ".join(parts) or "no margin"


def margin_of(agent: dict[str, Any]) -> Margin:
    """The margin of an arm, from the resolved settings of its agent."""
    planner, risk = agent["planner"], agent["risk"]
    return Margin(planner["margin"], risk["tube"] > 0 or risk["innovation_margin"] > 0)


def frame(trails: dict[str, Trail], margins: dict[str, Margin], step: int) -> Image.Image:
    """One frame: the path of every agent up to `step`, its current goal, its margin, and its cost so far."""
    figure = new_figure(3.2 * len(trails), 3.7)
    panels = figure.subplots(1, len(trails), squeeze=False)[0]
    reach = farthest(trails.values())
    for axes, (arm, trail) in zip(panels, trails.items(), strict=True):
        place = min(step, len(trail.agent) - 1)
        for x, y in trail.hazards:
            axes.add_patch(Circle((x, y), trail.hazard_radius, facecolor=HAZARD, edgecolor=SOFT, linewidth=0.6))
            if margins[arm].fixed > 0:
                ring = {"fill": False, "edgecolor": INK, "linestyle": (0, (3, 2)), "linewidth": 0.8}
                axes.add_patch(Circle((x, y), trail.hazard_radius + margins[arm].fixed, **ring))
        draw_vases(axes, trail, place)
        axes.add_patch(Circle(trail.goal[place], trail.goal_radius, facecolor="#cfe8d8", edgecolor="#2e7d5b"))
        colour = arm_styles(list(trails))[arm].colour
        axes.plot(*zip(*trail.agent[: place + 1], strict=True), color=colour, linewidth=1.2, alpha=0.6)
        hit = trail.cost[place] > 0
        axes.plot(*trail.agent[place], marker="o", markersize=9, color=HIT if hit else colour, markeredgecolor=INK)
        goals = len(set(trail.goal[: place + 1])) - 1
        axes.set_title(f"{arm} · goals {goals} · cost {sum(trail.cost[: place + 1]):.0f}", fontsize=11)
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        axes.set_xlabel(margins[arm].text, fontsize=9)
        axes.grid(visible=False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=PIXELS_PER_INCH)
    return Image.open(content).convert("P", palette=Image.Palette.ADAPTIVE, colors=48)


def read_trail(study: Path, arm: str, seed: int, condition: str) -> Trail:
    """The recorded path of the first evaluation episode of a cell."""
    record = read_evaluation(RunFolder(study / "runs" / f"{arm}-seed{seed}"), condition)
    if record is None or record.trail is None:
        raise SystemExit(f"{arm}/{seed} has no recorded path under {condition}")
    return record.trail


def read_margin(study: Path, arm: str, seed: int) -> Margin:
    """The margin that a cell was trained with."""
    stored = read_resolved(RunFolder(study / "runs" / f"{arm}-seed{seed}"))
    if stored is None:
        raise SystemExit(f"{arm}/{seed} has no record of its settings")
    return margin_of(stored.resolved["settings"]["agent"])


def main() -> None:
    """Reads one evaluation per arm and writes the animation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--arms", default="baseline,margin,full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--condition", default="id")
    parser.add_argument("--every", type=int, default=2, help="agent steps per frame")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        is_packed = StudyFolder(options.study).archive.exists()
        study = unpack(options.study, Path(scratch) / "study") if is_packed else options.study
        arms = options.arms.split(",")
        trails = {arm: read_trail(study, arm, options.seed, options.condition) for arm in arms}
        margins = {arm: read_margin(study, arm, options.seed) for arm in arms}
    length = max(len(trail.agent) for trail in trails.values())
    with look(read_texts("en")):
        frames = [frame(trails, margins, step) for step in range(0, length, options.every)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    frames[0].save(
        options.output, save_all=True, append_images=frames[1:], duration=FRAME_MILLISECONDS, loop=0, optimize=True
    )


if __name__ == "__main__":
    main()
