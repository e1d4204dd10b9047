"""docs/reference.md is generated from the code and must be up to date."""

from dreamproof.testing.reference import PAGE, page


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make reference"


def test_every_verb_has_a_section() -> None:
    text = page()
    for verb in ("plan", "check", "run", "status", "why", "verify", "report", "export", "import"):
        assert f"### `dreamproof {verb}`" in text
