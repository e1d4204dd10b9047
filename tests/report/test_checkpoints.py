"""Final and selected checkpoints stand side by side wherever a result is shown."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dreamproof.base.files import read_json, write_json
from dreamproof.report import make_context, write_all
from dreamproof.report.data import Group
from dreamproof.report.documents.checkpoints import checkpoint_blocks, checkpoint_table
from dreamproof.report.language import LANGUAGES
from dreamproof.report.numbers import plain
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.testing.gallery import unpack
from dreamproof.testing.made_study import Plan, make_study

FLAGSHIP = Path(__file__).parents[2] / "gallery" / "safedreamer_v2"


@pytest.fixture(scope="module")
def flagship(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(FLAGSHIP, tmp_path_factory.mktemp("flagship") / "study")


def select(root: Path, arm: str, seed: int, value: float | None) -> None:
    """Selects the final checkpoint, or an earlier one whose episodes all return `value` at a cost of 2."""
    run = StudyFolder(root).run(Cell(arm, seed))
    write_json(run.selected, {"agent_steps": 1000 if value is None else 500})
    if value is None:
        return
    for condition in ("id", "hallu2"):
        record = read_json(run.evaluation(condition))
        episodes = {"return": [value], "cost": [2.0]}
        earlier = record["checkpoints"]["final"] | {"agent_steps": 500, "episodes": episodes}
        write_json(run.evaluation(condition), record | {"checkpoints": record["checkpoints"] | {"selected": earlier}})


@pytest.fixture(scope="module")
def selected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`baseline` selects the final checkpoint everywhere, `full` an earlier one in one of five cells, `u` none once."""
    root = make_study(tmp_path_factory.mktemp("selected") / "study", Plan(arms=("baseline", "full", "u"), trails=False))
    for seed in range(5):
        select(root, "baseline", seed, None)
        select(root, "full", seed, 7.0 if seed == 0 else None)
        if seed:
            select(root, "u", seed, None)
    return root


def test_both_checkpoints_are_in_one_table(selected: Path) -> None:
    context = make_context(selected, "en")
    table = checkpoint_table(context)
    assert table is not None
    assert table.header == [
        *("arm", "selected before the end", "return · id", "return@selected · id", "cost · id", "cost@selected · id"),
    ]
    rows = {row[0]: [plain(cell, context.numbers) for cell in row[1:]] for row in table.rows}
    assert rows["baseline"][0] == "0 of 5" and rows["baseline"][1] == rows["baseline"][2]
    assert rows["full"][0] == "1 of 5" and rows["full"][1] != rows["full"][2]
    values = context.analysis.evidence.values
    expected = [7.0, *(values[Group("full", "id", "return")][seed] for seed in range(1, 5))]
    assert rows["full"][2].split(" ± ")[0] == f"{sum(expected) / 5:.2f}"


def test_selected_checkpoints_of_other_seeds_are_not_put_beside_final_ones(selected: Path) -> None:
    context = make_context(selected, "en")
    table = checkpoint_table(context)
    assert table is not None
    row = next(row for row in table.rows if row[0] == "u")
    assert row[1] == "0 of 4" and (row[3], row[5]) == ("–", "–")


def test_no_table_without_selected_checkpoints(tmp_path: Path, imported_study: Callable[..., Path]) -> None:
    root = make_study(tmp_path / "study", Plan(curves=False, trails=False))
    assert checkpoint_blocks(make_context(root, "en")) == []
    rows = "".join(f"{arm},{seed},id,final,score,{seed}.0\n" for arm in "abc" for seed in range(5))
    assert checkpoint_blocks(make_context(imported_study(rows), "en")) == []


def test_a_mean_over_conditions_exists_for_selected_checkpoints(flagship: Path) -> None:
    evidence = make_context(flagship, "en").analysis.evidence
    joint = evidence.values[Group("full", evidence.primary_condition, "return", "selected")]
    single = [evidence.values[Group("full", name, "return", "selected")] for name in evidence.deciding_conditions]
    assert len(single) == 7
    assert joint == pytest.approx({seed: sum(table[seed] for table in single) / 7 for seed in range(5)})


SHOWN = {
    "en": """## Final and selected checkpoints

| arm | selected before the end | return · the mean of 7 conditions | return@selected · the mean of 7 conditions \
| cost · id | cost@selected · id |
| --- | ---: | ---: | ---: | ---: | ---: |
| margin | 2 of 5 | 22.3 ± 1.0 | 22.1 ± 1.2 | 1.5 ± 1.2 | 1.0 ± 1.1 |
| baseline | 0 of 5 | 23.70 ± 0.43 | 23.70 ± 0.43 | 1.4 ± 1.1 | 1.4 ± 1.1 |
| u_only | 2 of 5 | 21.68 ± 0.76 | 21.4 ± 0.8 | 0.9 ± 1.0 | 1.0 ± 1.0 |
| cert_only | 4 of 5 | 20.2 ± 2.3 | 20.1 ± 3.7 | 0.28 ± 0.35 | 0.55 ± 0.55 |
| full | 2 of 5 | 21.2 ± 0.9 | 20.46 ± 0.60 | 1.0 ± 0.9 | 0.69 ± 0.44 |

Mean ± sd over seeds. **Selected** is the checkpoint that was chosen on validation layouts; the final one decides.
""",
    "zh-Hans": """## 最终的与选出的 checkpoint

| 配置 | 选出的早于结束 | return · 7 个条件的平均 | return@selected · 7 个条件的平均 | cost · id | cost@selected · id |
| --- | ---: | ---: | ---: | ---: | ---: |
| margin | 2 / 5 | 22.3 ± 1.0 | 22.1 ± 1.2 | 1.5 ± 1.2 | 1.0 ± 1.1 |
""",
    "zh-Hant": """## 最終的與選出的 checkpoint

| 配置 | 選出的早於結束 | return · 7 個條件的平均 | return@selected · 7 個條件的平均 | cost · id | cost@selected · id |
| --- | ---: | ---: | ---: | ---: | ---: |
| margin | 2 / 5 | 22.3 ± 1.0 | 22.1 ± 1.2 | 1.5 ± 1.2 | 1.0 ± 1.1 |
""",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_page_and_appendix_show_both(flagship: Path, tmp_path: Path, language: str) -> None:
    root = Path(shutil.copytree(flagship, tmp_path / "study"))
    write_all(root, language, figures=False)
    reports = StudyFolder(root).reports_in(language)
    assert SHOWN[language] in (reports / "decision.md").read_text(encoding="utf-8")
    title = SHOWN[language].splitlines()[0]
    appendix = (reports / "appendix.md").read_text(encoding="utf-8")
    assert f"#{title}\n" in appendix and "22.05 ± 1.15" in appendix
