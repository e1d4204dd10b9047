"""Finds a study by its YAML file or its folder, and reads what the ledger knows of it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dreamproof.base.errors import BadInput, BrokenEvidence
from dreamproof.base.files import real_path
from dreamproof.base.safe_text import printable
from dreamproof.base.text import nearest_word, quoted
from dreamproof.runs.layout import Cell, RunFolder, StudyFolder
from dreamproof.settings.study import CommandTrainer, Study
from dreamproof.settings.study_file import read_study
from dreamproof.study.adapters import find_adapter, study_adapter, study_format
from dreamproof.study.adapters.api import Adapter
from dreamproof.study.ledger.chain import checked_rows, collector_paused
from dreamproof.study.ledger.index import read_index
from dreamproof.study.ledger.state import StudyState
from dreamproof.study.plan.trainer_identity import TrainerIdentity

ARCHIVES = (".zip", ".tar.gz", ".tgz", ".tar")
"""Endings of exports that are one file."""


@dataclass
class OpenStudy:
    """A study, its folder, and its state with the present declaration."""

    folder: StudyFolder
    study: Study
    file: Path
    """The study file; commands run in its folder."""
    state: StudyState
    declared_in: Path | None = None
    """Where the declaration was read, if not in the study file: the copy in the study folder."""
    identity: TrainerIdentity | None = None
    """Settings after defaults and code that attempts are started with; known once a run was prepared."""
    by_folder: bool = False
    """Whether a person named the study folder, not the study file."""

    @property
    def base_folder(self) -> Path:
        return self.file.parent

    @property
    def named(self) -> Path:
        """What a printed command names: what was given, for beside a copied folder is no study file, or another one."""
        return self.folder.root if self.by_folder else self.file

    def run(self, cell: Cell) -> RunFolder:
        """The run folder of a cell: its own, or the one outside the study that proved it or is being written."""
        known = self.state.known_cell(str(cell))
        if known.source is not None and known.reads_source:
            return RunFolder(Path(os.path.abspath(self.folder.root / known.source)))
        return self.folder.run(cell)

    def adapter(self, cell: Cell) -> Adapter:
        """What reads the run folder of a cell."""
        known = self.state.known_cell(str(cell))
        if known.reads_source and known.source_adapter is not None:
            return find_adapter(known.source_adapter, study_format(self.study))
        return study_adapter(self.study)


def declared_cell(opened: OpenStudy, text: str) -> Cell:
    """The declared cell that a person names as arm/seed."""
    try:
        wanted = Cell.parse(text)
    except ValueError as error:
        raise BadInput(str(error), f"dreamproof status {quoted(opened.named)}") from None
    if wanted not in opened.state.cells:
        near = nearest_word(text, map(str, opened.state.cells))
        meant = f"; did you mean {near}?" if near else ""
        raise BadInput(f"the study declares no cell {text}{meant}", f"dreamproof status {quoted(opened.named)}")
    return wanted


def results_folder(study: Study, file: Path) -> StudyFolder:
    """Where the results of a study file go."""
    root = file.parent / (study.folder or f"results/{study.name}")
    for place in (root, *root.parents):
        if os.path.islink(place) and not os.path.exists(place):
            raise BadInput(
                f"{place}: is a symbolic link to {printable(os.readlink(place))}, which is not there; is it mounted?",
                f"mount it, or remove the link to start anew: rm {quoted(place)}",
            )
    return StudyFolder(real_path(root))


ReadState = Callable[[StudyFolder], StudyState]


def open_study(place: Path, numbers_only: bool = False) -> OpenStudy:
    """The study that a person names by its file or its folder; `numbers_only` as in `read_state`."""
    return open_with(place, lambda folder: read_state(folder, numbers_only))


def open_with(place: Path, read: ReadState) -> OpenStudy:
    """The same with a state that the caller reads from the study folder, e.g. one that it keeps."""
    _require(place)
    export = _export_of(place)
    if export is not None or place.is_dir():
        return _open_folder(export or StudyFolder(real_path(place)), read)
    return _open_file(real_path(place), read)


def _require(place: Path) -> None:
    if not place.exists():
        raise BadInput(f"{place}: no such study file or folder", "ls studies/ results/")
    if place.is_file() and place.name.endswith(ARCHIVES):
        unpack = "unzip {} -d FOLDER" if place.name.endswith(".zip") else "mkdir FOLDER; tar -xf {} -C FOLDER"
        raise BadInput(
            f"{place}: is an archive; unpack it first",
            f"{unpack.format(quoted(place))}; dreamproof verify FOLDER/STUDY",
        )


def _export_of(place: Path) -> StudyFolder | None:
    """The exported copy whose declaration a person names; None for any other file."""
    folder = StudyFolder(real_path(place).parent)
    return folder if real_path(place) == folder.declaration and folder.is_export else None


def find_folder(place: Path) -> StudyFolder:
    """The results folder of the study that a person names, without reading its ledger."""
    _require(place)
    if place.is_dir():
        return StudyFolder(real_path(place))
    return _export_of(place) or results_folder(read_study(place), real_path(place))


def _open_file(file: Path, read: ReadState) -> OpenStudy:
    study = read_study(file)
    folder = results_folder(study, file)
    state = read(folder)
    study = with_added_seeds(study, state)
    state.redeclare(study)
    return OpenStudy(folder, study, file, state)


def _open_folder(folder: StudyFolder, read: ReadState) -> OpenStudy:
    declared = os.path.exists(folder.declaration)
    imported = declared and os.path.isdir(folder.imported)
    if not os.path.lexists(folder.ledger) and not imported:
        if folder.is_export:
            raise BrokenEvidence(
                f"{folder.root}: is an export whose {folder.ledger.name} is gone",
                "restore it from a copy, or export the study again: dreamproof export STUDY TARGET",
            )
        raise BadInput(f"{folder.root}: is not a study folder (no {folder.ledger.name})", "ls studies/")
    state = read(folder)
    study = read_study(folder.declaration) if declared else state.study
    if study is None:
        raise BadInput(f"{folder.root}: its ledger declares no study", f"dreamproof verify {quoted(folder.root)}")
    study = with_added_seeds(study, state)
    state.redeclare(study)
    # The study file of an exported copy is its own: what the ledger names is beside the original.
    study_file = None if folder.is_export else state.study_file
    file = Path(os.path.abspath(folder.root / (study_file or folder.declaration.name)))
    return OpenStudy(folder, study, file, state, folder.declaration if declared else None, by_folder=True)


def with_added_seeds(study: Study, state: StudyState) -> Study:
    """The study with the seeds that `run --until-decided` added: those of the ledger, within the declared maximum.

    A maximum that is lowered or taken away later drops no seed that was worked on.
    """
    if state.study is None or state.study.maximum_seeds is None:
        return study
    known, count = state.study.seeds, len(study.seeds)
    late = set(known[count:])
    is_worked_on = any(cell.cell.seed in late and (cell.attempts or cell.proof) for cell in state.cells.values())
    if known[:count] != study.seeds or not (is_worked_on or count < len(known) <= (study.maximum_seeds or 0)):
        return study
    return study.model_copy(update={"seeds": known, "maximum_seeds": max(len(known), study.maximum_seeds or 0)})


def read_state(folder: StudyFolder, numbers_only: bool = False) -> StudyState:
    """The replay of a study folder's ledger; `numbers_only` may leave out ended attempts."""
    with collector_paused():
        cached = read_index(folder) if numbers_only else None
        if cached is None:
            return StudyState.replay(checked_rows(folder.ledger))
        state, position = cached
        for row in checked_rows(folder.ledger, position):
            state.apply(row)
        return state


def relative_study_file(folder: StudyFolder, file: Path) -> str:
    """The study file as the ledger writes it: seen from the study folder."""
    return os.path.relpath(file, folder.root)


def refuse_export(opened: OpenStudy) -> None:
    """Refuses to write to an exported copy: it holds no weights, and would no longer be what was exported."""
    if opened.folder.is_export:
        place = opened.folder.root
        raise BadInput(
            f"{place}: is an exported copy of a study; nothing is started or recorded in it",
            f"dreamproof run STUDY, with the original study; to check this copy: dreamproof verify {quoted(place)}",
        )


def check_links(opened: OpenStudy) -> None:
    """Refuses a study folder in which scratch folders, which are emptied without asking, are links to elsewhere."""
    probes = opened.folder.probes
    for place in (probes, *(probes / arm for arm in opened.study.arms)):
        if place.is_symlink():
            raise BadInput(
                f"{place}: is a symbolic link to {os.readlink(place)}, whose content would be deleted",
                f"rm {quoted(place)}",
            )


def check_place(opened: OpenStudy) -> None:
    """Refuses to run commands in a place that is not the study file's own, e.g. after the folder was moved alone."""
    if isinstance(opened.study.trainer, CommandTrainer) and not opened.file.exists():
        raise BadInput(
            f"{opened.folder.root}: its study file is missing at {opened.file}, so its commands have no working folder",
            f"dreamproof run FILE.yaml, with 'folder: {opened.folder.root}' in it",
        )
