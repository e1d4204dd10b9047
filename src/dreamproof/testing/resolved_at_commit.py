"""Settings after defaults of studies that did not record them.

`python -m dreamproof.testing.resolved_at_commit ENTRY…`, in a checkout with its history. What the runs of an entry of
the gallery were given (`settings.json`) is resolved by the code of the commit that the entry's ledger names, and
written to `resolved_at_commit.json` with a hash per arm.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from dreamproof.base.errors import BadInput
from dreamproof.base.files import canonical_json, text_hash, write_json
from dreamproof.base.lines import read_rows
from dreamproof.runs.layout import StudyFolder

FILE = "resolved_at_commit.json"
ORIGIN = "reconstructed from settings.json of the runs with the code of this commit; the runs did not record it"
GIVEN = ("task", "trainer", "agent_steps", "settings")
SOURCE = "src/dreamproof"
RESOLVE = """
import json, os, sys
import dreamproof
from dreamproof.settings.cell import CELL_SETTINGS

def resolved(given):
    cell = CELL_SETTINGS[given["trainer"]].model_validate(given["settings"])
    return given | {"settings": cell.model_dump(mode="json")}

assert dreamproof.__file__.startswith(os.getcwd()), dreamproof.__file__
print(json.dumps({arm: resolved(given) for arm, given in json.load(sys.stdin).items()}))
"""


def commit_of(entry: Path) -> str:
    """The one commit that all attempts of an entry were made with."""
    started = [row for row in read_rows(entry / "ledger.jsonl") if row.get("event") == "supervisor_started"]
    commits = {(row["commit"], row["dirty"]) for row in started}
    if len(commits) != 1 or any(dirty for _, dirty in commits):
        raise BadInput(
            f"{entry}: the ledger does not name one commit without edits: {sorted(commits)}",
            f"run the study again: dreamproof run {entry}/study.yaml",
        )
    return str(commits.pop()[0])


def given_settings(entry: Path) -> dict[str, dict[str, Any]]:
    """What each arm was given; all seeds of an arm were given the same."""
    found: dict[str, dict[str, Any]] = {}
    records = StudyFolder(entry).archive
    with tarfile.open(records) as archive:
        for name in sorted(name for name in archive.getnames() if name.endswith("/settings.json")):
            file = archive.extractfile(name)
            assert file is not None
            value = json.load(file)
            given = {key: value[key] for key in GIVEN}
            if found.setdefault(value["arm"], given) != given:
                raise BadInput(f"{entry}: seeds of {value['arm']} differ in their settings", f"tar -xf {records}")
    return found


def reconstruct(entry: Path, repository: Path) -> dict[str, Any]:
    """The content of the file, from the records of an entry and the history of a repository."""
    commit = full_name(commit_of(entry), repository)
    packed = subprocess.run(["git", "archive", commit, SOURCE], cwd=repository, capture_output=True, check=False)
    if packed.returncode:
        raise BadInput(f"{entry}: {commit} has no {SOURCE}", f"git show --stat {commit}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder).resolve()
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(scratch, filter="data")
        surroundings = os.environ | {"PYTHONPATH": str(scratch / Path(SOURCE).parent)}
        asked = json.dumps(given_settings(entry))
        command = [sys.executable, "-c", RESOLVE]
        done = subprocess.run(
            command, input=asked, env=surroundings, cwd=scratch, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise BadInput(f"{entry}: the code of {commit} does not resolve its settings: {done.stderr[-500:]}", "git log")
    arms = {
        arm: {"hash": hash_of(resolved), "resolved": resolved}
        for arm, resolved in sorted(json.loads(done.stdout).items())
    }
    return {"origin": ORIGIN, "commit": commit, "arms": arms}


def full_name(commit: str, repository: Path) -> str:
    """All digits of a commit."""
    command = ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"]
    found = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    if found.returncode:
        raise BadInput(f"the history of {repository} has no commit {commit}", "git fetch --unshallow")
    return found.stdout.strip()


def hash_of(resolved: dict[str, Any]) -> str:
    """Names the settings as they are in the file, whatever today's settings are called."""
    return text_hash(canonical_json(resolved))


def main() -> None:
    """Writes the file of every entry that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="+", type=Path, metavar="ENTRY")
    for entry in parser.parse_args().entries:
        write_json(entry / FILE, reconstruct(entry, Path.cwd()))
        print(entry / FILE)


if __name__ == "__main__":
    main()
