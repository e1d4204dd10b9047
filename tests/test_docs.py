"""Documents: links lead somewhere, the README is short, results are tables with short paragraphs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", without_code(page))
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_the_animation_of_the_readme_is_small() -> None:
    assert (ROOT / "docs" / "images" / "agent.gif").stat().st_size < 1_500_000


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=lambda page: page.stem)
def test_results_have_tables_and_short_paragraphs(page: Path) -> None:
    blocks = [block.strip().splitlines() for block in re.split(r"\n\s*\n", without_code(page))]
    prose = [lines for lines in blocks if not lines[0].startswith(("|", "-", "#"))]
    assert any(lines[0].startswith("|") for lines in blocks)
    assert [lines[0] for lines in prose if len(lines) > 4] == []
