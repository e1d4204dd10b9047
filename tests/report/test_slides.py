"""The deck says what the report says, within its pages."""

from pathlib import Path

import pytest
from made_study import Plan, make_study
from pptx import Presentation

from dreamproof.report import write_all
from dreamproof.report.language import LANGUAGES


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
    said = "\n".join(texts(root / "reports" / "slides.pptx"))
    assert "full is better than baseline in return under id: +4.08" in said
    assert "\ue000" not in said and "`" not in said and "**" not in said


def test_without_python_pptx_the_report_says_how_to_get_it(users_case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dreamproof.report.slides_available", lambda: False)
    written = write_all(users_case, figures=False)
    assert not [path for path in written if path.suffix == ".pptx"]
    assert "pip install 'dreamproof[slides]'" in (users_case / "reports" / "decision.md").read_text()
