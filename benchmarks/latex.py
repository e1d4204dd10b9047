"""Compiles the LaTeX table in every language: `python -m benchmarks.latex`.

It needs xelatex with xeCJK (in Debian texlive-xetex and texlive-lang-chinese), which are too large for every test run.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from dreamproof.report import write_all
from dreamproof.report.figures.theme import BUNDLED, FONTS
from dreamproof.report.language import LANGUAGES
from dreamproof.runs.layout import StudyFolder
from dreamproof.testing.made_study import Plan, make_study

COMMAND = ["xelatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]


def compile_table(folder: Path, language: str) -> list[str]:
    """What is wrong with the compiled table of a language."""
    root = make_study(folder / "study", Plan(curves=False, trails=False))
    write_all(root, language, figures=False)
    font = FONTS / BUNDLED.get(language, BUNDLED["zh-Hans"])
    lines = [
        r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx,xeCJK}",
        rf"\setCJKmainfont{{{font.name}}}[Path={font.parent}/]",
        r"\begin{document}",
        (StudyFolder(root).tables_in(language) / "main_results.tex").read_text(encoding="utf-8"),
        r"\end{document}",
    ]
    (folder / "paper.tex").write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(COMMAND, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return [done.stdout[-2000:]]
    log = (folder / "paper.log").read_text(encoding="utf-8", errors="replace")
    return [line for line in log.splitlines() if line.startswith(("Overfull", "Missing character"))]


def main() -> None:
    """Prints one line per language; fails if a table does not compile or does not fit its column."""
    failed = False
    for language in LANGUAGES:
        with tempfile.TemporaryDirectory() as folder:
            wrong = compile_table(Path(folder), language)
        failed |= bool(wrong)
        print(f"{language}: {wrong or 'compiles and fits its column'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
