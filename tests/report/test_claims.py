"""Every sentence about the users' two tables that could be read as a claim is listed, and none claims too much."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from pptx import Presentation

from dreamproof.report import write_all

EXPECTED = Path(__file__).parent / "expected"
CLAIM = re.compile(
    r"\b(better|worse|(?<!@)best|equivalent|keeps?|breaks?|safer?|wins?|improve\w*|outperform\w*|prove[ns]?|shows?|shown|"
    r"significant|OOD|out-of-distribution|[Uu]se `|[Dd]rop|decided|real|suffice)\b"
)
HEDGE = re.compile(
    r"\b([Cc]annot|[Nn]ot|[Nn]o|[Nn]one|never|0 of|if|[Oo]nly|overestimates|too high|higher is better|"
    r"forbids a verdict|[Ww]hether|unknown|simulated shift|is tested like|best of many|reported by)\b"
    r"|looks \*\*worse\*\*|[?？]\**$|^✅"
)


def documents(root: Path) -> list[str]:
    texts = [path.read_text(encoding="utf-8") for path in sorted((root / "reports").glob("*.md"))]
    for slide in Presentation(str(root / "reports" / "slides.pptx")).slides:
        for shape in slide.shapes:
            texts.append(shape.text_frame.text if shape.has_text_frame else "")
            if shape.has_table:
                texts += ["| " + " | ".join(cell.text for cell in row.cells) for row in list(shape.table.rows)[1:]]
    return texts


def claims(root: Path) -> list[str]:
    """Sentences, table rows and points with a word that claims something, each once, without links and marks."""
    found: dict[str, None] = {}
    for text in documents(root):
        lines = [*re.sub(r" ?\[E\d+\]\(#e\d+\)", "", text).splitlines(), ""]
        for line, after in pairwise(lines):
            if after.startswith("| ---") or line.startswith("| <a id="):
                continue  # headings of columns, and keys with their cells
            for sentence in re.split(r"(?<=[.?!]) (?=[A-Z`*])", line.strip("-•> ").strip()):
                if CLAIM.search(sentence):
                    found.setdefault(sentence)
    return sorted(found)


@pytest.mark.parametrize("name", ["users_case", "peaks_case"])
def test_every_sentence_that_could_claim_is_listed_and_claims_nothing_too_much(
    name: str, request: pytest.FixtureRequest
) -> None:
    root = request.getfixturevalue(name)
    write_all(root, figures=False)
    seen = claims(root)
    assert [sentence for sentence in seen if not HEDGE.search(sentence)] == []
    assert seen == (EXPECTED / f"claims_{name}.txt").read_text(encoding="utf-8").splitlines()
