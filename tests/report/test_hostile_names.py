"""Names and quoted lines that others chose stay text in every table and document."""

import csv
import io
from pathlib import Path

import pytest

from dreamproof.report.document import Bullets, CodeBlock, Document, Heading, Paragraph, Stamp, Table
from dreamproof.report.figures.theme import look, new_figure, save
from dreamproof.report.language import read_texts
from dreamproof.report.markdown import render_markdown
from dreamproof.report.numbers import CLOSE, OPEN, Numbers, plain
from dreamproof.report.tables import _csv, _field
from dreamproof.study.views.manifests import table_text

EVIL = "<img src=x onerror=alert(1)> [click](javascript:alert(1)) ![x](http://spy)"


def rendered() -> str:
    document = Document(f"T {EVIL}", "en")
    document.add(
        Heading(EVIL),
        Paragraph(EVIL),
        Bullets([EVIL, f"odd ` mark {EVIL}", f"``double`` ` {EVIL}"]),
        Stamp("note", EVIL, EVIL, [EVIL]),
        Table([EVIL], [[EVIL]], {0}, False),
    )
    return render_markdown(document, Numbers())


def test_no_tag_link_or_picture_of_others_is_in_a_document() -> None:
    text = rendered()
    assert "<img" not in text and "](javascript" not in text and "](http" not in text
    assert "&lt;img" in text


def test_code_and_plain_comparisons_keep_their_text() -> None:
    document = Document("T", "en")
    document.add(Paragraph("`<a>` holds, p < 0.05 and **n > 3**"))
    assert "`<a>` holds, p < 0.05 and **n > 3**" in render_markdown(document, Numbers())


def test_a_fence_in_a_quoted_line_does_not_end_the_code() -> None:
    document = Document("T", "en")
    document.add(CodeBlock(["before", "```", "<script>", "after"]))
    lines = render_markdown(document, Numbers()).splitlines()
    assert lines[2] == lines[-1] == "````"


def test_a_mark_that_looks_like_one_of_ours_is_a_dash() -> None:
    assert plain(f"x{OPEN}999{CLOSE}{OPEN}{'9' * 5000}{CLOSE}", Numbers()).startswith("x–")


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\t=1", "\r=1", 'a,"b"\nc'])
def test_a_name_is_one_field_of_a_table_and_no_formula(name: str) -> None:
    rows = list(csv.reader(io.StringIO(_csv(["name"], [[name]]))))
    assert len(rows) == 2 and len(rows[1]) == 1
    assert rows[1][0][0] not in "=+-@\t\r"
    fields = table_text(("a", "b"), [{"a": name, "b": None}]).splitlines()[1].split("\t")
    assert len(fields) == 2 and fields[0][0] not in "=+-@" and fields[1] == "-"


def test_negative_numbers_are_numbers() -> None:
    assert [_field(value) for value in (-3.5, "-3.5", -2, None)] == ["-3.5", "-3.5", -2, ""]


def test_a_link_in_the_place_of_a_figure_is_replaced_and_a_dollar_is_a_dollar(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "trails.png").symlink_to(tmp_path / "victim")
    with look(read_texts("en")):
        figure = new_figure(2, 1)
        figure.text(0.1, 0.1, r"cost in $\frac")
        save(figure, tmp_path, "trails")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "trails.png").read_bytes().startswith(b"\x89PNG")
