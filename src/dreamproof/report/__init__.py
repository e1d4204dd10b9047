"""From proven cells to a decision: `write_all` writes every document, `update_markdown` updates a user's own."""

import os
from pathlib import Path

from dreamproof.base.files import write_text
from dreamproof.base.lines import json_line
from dreamproof.report.analysis import Analysis, analyse
from dreamproof.report.context import ReportContext
from dreamproof.report.documents.appendix import appendix
from dreamproof.report.documents.decision import decision, page_figures
from dreamproof.report.documents.defense import defense
from dreamproof.report.documents.money import money
from dreamproof.report.documents.record import record
from dreamproof.report.documents.status import status
from dreamproof.report.language import read_texts
from dreamproof.report.lints.lint import NOTE, WARN, Lint
from dreamproof.report.loading import load
from dreamproof.report.markdown import render_markdown
from dreamproof.report.numbers import plain, register
from dreamproof.report.page import render_page
from dreamproof.report.prose import answer
from dreamproof.report.rebind import Rebound, rebind
from dreamproof.report.slides import slides_available, write_slides
from dreamproof.report.suggest import suggest
from dreamproof.report.tables import write_tables
from dreamproof.settings.study import Study
from dreamproof.stats.sequential import NextBatch

__all__ = ["load_analysis", "next_seeds", "plain_answer", "suggest_mapping", "update_markdown", "write_all"]


AUTO = "auto"


def make_context(study_folder: Path, language: str, declared: Study | None = None) -> ReportContext:
    """Analysis, numbers and texts that the documents of a study are written from."""
    texts = read_texts(language)
    analysis = load_analysis(study_folder, declared)
    return ReportContext(analysis, register(analysis), texts)


def load_analysis(study_folder: Path, declared: Study | None = None) -> Analysis:
    """Everything that the evidence of a study folder allows to state."""
    return analyse(load(study_folder, declared))


def write_all(
    study_folder: Path, language: str = "en", figures: bool = True, declared: Study | None = None
) -> list[Path]:
    """Writes tables, figures, reports and slides of a study, whole or partial, and returns the files.

    Languages do not overwrite each other: all but English have folders of their own in `reports` and `figures`.

    `declared` is the study of a folder without a ledger, which holds tables under `imported` only.
    """
    context = make_context(study_folder, language, declared)
    _add_missing_tool_lints(context, figures)
    folder = context.analysis.evidence.folder
    written = write_tables(context, folder.tables)
    reports, pictured = folder.reports_in(language), folder.figures_in(language)
    drawn: dict[str, list[Path]] = {}
    if figures:
        from dreamproof.report.figures.draw import draw_all  # matplotlib is slow to import, and not always wanted

        drawn = draw_all(context, pictured)
    pictures = list(drawn)
    written += [path for paths in drawn.values() for path in paths]
    decided = decision(context, pictures)
    behind = appendix(context, [name for name in pictures if name not in page_figures(pictures)])
    documents = {
        "decision": decided,
        "appendix": behind,
        "money": money(context, pictures),
        "status": status(context, pictures),
        "record": record(context),
        "defense": defense(context),
    }
    for name, document in documents.items():
        path = reports / f"{name}.md"
        seen_from_it = os.path.relpath(pictured, reports)
        write_text(path, render_markdown(document, context.numbers, seen_from_it), durable=False)
        written.append(path)
    page = reports / "decision.html"
    write_text(page, render_page([decided, behind], context.numbers, pictured), durable=False)
    written.append(page)
    if slides_available():
        written.append(write_slides(context, pictured, pictures, reports / "slides.pptx"))
    return written


def plain_answer(study_folder: Path) -> str:
    """The answer to the declared question as plain terminal text, without marks or links."""
    context = make_context(study_folder, "en")
    return plain(answer(context), context.numbers).replace("**", "").replace("`", "")


def _add_missing_tool_lints(context: ReportContext, figures: bool) -> None:
    """Adds a lint for a missing Chinese font or a missing python-pptx."""
    if figures and context.texts.chinese:
        from dreamproof.report.figures.theme import chinese_font

        if chinese_font(context.texts) is None:
            context.analysis.lints.append(Lint("no_cjk_font", WARN))
    if not slides_available():
        context.analysis.lints.append(Lint("no_slides", NOTE))


def next_seeds(study_folder: Path) -> NextBatch:
    """Whether more seeds are allowed and needed, how many per arm in total, why, and at what price."""
    found = analyse(load(study_folder)).next
    assert found is not None
    return found


def update_markdown(
    study_folder: Path, document: Path, mapping: Path | str | None = None, declared: Study | None = None
) -> Rebound:
    """A user's Markdown with its bound numbers brought up to date; show `.diff`, then call `.write()`.

    The mapping `auto` is the one that `suggest_mapping` proposes.
    """
    context = make_context(study_folder, "en", declared)
    if mapping != AUTO:
        return rebind(document, context.numbers, Path(mapping) if mapping is not None else None)
    proposed = suggest(document, context.numbers, context.analysis.evidence)
    return rebind(document, context.numbers, proposed=proposed)


def suggest_mapping(study_folder: Path, document: Path, declared: Study | None = None) -> list[str]:
    """Lines of a mapping proposed for the tables of a user's Markdown, one per cell; none if nothing fits."""
    context = make_context(study_folder, "en", declared)
    found = suggest(document, context.numbers, context.analysis.evidence)
    return [f"- {json_line(binding.model_dump(exclude_none=True)).strip()}" for binding in found]
