"""All words a report uses, in one catalogue file a language; the same keys in each."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from dreamproof.base.errors import BadInput
from dreamproof.base.text import nearest_word

# A space parts Chinese from Latin text; where a Chinese word fills the place it would part two characters.
BETWEEN_CHARACTERS = re.compile(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])")
FOLDER = Path(__file__).parent / "languages"
LANGUAGES = ("en", "zh-Hans", "zh-Hant")


class Words:
    """The catalogue of one language; called with a key and what its sentence speaks of."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self.texts = texts

    def __call__(self, key: str, **facts: object) -> str:
        """The sentence of `key`, filled in; a key that is not in the catalogue is a mistake in the program."""
        text = self.texts[key].format(**facts)
        return BETWEEN_CHARACTERS.sub("", text) if self.chinese else text

    def has(self, key: str) -> bool:
        return key in self.texts

    def or_itself(self, prefix: str, name: str) -> str:
        """The word for a code such as a cause of death, or the code where a newer one has no word."""
        return self.texts.get(f"{prefix}.{name}", name)

    @property
    def chinese(self) -> bool:
        return self.language.startswith("zh")


@lru_cache(maxsize=8)
def read_words(language: str) -> Words:
    """The catalogue of a language by its tag."""
    if language not in LANGUAGES:
        near = nearest_word(language, LANGUAGES)
        hint = f"; did you mean '{near}'?" if near else ""
        raise BadInput(f"'{language}' is not a language of reports{hint}", f"--language {'|'.join(LANGUAGES)}")
    content = yaml.safe_load((FOLDER / f"{language}.yaml").read_text(encoding="utf-8"))
    return Words(language, dict(_flat(content, "")))


def _flat(content: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, str(value))]
    return found
