"""Documents: links lead somewhere, the README is short, results are tables with short paragraphs and list items."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
GALLERY = sorted((ROOT / "gallery").glob("*/README.md"))
RESULTS = sorted((ROOT / "docs" / "results").glob("*.md"))
NOTEBOOK = sorted((ROOT / "docs" / "notebook").glob("*.md"))
MAX_LINES = 4
MAX_COLUMNS = 140


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES + GALLERY, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", without_code(page))
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_the_animation_of_the_readme_is_small() -> None:
    assert (ROOT / "docs" / "images" / "agent.gif").stat().st_size < 1_500_000


def paragraphs(page: Path) -> list[list[str]]:
    """Lines of each paragraph and of each list item; code, tables and headings left out."""
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*#|]|\d+\.)\s)", without_code(page))
    texts = [block.strip() for block in blocks]
    return [text.splitlines() for text in texts if text and not text.startswith(("|", "#"))]


def too_long(lines: list[str]) -> bool:
    return len(lines) > MAX_LINES or any(len(line) > MAX_COLUMNS for line in lines)


@pytest.mark.parametrize("page", RESULTS + GALLERY, ids=page_name)
def test_results_have_tables(page: Path) -> None:
    assert "\n|---" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", RESULTS + NOTEBOOK + GALLERY, ids=page_name)
def test_paragraphs_are_short(page: Path) -> None:
    assert [lines[0] for lines in paragraphs(page) if too_long(lines)] == []


@pytest.mark.parametrize("page", GALLERY, ids=page_name)
def test_gallery_pages_have_one_structure(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"^# .+\n\n\*\*Claim\.\*\*", text)
    assert re.findall(r"^## (.+)", text, re.MULTILINE) == ["What was found", "Limits", "How it was made"]
    for label in ("Command", "Commit", "Machine", "Wall time", "Stored here"):
        assert re.search(rf"^- {label}\b.*:", text, re.MULTILINE), label
