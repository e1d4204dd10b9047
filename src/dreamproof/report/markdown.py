"""Documents as Markdown: numbers bare, with links to their evidence at the end of the sentence or row."""

import re
from functools import lru_cache

from dreamproof.base.safe_text import one_line, printable
from dreamproof.report.document import (
    Block,
    Bullets,
    CodeBlock,
    Document,
    EvidenceIndex,
    EvidenceList,
    Heading,
    Links,
    Paragraph,
    Picture,
    Stamp,
    Table,
    index_evidence,
)
from dreamproof.report.numbers import TOKEN, Numbers, plain

STAMPS = {"block": "⛔", "warn": "⚠️", "note": "ℹ️", "answer": "➤"}


def render_markdown(document: Document, numbers: Numbers, figures: str = "../figures") -> str:
    """The whole document as text that ends with one newline."""
    index = index_evidence([document], numbers)
    linked = any(isinstance(block, EvidenceList) for block in document.blocks)
    writer = _Writer(document.numbers(numbers), index, figures, linked)
    parts = [f"# {harmless(document.title)}", *(writer.block(block) for block in document.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


class _Writer:
    def __init__(self, numbers: Numbers, index: EvidenceIndex, figures: str, linked: bool) -> None:
        self.numbers, self.index, self.figures, self.linked = numbers, index, figures, linked

    def marks(self, texts: list[str]) -> str:
        """Links to the evidence of all numbers in these texts."""
        if not self.linked:
            return ""
        names: dict[str, None] = {}
        for text in texts:
            for place in TOKEN.findall(text):
                name = self.index.of(self.numbers.at(place))
                if name is not None:
                    names[name] = None
        return " ".join(f"[{name}](#{name.lower()})" for name in names)

    def inline(self, text: str) -> str:
        marks = self.marks([text])
        return harmless(plain(text, self.numbers)) + (f" {marks}" if marks else "")

    def block(self, block: Block) -> str:
        if isinstance(block, Heading):
            return f"{'#' * block.level} {harmless(plain(block.text, self.numbers))}"
        if isinstance(block, Paragraph):
            return self.inline(block.text)
        if isinstance(block, Stamp):
            first = f"{STAMPS[block.kind]} **{harmless(block.label)}** {self.inline(block.text)}".rstrip()
            lines = [first, *(f"- {self.inline(point)}" for point in block.points)]
            return "\n".join(f"> {line}" for line in "\n".join(lines).split("\n"))
        if isinstance(block, Bullets):
            return "\n".join(f"- {self.inline(item)}" for item in block.items)
        if isinstance(block, Picture):
            caption = harmless(plain(block.caption, self.numbers))
            return f"![{caption}]({self.figures}/{block.name}.png)"
        if isinstance(block, CodeBlock):
            return _fenced(block)
        if isinstance(block, Table):
            return self.table(block)
        if isinstance(block, Links):
            return block.label + " · ".join(f"[{text}]({file})" for text, file in block.items)
        return self.evidence(block)

    def table(self, table: Table) -> str:
        header = [escape(name) for name in table.header]
        rows = [[escape(plain(cell, self.numbers)) for cell in row] for row in table.rows]
        marks = [self.marks(row) for row in table.rows] if table.evidence else []
        if any(marks):
            header.append("")
            rows = [[*row, mark] for row, mark in zip(rows, marks, strict=True)]
        rule = ["---" if place in table.left or place >= len(table.header) else "---:" for place in range(len(header))]
        lines = [header, rule, *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def evidence(self, block: EvidenceList) -> str:
        lines = [f"| | {block.numbers_label} | {block.cells_label} |", "|---|---|---|"]
        for cells, name in self.index.places.items():
            keys = "; ".join(f"`{prefix}`: {values}" for prefix, values in self.index.grouped(name))
            lines.append(f'| <a id="{name.lower()}"></a>{name} | {escape(keys)} | {escape(cells_text(cells))} |')
        return "\n".join(lines)


def harmless(text: str) -> str:
    """A text without active tags, links or images; `code` and **strong** keep their meaning."""
    text = printable(text)
    parts = text.split("`")
    # Only spans between single marks are certain to be code; a tag inside is shown as text.
    certain = "``" not in text and len(parts) % 2 == 1
    return "`".join(part if certain and place % 2 else _without_tags(part) for place, part in enumerate(parts))


def _without_tags(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("](", "]\\(")


def _fenced(block: CodeBlock) -> str:
    """Lines as a code block, with a fence longer than any in the lines."""
    longest = max((len(run) for line in block.lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence + block.language, *map(one_line, block.lines), fence])


def escape(text: str) -> str:
    """A harmless text that cannot break out of its table cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", harmless(text)).replace("\n", " ")


@lru_cache(maxsize=50_000)
def cells_text(cells: tuple[str, ...], limit: int = 40) -> str:
    """arm/0,1,2@condition: cells of one arm and condition together."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        name, at, condition = cell.partition("@")
        arm, _, seed = name.rpartition("/")
        seeds.setdefault((arm, at + condition), []).append(seed)
    parts = [f"{arm}/{','.join(numbers)}{condition}" for (arm, condition), numbers in seeds.items()]
    return "; ".join(parts[:limit]) + (f"; … (+{len(parts) - limit})" if len(parts) > limit else "")
