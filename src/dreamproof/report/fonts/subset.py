"""Subsets Noto Sans CJK to the characters of the catalogues and writes the fonts beside this file.

Needs the Debian package fonts-noto-cjk; run `python -m dreamproof.report.fonts.subset` after changing a catalogue.
"""

import sys
from pathlib import Path
from typing import Any

from fontTools import subset
from fontTools.ttLib import TTCollection, TTFont

from dreamproof.report.figures.theme import BUNDLED, FONTS
from dreamproof.report.language import read_texts

SOURCE = Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc")
FACES = {"zh-Hans": "Noto Sans CJK SC", "zh-Hant": "Noto Sans CJK TC"}
EPOCH_SECONDS = 3_786_825_600  # 2024-01-01 in the font's own epoch, so that the file does not depend on the day


def characters_of(language: str) -> set[str]:
    """Every character beyond ASCII that the catalogue of a language uses."""
    return {character for text in read_texts(language).entries.values() for character in text if ord(character) > 127}


def cut(font: Any, language: str) -> None:
    """Subsets one face to the language's characters, renames it and writes it."""
    options = subset.Options(layout_features=["kern"], name_IDs=[0, 1, 2, 4, 6, 13, 14], hinting=False)
    worker = subset.Subsetter(options)
    worker.populate(text="".join(sorted(characters_of(language))) + " ")
    worker.subset(font)
    family = Path(BUNDLED[language]).stem
    for record in font["name"].names:
        if record.nameID in (1, 4, 6):
            record.string = family
    font["head"].modified = EPOCH_SECONDS
    font.recalcTimestamp = False
    font.save(FONTS / BUNDLED[language])


def main() -> None:
    """Writes a font for every Chinese catalogue."""
    faces: list[TTFont] = TTCollection(str(SOURCE)).fonts
    for language, name in FACES.items():
        font = next(face for face in faces if face["name"].getDebugName(1) == name)
        cut(font, language)
        sys.stdout.write(f"{BUNDLED[language]}: {(FONTS / BUNDLED[language]).stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
