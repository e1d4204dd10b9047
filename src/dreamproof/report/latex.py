"""A table for papers: LaTeX that fits a column and compiles in every language."""

import re

from dreamproof.report.document import Table
from dreamproof.report.numbers import Numbers, plain

BREAKS = re.compile(r" · |(?<=,) | (?=\()|(?=（)|(?<=，)")
_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "·": r"$\cdot$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
}


def latex_text(text: str) -> str:
    """A text escaped for LaTeX."""
    return "".join(_LATEX.get(character, character) for character in text)


def latex(table: Table, numbers: Numbers) -> str:
    """A booktabs table that shrinks to the width of its column; headings break at their dots and brackets."""
    columns = "".join("l" if place in table.left else "r" for place in range(len(table.header)))
    rows = [[latex_text(plain(cell, numbers)) for cell in row] for row in table.rows]
    lines = [
        "% needs \\usepackage{booktabs,graphicx}; for Chinese xelatex with \\usepackage{xeCJK} and a CJK font",
        "\\noindent\\resizebox{\\ifdim\\width>\\columnwidth\\columnwidth\\else\\width\\fi}{!}{%",
        f"\\begin{{tabular}}{{{columns}}}",
        "\\toprule",
        " & ".join(_heading(name, place in table.left) for place, name in enumerate(table.header)) + " \\\\",
        "\\midrule",
        *(" & ".join(row) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}}",
    ]
    return "\n".join(lines) + "\n"


def _heading(name: str, left: bool) -> str:
    """The heading of a column in one line or several."""
    parts = [latex_text(part) for part in BREAKS.split(name)]
    stacked = r" \\ ".join(parts)
    return parts[0] if len(parts) == 1 else f"\\shortstack[{'l' if left else 'r'}]{{{stacked}}}"
