"""A document as blocks; `markdown.py`, `page.py` and `slides.py` render the same blocks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dreamproof.report.numbers import TOKEN, Number, Numbers


@dataclass(frozen=True)
class Heading:
    """A section title; `level` 2 or 3."""

    text: str
    level: int = 2
    anchor: str = ""


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Stamp:
    """A highlighted remark: one sentence or several points; `kind` is block, warn, note or answer."""

    kind: str
    label: str
    text: str
    points: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bullets:
    items: list[str]


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first column is a name, the others are right-aligned unless `left` names them."""

    header: list[str]
    rows: list[list[str]]
    left: tuple[int, ...] = (0,)
    evidence: bool = True


@dataclass(frozen=True)
class Picture:
    """A figure by its file name without ending."""

    name: str
    caption: str


@dataclass(frozen=True)
class CodeBlock:
    lines: list[str]
    language: str = ""


@dataclass(frozen=True)
class EvidenceList:
    """The appendix table that lists the cells behind every evidence number."""

    numbers_label: str
    cells_label: str


@dataclass(frozen=True)
class Links:
    """A line of links to other documents of the same folder, as (text, file); a page that holds them all has none."""

    label: str
    items: tuple[tuple[str, str], ...]


Block = Heading | Paragraph | Stamp | Bullets | Table | Picture | CodeBlock | EvidenceList | Links


@dataclass
class Document:
    """A titled list of blocks; numbers are rounded by their uncertainty unless all digits are wanted."""

    title: str
    language: str
    blocks: list[Block] = field(default_factory=list)
    rounded: bool = True
    anchor: str = ""

    def numbers(self, register: Numbers) -> Numbers:
        """The register as this document prints it."""
        return register.rounded if self.rounded else register

    def add(self, *blocks: Block) -> None:
        self.blocks.extend(blocks)


@dataclass
class EvidenceIndex:
    """E1, E2, …: one number for each set of cells, in order of first use."""

    places: dict[tuple[str, ...], str] = field(default_factory=dict)
    used: dict[str, dict[str, Number]] = field(default_factory=dict)

    def add(self, number: Number) -> None:
        """Gives a number the evidence number of its cells, unless it has none or its key names its one cell."""
        if number.cells and not number.is_one_seed:
            name = self.places.setdefault(number.cells, f"E{len(self.places) + 1}")
            self.used.setdefault(name, {})[number.key] = number

    def of(self, number: Number) -> str | None:
        """The evidence number of a number; None for a number without cells or with the one cell its key names."""
        return None if number.is_one_seed else self.places.get(number.cells)

    def grouped(self, name: str) -> list[tuple[str, str]]:
        """(start of the keys, `last part = text` of each) of the numbers from one set of cells."""
        groups: dict[str, list[str]] = {}
        for number in self.used[name].values():
            place, part = number.place_and_name
            groups.setdefault(place, []).append(f"{part} = {number.text}")
        return [(prefix, ", ".join(parts)) for prefix, parts in groups.items()]


def texts_of(block: Block) -> Iterator[str]:
    """Every text of a block, in reading order."""
    if isinstance(block, Heading | Paragraph | Stamp):
        yield block.text
        yield from block.points if isinstance(block, Stamp) else ()
    elif isinstance(block, Bullets):
        yield from block.items
    elif isinstance(block, Table):
        for row in block.rows:
            yield from row
    elif isinstance(block, Picture):
        yield block.caption


def index_evidence(documents: Iterable[Document], numbers: Numbers) -> EvidenceIndex:
    """Gives every number of these documents its evidence number, in reading order."""
    index = EvidenceIndex()
    for block in (block for document in documents for block in document.blocks):
        for text in texts_of(block):
            for place in TOKEN.findall(text):
                index.add(numbers.at(place))
    return index
