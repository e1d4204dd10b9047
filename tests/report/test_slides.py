"""The deck says what the report says, within its pages."""

from pathlib import Path

import numpy as np
import pytest
from pptx import Presentation

from dreamproof.report import write_all
from dreamproof.report.language import LANGUAGES
from dreamproof.runs.layout import StudyFolder
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
    deck = Presentation(str(StudyFolder(users_case).reports_in(language) / "slides.pptx"))
    assert len(deck.slides) >= 8
    for slide in deck.slides:
        for shape in slide.shapes:
            assert shape.left >= 0 and shape.top >= 0
            assert shape.left + shape.width <= deck.slide_width and shape.top + shape.height <= deck.slide_height


def test_the_deck_holds_answer_verdict_and_price(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(curves=False))
    write_all(root)
    shown = "\n".join(texts(root / "reports" / "slides.pptx"))
    assert "In return under id, full is better than baseline, but not shown to keep the limit" in shown
    assert "+4.1 [3.5, 4.7]" in shown and "p (Holm)" in shown and "GPU hours, ¥" in shown
    assert "\ue000" not in shown and "`" not in shown and "**" not in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_tables_are_narrow_and_large_enough_to_read(tmp_path: Path, language: str) -> None:
    kinds = (("id", "in_distribution"), *((f"shifted_far_{n}", "genuine") for n in range(9)))
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=2, conditions=kinds, trails=False))
    write_all(root, language, figures=False)
    slides = Presentation(str(StudyFolder(root).reports_in(language) / "slides.pptx")).slides
    shown = [shape.table for slide in slides for shape in slide.shapes if shape.has_table]
    assert len(shown) == (4 if language == "en" else 3) and max(len(table.columns) for table in shown) <= 5
    cells = [cell for table in shown for row in table.rows for cell in row.cells]
    points = {run.font.size.pt for cell in cells for p in cell.text_frame.paragraphs for run in p.runs}
    assert min(points) >= 14


def test_the_answer_is_the_largest_text_of_the_first_slide(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(curves=False, trails=False))
    write_all(root, figures=False)
    first = Presentation(str(root / "reports" / "slides.pptx")).slides[0]
    frames = [shape.text_frame for shape in first.shapes if shape.has_text_frame and shape.text_frame.text]
    sizes = {frame.text: frame.paragraphs[0].runs[0].font.size.pt for frame in frames}
    largest = max(sizes, key=lambda text: sizes[text])
    assert largest.startswith("In return under id, full is better than baseline") and sizes[largest] >= 28


def test_final_peak_and_distance_have_their_slides(tmp_path: Path) -> None:
    def riding(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
        return {"return": generator.normal(size=10), "forward/metres": np.full(10, 30.0 + seed)}

    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), constraint=None, draw=riding))
    write_all(root, figures=False)
    shown = texts(root / "reports" / "slides.pptx")
    assert {"peak (not a result)", "10.0 ± 1.6", "distance (m)", "32.0 ± 1.6"} <= set(shown)
    assert "mass_x2" not in shown  # only the deciding condition has room


def test_without_python_pptx_the_report_says_how_to_get_it(users_case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamproof.report.slides_available", lambda: False)
    written = write_all(users_case, figures=False)
    assert not [path for path in written if path.suffix == ".pptx"]
    assert "pip install 'dreamproof[slides]'" in (users_case / "reports" / "appendix.md").read_text()
