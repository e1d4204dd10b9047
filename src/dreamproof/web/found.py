"""The studies that a person names: files, study folders, or folders that hold studies. Each gets a short name."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from dreamproof.base.errors import BadInput, DreamproofError
from dreamproof.base.files import real_path
from dreamproof.runs.layout import StudyFolder
from dreamproof.study.plan.open_study import find_folder
from dreamproof.web.followed import FollowedStudy

MAX_DEPTH = 3
MAX_STUDIES = 200


def is_study(folder: Path) -> bool:
    """Whether a folder holds a ledger, or a declaration with imported tables."""
    own = StudyFolder(folder)
    return own.ledger.exists() or (own.declaration.exists() and own.imported.is_dir())


def studies_below(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """Study folders in a folder, by name; links are not followed, and nothing inside a study is looked at."""
    if is_study(folder):
        yield folder
        return
    try:
        inner = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for path in inner if depth > 0 else ():
        if not Path(path).name.startswith("."):
            yield from studies_below(Path(path), depth - 1)


class Studies:
    """Every study that is served, by the name that stands in its address."""

    def __init__(self, places: list[Path]) -> None:
        for place in places:
            if not place.exists():
                raise BadInput(f"{place}: no such study file or folder", "ls studies/ results/")
            if place.is_file() and place.suffix.lower() not in (".yaml", ".yml"):
                raise BadInput(f"{place}: is no study", "dreamproof serve STUDY.yaml, or a folder of study folders")
        self._places = places
        self.by_name: dict[str, FollowedStudy] = {}
        self._known: set[Path] = set()
        """Named paths, and the folders of their studies."""
        self.look_again()
        if not self.by_name and all(place.is_dir() for place in places):
            raise BadInput(f"{places[0]}: holds no study", "dreamproof serve STUDY, or a folder of study folders")

    def look_again(self) -> list[FollowedStudy]:
        """Takes in studies that are new in the named folders."""
        found = [path for place in self._places for path in self._below(place)]
        new = [path for path in dict.fromkeys(map(real_path, found)) if path not in self._known]
        return [self._add(path) for path in new if len(self.by_name) < MAX_STUDIES and self._is_new(path)]

    def _is_new(self, path: Path) -> bool:
        """Whether its study is not served yet, under the name of its file or of its folder."""
        names = {path, _folder_of(path)}
        is_new = not names & self._known
        self._known |= names
        return is_new

    @staticmethod
    def _below(place: Path) -> Iterator[Path]:
        return studies_below(place) if place.is_dir() else iter([place])

    def _add(self, path: Path) -> FollowedStudy:
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem if path.is_file() else path.name).strip(".-") or "study"
        name = next(name for name in _numbered(base) if name not in self.by_name)
        followed = self.by_name[name] = FollowedStudy(path, name)
        return followed


def _folder_of(path: Path) -> Path:
    """The folder of a study, also if its file is named; the path itself if it cannot be read."""
    try:
        return real_path(find_folder(path).root)
    except DreamproofError:
        return path


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1
