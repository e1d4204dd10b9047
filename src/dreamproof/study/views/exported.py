"""The list of an export's files with sizes and hashes: `export` writes it, `verify` checks the copy against it."""

import hashlib
import os
import stat
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from dreamproof.base.files import (
    Unreadable,
    content_hash,
    file_hash,
    kind_fault,
    read_file,
    read_json,
    unreadable,
    write_json,
)
from dreamproof.base.text import count_text, quoted
from dreamproof.runs.layout import StudyFolder
from dreamproof.runs.records import Record
from dreamproof.version import __version__

LIST_BYTES = 1 << 30
"""The largest list that is read; a file takes about 200 bytes in it, so a study of 10,000 cells fits many times."""
MAX_NAMED = 3
CHECKED_WITHOUT_LIST = "this is an export: records and evaluations are checked, weights are not in its runs"
NO_LIST = (
    "this export has no list of files, because an earlier version made it: other lost or changed files and missing "
    "lines at the end of the ledger cannot be detected"
)


class ListedFile(Record):
    """A file as it was exported."""

    bytes: int
    sha256: str


class ExportList(Record):
    """files.json: every file of an export by its path, and what was left out by its path in the study."""

    files: dict[str, ListedFile]
    left_out: dict[str, str]


def write_list(folder: StudyFolder, left_out: dict[str, str]) -> None:
    """Lists every file in the folder and what was left out, then marks the folder as an export with this list."""
    paths = sorted(path for path in folder.root.rglob("*") if path.is_file())
    files = {
        path.relative_to(folder.root).as_posix(): {"bytes": path.stat().st_size, "sha256": file_hash(path)}
        for path in paths
    }
    write_json(folder.export_list, {"files": files, "left_out": dict(sorted(left_out.items()))}, durable=False)
    mark = {"version": __version__, "files_sha256": file_hash(folder.export_list)}
    write_json(folder.export_mark, mark, durable=False)


def check_list(folder: StudyFolder, check_content: bool = True) -> tuple[list[str], list[str]]:
    """Faults and notes of an export against its list; nothing for a folder that is no export.

    Documents that `report` writes again may differ: they are notes. Files that are not listed are ignored.
    """
    if not folder.is_export:
        return [], []
    mark = read_json(folder.export_mark)
    expected = mark.get("files_sha256") if isinstance(mark, dict) else None
    if expected is None and os.path.lexists(folder.export_list):
        return [f"{folder.export_mark.name} does not name the hash of {folder.export_list.name}: it was changed"], []
    if expected is None:
        return [], [CHECKED_WITHOUT_LIST, NO_LIST]
    listed = _read_list(folder.export_list, expected)
    if isinstance(listed, str):
        return [listed], []
    found = {name: _file_fault(folder.root, name, file, check_content) for name, file in listed.files.items()}
    faults = {name: fault for name, fault in found.items() if fault is not None}
    documents = {name: fault for name, fault in faults.items() if _is_document(folder, name)}
    strict = [f"{name} {fault}" for name, fault in faults.items() if name not in documents]
    left_out = [f"{name} was left out when exported: {reason}" for name, reason in listed.left_out.items()]
    what = "contents" if check_content else "sizes"
    note = f"this is an export: the {what} of {count_text(len(listed.files), 'listed file')} are checked"
    return strict + left_out, [note, *_document_notes(folder, documents)]


def _read_list(path: Path, expected_hash: str) -> ExportList | str:
    """The list that the mark names, or why there is none."""
    content = read_file(path, LIST_BYTES)
    if isinstance(content, Unreadable):
        return f"{path.name} {content.reason}, so the files of this export cannot be checked"
    if hashlib.sha256(content).hexdigest() != expected_hash:
        return f"{path.name} is not the exported list (hash differs), so the files of this export cannot be checked"
    try:
        return ExportList.model_validate_json(content)
    except ValidationError:
        return f"{path.name} is not a list of files, so the files of this export cannot be checked"


def _file_fault(root: Path, name: str, listed: ListedFile, check_content: bool) -> str | None:
    """Why a file is not as it was exported; None if it is. A list cannot lead out of the export."""
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts:
        return "is listed but not inside the export"
    path = root / place
    fault = kind_fault(path, stat.S_IFREG)
    if fault is not None:
        return fault.reason
    try:
        size = os.stat(path).st_size
    except OSError as error:
        return unreadable(path, error).reason
    if size != listed.bytes:
        return f"has {size:,} bytes; {listed.bytes:,} were exported"
    found = content_hash(path) if check_content else listed.sha256
    if isinstance(found, Unreadable):
        return found.reason
    return None if found == listed.sha256 else "is not the exported file (hash differs)"


def _is_document(folder: StudyFolder, name: str) -> bool:
    """Whether `report` writes this file again."""
    return PurePosixPath(name).parts[:1] in [(place.name,) for place in (folder.tables, folder.figures, folder.reports)]


def _document_notes(folder: StudyFolder, changed: dict[str, str]) -> list[str]:
    if not changed:
        return []
    named = [f"{name} {fault}" for name, fault in list(changed.items())[:MAX_NAMED]]
    named += [f"and {len(changed) - MAX_NAMED} more"] if len(changed) > MAX_NAMED else []
    head = f"{count_text(len(changed), 'document')} not as exported: {', '.join(named)}"
    return [f"{head}; to write them from the records: dreamproof report {quoted(folder.root)}"]
