"""The slides: one statement per slide, made from the same blocks and numbers as the decision report."""

import io
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dreamproof.base.files import write_bytes
from dreamproof.report.context import ReportContext
from dreamproof.report.document import Table
from dreamproof.report.documents import tables
from dreamproof.report.documents.decision import page_note, verdict_note
from dreamproof.report.documents.money import in_short
from dreamproof.report.documents.steps import next_steps
from dreamproof.report.documents.summary import summary_table, verdicts_table
from dreamproof.report.documents.validation import validation_table
from dreamproof.report.headline import headline
from dreamproof.report.lints.lint import BLOCK, NOTE
from dreamproof.report.numbers import plain
from dreamproof.report.prose import arm_reason, arms_sentence, as_of, coverage_sentence, lint_stamp
from dreamproof.report.rounding import exact_text
from dreamproof.stats.verdict import Kind

WIDTH, HEIGHT, MARGIN = 13.333, 7.5, 0.6
INK, SOFT, ACCENT, WASH = "1C2430", "5B6675", "1F5F8B", "F1F4F7"
FONTS = {
    "en": ("Arial", "Microsoft YaHei"),
    "zh-Hans": ("Arial", "Microsoft YaHei"),
    "zh-Hant": ("Arial", "Microsoft JhengHei"),
}
LETTER_EM = 0.6  # of the widest font that a machine may put in place of the named one
FIXED_MOMENT = datetime(2024, 1, 1, tzinfo=UTC)
MAX_ROWS, MAX_ITEMS, MAX_COLUMNS = 10, 5, 5
BREAKABLE = re.compile(r" · |(?<=,) | (?=\()|(?=（)|(?<=，)")  # where the heading of a column may break
LONG_HEADING = 20
READABLE_POINTS, LARGEST_TABLE_POINTS = 14.0, 20.0
FIGURE_SLIDES = (
    "conditions",
    "conditions_cost",
    "curves_primary",
    "curves_cost",
    "score_cost",
    "profile",
    "power",
    "trails",
    "timeline",
)


def slides_available() -> bool:
    """Whether python-pptx is installed."""
    try:
        import pptx  # noqa: F401
    except ImportError:
        return False
    return True


def write_slides(context: ReportContext, figures: Path, pictures: list[str], path: Path) -> Path:
    """Writes the slides; the same study gives the same bytes."""
    deck = _Deck(context, figures)
    deck.answer()
    _question(deck)
    _verdicts(deck)
    _results(deck)
    for name in FIGURE_SLIDES:
        if name in pictures:
            deck.picture(context.texts(f"figure_title.{name}"), name, context.texts(f"figure.{name}"))
    deck.bullets(context.texts("slides.next"), next_steps(context))
    _cautions(deck)
    _coverage(deck, pictures)
    deck.bullets(context.texts("slides.money"), [in_short(context)], "money" if "money" in pictures else None)
    write_bytes(path, deck.content(), durable=False)
    return path


class _Deck:
    """Slides in one style; sizes in inches and points."""

    def __init__(self, context: ReportContext, figures: Path) -> None:
        from pptx import Presentation
        from pptx.util import Inches

        self.context, self.figures = context, figures
        self.deck: Any = Presentation()
        self.deck.slide_width, self.deck.slide_height = Inches(WIDTH), Inches(HEIGHT)
        self.fonts = FONTS[context.texts.language]

    def plain(self, text: str) -> str:
        return plain(text, self.context.numbers.rounded).replace("`", "").replace("**", "")

    def slide(self, heading: str) -> Any:
        """An empty slide with its heading and a rule below."""
        slide = self.deck.slides.add_slide(self.deck.slide_layouts[6])
        text = self.plain(heading)
        self.text(slide, (MARGIN, 0.4, WIDTH - 2 * MARGIN, 0.9), [text], _fitting([text], 30, 12.1, 0.9), bold=True)
        self.box(slide, (MARGIN, 1.32, WIDTH - 2 * MARGIN, 0.03), ACCENT)
        return slide

    def box(self, slide: Any, place: tuple[float, float, float, float], colour: str) -> Any:
        from pptx.util import Inches

        shape = slide.shapes.add_shape(1, *(Inches(value) for value in place))
        shape.fill.solid()
        shape.fill.fore_color.rgb = _colour(colour)
        shape.line.fill.background()
        shape.shadow.inherit = False
        return shape

    def text(
        self, slide: Any, place: tuple[float, float, float, float], lines: list[str], size: float, **look: Any
    ) -> None:
        """Lines as paragraphs in a box; `bold`, `colour` and `bullets` set their look."""
        from pptx.util import Inches, Pt

        frame = slide.shapes.add_textbox(*(Inches(value) for value in place)).text_frame
        frame.word_wrap = True
        for number, line in enumerate(lines):
            paragraph = frame.paragraphs[0] if number == 0 else frame.add_paragraph()
            run = paragraph.add_run()
            run.text = f"•  {line}" if look.get("bullets") else line
            paragraph.space_after = Pt(size * 0.45)
            paragraph.line_spacing = 1.08
            self.style(run, size, look.get("bold", False), look.get("colour", INK))

    def style(self, run: Any, size: float, bold: bool, colour: str) -> None:
        from pptx.oxml.ns import qn
        from pptx.util import Pt

        font = run.font
        font.size, font.bold, font.name = Pt(size), bold, self.fonts[0]
        font.color.rgb = _colour(colour)
        properties = run._r.get_or_add_rPr()
        properties.set("lang", {"en": "en-GB", "zh-Hans": "zh-CN", "zh-Hant": "zh-TW"}[self.context.texts.language])
        east = properties.makeelement(qn("a:ea"), {"typeface": self.fonts[1]})
        properties.append(east)

    def answer(self) -> None:
        """The first slide: the answer as large as fits, the question above it, coverage and ledger below."""
        context = self.context
        study = context.analysis.evidence.study
        slide = self.deck.slides.add_slide(self.deck.slide_layouts[6])
        self.box(slide, (0, 0, 0.28, HEIGHT), ACCENT)
        heading = context.texts("slides.title", name=study.name)
        self.text(slide, (0.9, 0.5, 11.6, 0.6), [heading], _fitting([heading], 20, 11.4, 0.6), colour=SOFT)
        text = self.plain(headline(context))
        self.text(slide, (0.9, 1.3, 11.6, 4.0), [text], _fitting([text], 44, 11.2, 3.8), bold=True)
        foot = [study.question, self.plain(coverage_sentence(context)), self.plain(as_of(context))]
        self.text(slide, (0.9, 5.5, 11.6, 1.6), foot, _fitting(foot, 16, 11.4, 1.5), colour=SOFT)

    def bullets(self, heading: str, items: list[str], picture: str | None = None) -> None:
        """A slide of points, with a figure below them if there is one."""
        slide = self.slide(heading)
        shown = [self.plain(item) for item in items[:MAX_ITEMS]]
        if len(items) > MAX_ITEMS:
            shown.append(self.context.texts("slides.more", count=len(items) - MAX_ITEMS))
        width, height = WIDTH - 2 * MARGIN, 1.7 if picture else 5.3
        self.text(slide, (MARGIN, 1.6, width, height), shown, _fitting(shown, 22, width, height), bullets=True)
        if picture:
            self.place_picture(slide, picture, (MARGIN, 3.5, width, 3.6))

    def picture(self, heading: str, name: str, caption: str = "") -> None:
        """A slide of one figure with its caption."""
        slide = self.slide(heading)
        width = WIDTH - 2 * MARGIN
        self.place_picture(slide, name, (MARGIN, 1.5, width, 4.9 if caption else 5.7))
        if caption:
            self.text(slide, (MARGIN, 6.5, width, 0.8), [caption], _fitting([caption], 14, width, 0.75), colour=SOFT)

    def place_picture(self, slide: Any, name: str, place: tuple[float, float, float, float]) -> None:
        """Puts a figure as large as fits, centred."""
        from pptx.util import Inches

        left, top, width, height = place
        shape = slide.shapes.add_picture(str(self.figures / f"{name}.png"), 0, 0)
        scale = min(Inches(width) / shape.width, Inches(height) / shape.height)
        shape.width, shape.height = int(shape.width * scale), int(shape.height * scale)
        shape.left = Inches(left) + (Inches(width) - shape.width) // 2
        shape.top = Inches(top) + (Inches(height) - shape.height) // 2

    def table_texts(self, table: Table) -> list[list[str]]:
        """Header and the rows that fit, as a slide prints them."""
        texts = [[self.plain(cell) for cell in row] for row in [table.header, *table.rows[:MAX_ROWS]]]
        texts[0] = [name if _units(name) <= LONG_HEADING else BREAKABLE.sub("\n", name) for name in texts[0]]
        return texts

    def readable_parts(self, table: Table) -> list[Table]:
        """The table cut by columns into as few parts as can be read on a slide; each keeps the first column."""
        others = len(table.header) - 1
        for count in range(1, others + 1):
            size = -(-others // count)
            cuts = [[0, *range(start, min(start + size, others + 1))] for start in range(1, others + 1, size)]
            parts = [_columns(table, places) for places in cuts]
            if count == others or all(self.points(part) >= READABLE_POINTS for part in parts):
                return parts
        return [table]

    def points(self, table: Table) -> float:
        """The font size at which a table fits on a slide."""
        texts = self.table_texts(table)
        return _table_size(texts, _column_widths(texts, WIDTH - 2 * MARGIN))

    def table(self, heading: str, table: Table, *notes: str) -> None:
        """A slide of one table with notes below it; more rows than fit are counted there."""
        from pptx.enum.text import PP_ALIGN
        from pptx.util import Inches

        slide = self.slide(heading)
        texts = self.table_texts(table)
        widths = _column_widths(texts, WIDTH - 2 * MARGIN)
        size = _table_size(texts, widths)
        heights = [size / 72 * (0.6 + 1.3 * max(text.count("\n") + 1 for text in row)) for row in texts]
        place = (Inches(MARGIN), Inches(1.65), Inches(sum(widths)), Inches(sum(heights)))
        grid = slide.shapes.add_table(len(texts), len(table.header), *place).table
        for column, width in enumerate(widths):
            grid.columns[column].width = Inches(width)
        for row, cells in enumerate(texts):
            for column, text in enumerate(cells):
                cell = grid.cell(row, column)
                cell.margin_left = cell.margin_right = Inches(0.06)
                cell.margin_top = cell.margin_bottom = Inches(0.035)
                cell.fill.solid()
                cell.fill.fore_color.rgb = _colour(ACCENT if row == 0 else WASH if row % 2 == 0 else "FFFFFF")
                paragraph = cell.text_frame.paragraphs[0]
                paragraph.alignment = PP_ALIGN.LEFT if column in table.left else PP_ALIGN.RIGHT
                for number, line in enumerate(text.split("\n")):
                    if number:
                        paragraph.add_line_break()
                    run = paragraph.add_run()
                    run.text = line
                    self.style(run, size, row == 0, "FFFFFF" if row == 0 else INK)
            grid.rows[row].height = Inches(heights[row])
        lines = list(notes)
        if len(table.rows) > MAX_ROWS:
            lines.append(self.context.texts("slides.more", count=len(table.rows) - MAX_ROWS))
        if lines:
            below = min(5.9, 1.85 + sum(heights))
            shown, width, height = [self.plain(line) for line in lines], WIDTH - 2 * MARGIN, HEIGHT - 0.2 - below
            self.text(slide, (MARGIN, below, width, height), shown, _fitting(shown, 16, width, height), colour=SOFT)

    def content(self) -> bytes:
        """The file with fixed dates inside and out."""
        properties = self.deck.core_properties
        properties.created = properties.modified = FIXED_MOMENT.replace(tzinfo=None)
        properties.title = self.context.texts("slides.title", name=self.context.analysis.evidence.study.name)
        properties.author = properties.last_modified_by = "dreamproof"
        raw, fixed = io.BytesIO(), io.BytesIO()
        self.deck.save(raw)
        with zipfile.ZipFile(raw) as old, zipfile.ZipFile(fixed, "w", zipfile.ZIP_DEFLATED) as new:
            for name in sorted(old.namelist(), key=lambda entry: (entry != "[Content_Types].xml", entry)):
                entry = zipfile.ZipInfo(name, FIXED_MOMENT.timetuple()[:6])
                entry.compress_type = zipfile.ZIP_DEFLATED
                new.writestr(entry, old.read(name))
        return fixed.getvalue()


def _columns(table: Table, places: list[int]) -> Table:
    """Some columns of a table, in their order."""
    rows = [[row[place] for place in places] for row in table.rows]
    left = tuple(position for position, place in enumerate(places) if place in table.left)
    return Table([table.header[place] for place in places], rows, left, table.evidence)


def _colour(code: str) -> Any:
    from pptx.dml.color import RGBColor

    return RGBColor.from_string(code)  # type: ignore[no-untyped-call]


def _units(text: str) -> float:
    """Width of the longest line of a text in letters; a Chinese character counts for two."""
    return max(sum(1.9 if ord(character) > 0x2E7F else 1.0 for character in line) for line in text.split("\n"))


def _fitting(lines: list[str], largest: float, width: float, height: float) -> float:
    """The largest size in points at which the lines fit into a box in inches."""
    size = largest
    while size > 9:
        letters = width * 72 / (size * LETTER_EM)
        rows = sum(max(1, -(-_units(line) // letters)) for line in lines)
        if rows * size * 1.25 + len(lines) * size * 0.45 <= height * 72:
            return size
        size -= 1
    return size


def _column_widths(texts: list[list[str]], total: float) -> list[float]:
    longest = [max(_units(row[column]) for row in texts) + 2 for column in range(len(texts[0]))]
    scale = min(0.2, total / sum(longest))
    return [units * scale for units in longest]


def _table_size(texts: list[list[str]], widths: list[float]) -> float:
    """Points at which the widest cell of every column stays on one line."""
    size = LARGEST_TABLE_POINTS
    while size > 8:
        fits = all(
            _units(row[column]) * size * LETTER_EM * (1.1 if place == 0 else 1.0) / 72 + 0.13 <= widths[column]
            for place, row in enumerate(texts)
            for column in range(len(row))
        )
        if fits:
            return size
        size -= 0.5
    return size


def _question(deck: _Deck) -> None:
    context = deck.context
    texts, evidence = context.texts, context.analysis.evidence
    study = evidence.study
    items = [
        study.question,
        texts(
            "question.metric",
            metric=study.metric.name,
            direction=texts(f"direction.{study.metric.direction}"),
            condition=context.condition(evidence.primary_condition),
            margin=exact_text(study.metric.smallest_difference),
        ),
        arms_sentence(context),
    ]
    for limit in study.limits:
        items.append(texts("question.constraint", metric=limit.name, limit=exact_text(limit.at_most)))
    deck.bullets(texts("slides.question"), items)


def _coverage(deck: _Deck, pictures: list[str]) -> None:
    context = deck.context
    heading = context.texts("list.colon").join([context.texts("slides.coverage"), coverage_sentence(context)])
    if "coverage" in pictures:
        deck.picture(heading, "coverage")
    else:
        deck.bullets(context.texts("slides.coverage"), [coverage_sentence(context)])


def _results(deck: _Deck) -> None:
    texts, context = deck.context.texts, deck.context
    whole, limits = summary_table(context), len(context.analysis.evidence.study.limits)
    shown = list(range(len(whole.header)))[: MAX_COLUMNS + max(0, limits - 2)]
    for number, part in enumerate(deck.readable_parts(_columns(whole, shown))):
        deck.table(texts("slides.results") + (f" ({number + 1})" if number else ""), part, page_note(context))
    deciding = [context.analysis.evidence.primary_condition]
    motion, validation = tables.motion_table(context, deciding), validation_table(context)
    if motion is not None:
        deck.table(texts("motion.title"), motion, texts("motion.note"))
    if validation is not None:
        deck.table(texts("validation.title"), _columns(validation, [0, 2, 3, 4]), texts("slides.validation_note"))


def _verdicts(deck: _Deck) -> None:
    """Every declared comparison with its adjusted p; why some are not decided stands below the table."""
    context = deck.context
    if not context.analysis.treatments:
        return
    table = _columns(verdicts_table(context), [0, 1, 2, 3])
    why: dict[str, list[str]] = {}
    for arm, verdict in context.analysis.verdicts.items():
        if verdict.kind is Kind.CANNOT_DECIDE:
            why.setdefault(arm_reason(context, verdict), []).append(arm)
    reasons = [context.texts("list.colon").join([context.listing(arms), reason]) for reason, arms in why.items()]
    deck.table(context.texts("slides.verdicts"), table, *reasons, verdict_note(context))


def _cautions(deck: _Deck) -> None:
    context = deck.context
    lints = [lint for lint in context.analysis.lints if lint.level != NOTE]
    if not lints:
        return
    stamps = [lint_stamp(context, lint) for lint in sorted(lints, key=lambda lint: lint.level != BLOCK)]
    deck.bullets(
        context.texts("slides.cautions"),
        [context.texts("list.colon").join([stamp.label, stamp.text]) for stamp in stamps],
    )
