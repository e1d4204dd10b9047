"""Documents as one self-contained HTML page: every number links to its evidence, figures are inside."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from dreamproof.report.document import Block, Document, EvidenceIndex, Heading, Table, index_evidence
from dreamproof.report.markdown import cells_text
from dreamproof.report.numbers import TOKEN, Number, Numbers

ENVIRONMENT = Environment(
    loader=PackageLoader("dreamproof.report", "templates"),
    autoescape=select_autoescape(["j2"], default=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render_page(documents: list[Document], numbers: Numbers, figures: Path) -> str:
    """All documents on one page with a list of contents; figures are read from the folder and put inside as PNG."""
    index = index_evidence(documents, numbers)

    def writer(document: Document) -> Callable[[str], Markup]:
        shown = document.numbers(numbers)

        def inline(text: str) -> Markup:
            pieces = TOKEN.split(text)
            parts = [
                _linked(shown.at(piece), index) if place % 2 else _emphasis(piece) for place, piece in enumerate(pieces)
            ]
            return Markup("".join(parts))

        return inline

    def picture(name: str) -> str:
        return base64.b64encode((figures / f"{name}.png").read_bytes()).decode()

    sections = [
        _Section(document, writer(document), _anchored(document, place)) for place, document in enumerate(documents)
    ]
    template = ENVIRONMENT.get_template("page.html.j2")
    return template.render(
        sections=sections,
        index=index,
        picture=picture,
        kind=_kind,
        cells_text=cells_text,
        table_cells=_table_cells,
    )


@dataclass(frozen=True)
class _Section:
    """One document of the page: how its texts are written, and the anchor of every block."""

    document: Document
    inline: Callable[[str], Markup]
    anchors: list[str]

    @property
    def contents(self) -> list[tuple[str, Markup]]:
        """(anchor, text) of the document's own title, unless it begins the page, and of its main headings."""
        first = [(self.document.anchor, self.inline(self.document.title))] if self.document.anchor else []
        blocks = zip(self.document.blocks, self.anchors, strict=True)
        return first + [
            (anchor, self.inline(block.text))
            for block, anchor in blocks
            if isinstance(block, Heading) and block.level == 2
        ]


def _anchored(document: Document, place: int) -> list[str]:
    """An anchor for every heading, its own or one made from its place; empty for other blocks."""
    return [
        (block.anchor or f"part{place + 1}-{number}") if isinstance(block, Heading) else ""
        for number, block in enumerate(document.blocks, start=1)
    ]


def _kind(block: Block) -> str:
    return type(block).__name__


MARKS = {"✅": ("proven", "✓"), "❌": ("missing", "✗"), "🔄": ("running", "↻"), "⛔": ("stopped", "■")}


def _emphasis(text: str) -> str:
    """Escaped text in which `code` and **strong** keep their meaning."""
    parts = escape(text, quote=False).split("`")
    for place, part in enumerate(parts):
        if place % 2 == 0:
            bold = part.split("**")
            parts[place] = "".join(f"<strong>{piece}</strong>" if n % 2 else piece for n, piece in enumerate(bold))
        else:
            parts[place] = f"<code>{part}</code>"
    shown = "".join(parts)
    for mark, (name, glyph) in MARKS.items():  # machines without an emoji font would show boxes
        shown = shown.replace(mark, f'<span class="mark {name}">{glyph}</span>')
    return shown


def _linked(number: Number, index: EvidenceIndex) -> str:
    name = index.of(number)
    if name is None and not number.cells:
        return escape(number.text)
    if name is None:
        title = escape(f"{number.key} · {cells_text(number.cells)}")
        return f'<a class="number" href="#cells" title="{title}">{escape(number.text)}</a>'
    title = escape(f"{name} · {number.key} · {cells_text(number.cells, limit=6)}")
    return f'<a class="number" href="#{name.lower()}" title="{title}">{escape(number.text)}</a>'


def _table_cells(table: Table, row: list[str]) -> list[tuple[str, str]]:
    """(alignment, text) of every cell."""
    return [("left" if place in table.left else "right", text) for place, text in enumerate(row)]
