"""Pages, scripts and styles of the package, read once: a request picks one by name and never names a path."""

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from dreamproof.report.language import LANGUAGES, read_texts, texts_in

FOLDER = Path(__file__).parent / "static"
WEB_TEXTS = Path(__file__).parent / "languages"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
REPORT_TEXTS = ("cause.", "verdict.", "use.", "direction.", "quote.", "limit_verdict.", "unit.", "axis.", "mark.proxy")
"""Texts of the reports that the pages show too."""
RECORDED = ("quote.", "notice.")
FORM = "form."


@dataclass(frozen=True)
class Asset:
    """One file of the package."""

    content: bytes
    kind: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:16]}"'


@lru_cache(maxsize=1)
def assets() -> dict[str, Asset]:
    """Every file below static/ and the texts of every language, by the name that stands in its address."""
    files = sorted(path for path in FOLDER.rglob("*") if path.suffix in TYPES)
    found = {path.relative_to(FOLDER).as_posix(): Asset(path.read_bytes(), TYPES[path.suffix]) for path in files}
    return found | {f"texts/{language}.json": _texts(language) for language in LANGUAGES}


def web_texts(language: str) -> dict[str, str]:
    """Texts of the pages in a language, those shared with the reports included."""
    shared = {key: text for key, text in read_texts(language).entries.items() if key.startswith(REPORT_TEXTS)}
    return shared | texts_in(WEB_TEXTS, language).entries


def recorded_forms() -> dict[str, str]:
    """The English forms of sentences that the program records, by which a page knows them again."""
    return {f"{FORM}{key}": text for key, text in web_texts("en").items() if key.startswith(RECORDED)}


def _texts(language: str) -> Asset:
    texts = web_texts(language) | ({} if language == "en" else recorded_forms())
    return Asset(json.dumps(texts, ensure_ascii=False).encode(), "application/json")
