"""The deck says what the report says, within its pages."""

from pathlib import Path

import numpy as np
import pytest
from pptx import Presentation

from dreamproof.report import write_all
from dreamproof.report.language import LANGUAGES
from dreamproof.testing.made_study import Plan, make_study


def texts(path: Path) -> list[str]:
    found = []
    for slide in Presentation(str(path)).slides:
        for shape in slide.shapes:
            if shape.has_text_frame:
                found.append(shape.text_frame.text)
            if shape.has_table:
                found += [cell.text for row in shape.table.rows for cell in row.cells]
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_shape_lies_on_its_slide(users_case: Path, language: str) -> None:
    write_all(users_case, language)
    deck = Presentation(str(users_case / "reports" / "slides.pptx"))
    assert len(deck.slides) >= 8
    for slide in deck.slides:
        for shape in slide.shapes:
            assert shape.left >= 0 and shape.top >= 0
            assert shape.left + shape.width <= deck.slide_width and shape.top + shape.height <= deck.slide_height


def test_the_deck_holds_answer_verdict_and_price(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(curves=False))
    write_all(root)
    shown = "\n".join(texts(root / "reports" / "slides.pptx"))
    assert "full is better than baseline in return under id: +4.08" in shown
    assert "\ue000" not in shown and "`" not in shown and "**" not in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_wide_key_table_is_cut_into_slides_that_can_be_read(tmp_path: Path, language: str) -> None:
    kinds = (("id", "in_distribution"), *((f"shifted_far_{n}", "genuine") for n in range(9)))
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=2, conditions=kinds, trails=False))
    write_all(root, language, figures=False)
    shown = [
        shape.table
        for slide in Presentation(str(root / "reports" / "slides.pptx")).slides
        for shape in slide.shapes
        if shape.has_table
    ]
    keys = [table for table in shown if table.cell(0, 1).text.startswith("return\v")]
    assert [len(table.columns) for table in keys] == [5, 5]
    assert [table.cell(1, 0).text for table in keys] == ["baseline", "baseline"]
    points = {run.font.size.pt for table in keys for p in table.cell(1, 1).text_frame.paragraphs for run in p.runs}
    assert min(points) >= 13


def test_final_peak_and_distance_have_their_slides(tmp_path: Path) -> None:
    def riding(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
        return {"return": generator.normal(size=10), "forward/metres": np.full(10, 30.0 + seed)}

    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), constraint=None, draw=riding))
    write_all(root, figures=False)
    shown = texts(root / "reports" / "slides.pptx")
    assert {"peak (not a result)", "10.00 ± 1.58", "distance (m)", "32.00 ± 1.58"} <= set(shown)
    assert "mass_x2" not in shown  # only the deciding condition has room


def test_without_python_pptx_the_report_says_how_to_get_it(users_case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamproof.report.slides_available", lambda: False)
    written = write_all(users_case, figures=False)
    assert not [path for path in written if path.suffix == ".pptx"]
    assert "pip install 'dreamproof[slides]'" in (users_case / "reports" / "decision.md").read_text()
