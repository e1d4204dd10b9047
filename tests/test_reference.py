"""docs/reference.md is generated from the code and must be up to date."""

from dreamproof.testing.json_fields import MEANINGS, WRITTEN
from dreamproof.testing.reference import PAGE, page, printed_fields, verbs


def test_the_reference_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run make reference"


def test_every_verb_has_a_section_and_so_has_its_json() -> None:
    text = page()
    assert {"run", "data inspect"} <= verbs().keys()
    for name, verb in verbs().items():
        assert f"### `dreamproof {name}`\n" in text
        if any("--json" in item.opts for item in verb.params):
            assert name in MEANINGS.keys() | WRITTEN.keys()


def test_every_printed_field_has_a_meaning_and_every_meaning_a_field() -> None:
    assert {verb: set(fields) for verb, fields in printed_fields().items()} == {
        verb: set(meanings) for verb, meanings in MEANINGS.items()
    }
