"""All texts of reports, one catalogue file per language, with the same keys in each."""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from dreamproof.base.errors import BadInput
from dreamproof.base.text import nearest_word

# Chinese and Latin text are separated by a space, but two Chinese characters are not.
BETWEEN_CHARACTERS = re.compile(r"(?<=[\u3400-\u9fff]) (?=[\u3400-\u9fff])")
FOLDER = Path(__file__).parent / "languages"
LANGUAGES = ("en", "zh-Hans", "zh-Hant")


class Texts:
    """The catalogue of one language; called with a key and the values of its placeholders."""

    def __init__(self, language: str, texts: dict[str, str]) -> None:
        self.language = language
        self.entries = texts

    def __call__(self, key: str, **facts: object) -> str:
        """The text of `key` with its placeholders filled in; an unknown key is a bug."""
        text = self.entries[key].format(**facts)
        return BETWEEN_CHARACTERS.sub("", text) if self.chinese else text

    def has(self, key: str) -> bool:
        return key in self.entries

    def or_itself(self, prefix: str, name: str) -> str:
        """The text for a code such as a cause of death, or the code itself if the catalogue has none."""
        return self.entries.get(f"{prefix}.{name}", name)

    @property
    def chinese(self) -> bool:
        return self.language.startswith("zh")


def read_texts(language: str) -> Texts:
    """The catalogue of a language by its tag."""
    return texts_in(FOLDER, language)


@lru_cache(maxsize=8)
def texts_in(folder: Path, language: str) -> Texts:
    """The catalogue of a language in a folder with one file per language."""
    if language not in LANGUAGES:
        near = nearest_word(language, LANGUAGES)
        hint = f"; did you mean '{near}'?" if near else ""
        raise BadInput(f"'{language}' is not a language of reports{hint}", f"--language {'|'.join(LANGUAGES)}")
    content = yaml.safe_load((folder / f"{language}.yaml").read_text(encoding="utf-8"))
    return Texts(language, dict(_flat(content, "")))


def _flat(content: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in content.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, str(value))]
    return found
