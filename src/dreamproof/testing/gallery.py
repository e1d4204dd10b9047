"""The gallery: studies that were run, each kept as its ledger and one compressed file of records.

`python -m dreamproof.testing.gallery` writes the documents of every study again; `--add FOLDER` takes a new study in.
"""

import argparse
import shutil
import tarfile
import tempfile
from pathlib import Path

from PIL import Image

from dreamproof.report import make_context
from dreamproof.report.documents.appendix import appendix
from dreamproof.report.documents.decision import decision, page_figures
from dreamproof.report.figures.draw import draw_all
from dreamproof.report.markdown import render_markdown
from dreamproof.report.tables import write_tables
from dreamproof.runs.layout import StudyFolder

FIGURES = ("task_scores", "task_profile", "conditions", "conditions_cost", "curves_primary", "trails")
TABLE = "main_results.md"
PATTERNS = ("*.json", "*.jsonl", "checkpoints/*/record.json", "evaluations/*.json")


def unpack(entry: Path, target: Path) -> Path:
    """Lays a study of the gallery out as a study folder."""
    target.mkdir(parents=True)
    for name in ("study.yaml", "ledger.jsonl"):
        shutil.copy(entry / name, target / name)
    with tarfile.open(StudyFolder(entry).archive) as archive:
        archive.extractall(target, filter="data")
    return target


def pack(runs: Path, archive: Path) -> None:
    """Compresses what documents are made from: settings, curves, checkpoint records and evaluations.

    All in one stream, files of the same name together: they are much alike. Same records, same bytes.
    """
    found = [path for run in runs.iterdir() for pattern in PATTERNS for path in run.glob(pattern)]
    with tarfile.open(archive, "w:xz") as packed:
        for path in sorted(found, key=lambda path: (path.name, path)):
            entry = tarfile.TarInfo(path.relative_to(runs.parent).as_posix())
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                packed.addfile(entry, file)


def copy_small(figure: Path, target: Path) -> None:
    """Copies a figure with 256 colours, a third of its bytes."""
    with Image.open(figure) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(target, optimize=True)


def write_documents(study: Path, target: Path, with_figures: bool = True) -> list[Path]:
    """Writes the decision, its appendix, the main table and a few figures of an unpacked study."""
    context = make_context(study, "en")
    folder, kept = StudyFolder(study), StudyFolder(target)
    kept.reports.mkdir(parents=True, exist_ok=True)
    write_tables(context, folder.tables)
    if with_figures:
        draw_all(context, folder.figures)
        shutil.rmtree(kept.figures, ignore_errors=True)
        kept.figures.mkdir()
        for name in FIGURES:
            if (folder.figures / f"{name}.png").exists():
                copy_small(folder.figures / f"{name}.png", kept.figures / f"{name}.png")
    pictures = [name for name in FIGURES if (kept.figures / f"{name}.png").exists()]
    rest = [name for name in pictures if name not in page_figures(pictures)]
    for name, document in (("decision", decision(context, pictures)), ("appendix", appendix(context, rest))):
        text = render_markdown(document, context.numbers)
        (kept.reports / f"{name}.md").write_text(text, encoding="utf-8")
    kept.tables.mkdir(exist_ok=True)
    shutil.copy(folder.tables / TABLE, kept.tables)
    return [*sorted(kept.reports.glob("*.md")), kept.tables / TABLE, *kept.figures.glob("*.png")]


def add(study: Path, entry: Path) -> None:
    """Takes a finished study folder into the gallery, without its documents."""
    entry.mkdir(parents=True, exist_ok=True)
    for name in ("study.yaml", "ledger.jsonl"):
        shutil.copy(study / name, entry / name)
    pack(StudyFolder(study).runs, StudyFolder(entry).archive)


def main() -> None:
    """Regenerates the documents of every study in the gallery."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gallery", type=Path, nargs="?", default=Path("gallery"))
    parser.add_argument("--add", type=Path, metavar="FOLDER", help="a finished study folder to take in first")
    options = parser.parse_args()
    if options.add is not None:
        add(options.add, options.gallery / options.add.name)
    for ledger in sorted(options.gallery.glob("*/ledger.jsonl")):
        with tempfile.TemporaryDirectory() as scratch:
            study = unpack(ledger.parent, Path(scratch) / ledger.parent.name)
            for path in write_documents(study, ledger.parent):
                print(path)


if __name__ == "__main__":
    main()
