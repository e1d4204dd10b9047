"""Tables for machines and papers."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dreamproof.base.errors import BadInput
from dreamproof.report import make_context, write_all
from dreamproof.report.document import Table
from dreamproof.report.documents.summary import summary_table
from dreamproof.report.documents.tables import key_table, motion_table, signals_table
from dreamproof.report.latex import latex
from dreamproof.report.numbers import Numbers, number_text, plain
from dreamproof.testing.made_study import Plan, make_study


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_main_table_names_its_cells_and_both_intervals(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    write_all(root, figures=False)
    row = next(
        one
        for one in rows(root / "tables" / "main_results.csv")
        if (one["arm"], one["condition"], one["metric"]) == ("full", "id", "cost")
    )
    assert row["cells"] == "full/0,1,2,3,4@id"
    assert float(row["t_low"]) <= float(row["bootstrap_low"]) <= float(row["mean"])
    assert float(row["zero_share"]) == pytest.approx(0.16) and float(row["cvar90"]) > float(row["mean"])


def test_ablations_carry_settings_and_verdict(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    write_all(root, figures=False)
    found = {
        (row["arm"], row["condition"]): row
        for row in rows(root / "tables" / "ablation_results.csv")
        if row["metric"] == "return"
    }
    assert found["full", "id"]["verdict"] == "better"
    assert found["full", "id"]["settings"] == '{"risk": 3}'
    assert found["full", "hallu2"]["verdict"] == ""


def test_every_episode_is_a_row(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=2))
    write_all(root, figures=False)
    found = rows(root / "tables" / "episodes.csv")
    assert len(found) == 2 * 2 * 3 * 10
    evidence = make_context(root, "en").analysis.evidence
    mean = np.mean([float(r["return"]) for r in found if (r["arm"], r["seed"], r["condition"]) == ("full", "1", "id")])
    group = next(g for g in evidence.values if (g.arm, g.condition, g.metric) == ("full", "id", "return"))
    assert evidence.values[group][1] == pytest.approx(mean)


def test_latex_escapes_what_would_break_it() -> None:
    text = latex(Table(["arm", "x_1 & y"], [["50% #1", "−1 ± 2"]]), Numbers())
    assert "x\\_1 \\& y" in text and "50\\% \\#1 & $-$1 $\\pm$ 2 \\\\" in text
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1


def test_a_heading_of_latex_breaks_and_the_table_shrinks_to_its_column() -> None:
    text = latex(Table(["arm", "cost · id (limit 5)"], [["a", "1 ≤ 2"]]), Numbers())
    assert r"\shortstack[r]{cost \\ id \\ (limit 5)}" in text and r"$\le$" in text
    assert r"\resizebox{\ifdim\width>\columnwidth" in text


def test_scores_have_a_row_per_seed_condition_and_checkpoint(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", Plan(arms=("baseline", "full"), seeds=2))
    write_all(root, figures=False)
    found = rows(root / "tables" / "scores.csv")
    assert list(found[0]) == ["arm", "seed", "condition", "kind", "checkpoint", "cost", "return"]
    assert len(found) == 2 * 2 * 3 and {row["kind"] for row in found} == {"in_distribution", "proxy", "genuine"}
    evidence = make_context(root, "en").analysis.evidence
    group = next(g for g in evidence.values if (g.arm, g.condition, g.metric) == ("full", "id", "return"))
    row = next(row for row in found if (row["arm"], row["seed"], row["condition"]) == ("full", "1", "id"))
    assert float(row["return"]) == pytest.approx(evidence.values[group][1])


def test_verdicts_are_written_for_other_programs(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    write_all(root, figures=False)
    found = json.loads((root / "tables" / "verdicts.json").read_text(encoding="utf-8"))
    assert (found["reference"], found["metric"], found["conditions"]) == ("baseline", "return", ["id"])
    by_arm = {one["arm"]: one for one in found["verdicts"]}
    assert {arm: one["verdict"] for arm, one in by_arm.items()} == {
        "u_only": "cannot_decide",
        "cert_only": "equivalent",
        "full": "better",
    }
    assert by_arm["full"]["p"] < by_arm["full"]["p_holm"] < 0.05 and len(by_arm["full"]["interval"]) == 2
    limits = {one["condition"]: one["verdict"] for one in found["limits"] if one["arm"] == "full"}
    assert limits["id"] == "cannot_tell" and len(limits) == 3


def test_an_imported_mean_may_have_its_sd(users_case: Path) -> None:
    path = users_case / "imported" / "results.csv"
    path.write_text(path.read_text().replace("hallu2,best,cost,83.0", "hallu2,best,cost,83.0±12.5"))
    context = make_context(users_case, "en")
    assert plain(summary_table(context).rows[0][3], context.numbers) == "83.00 ± 12.50 (cannot tell)"
    path.write_text(path.read_text().replace("v2_full,0,id,final,score,1.628", "v2_full,0,id,final,score,1.6 +/- 0.2"))
    with pytest.raises(BadInput, match="is over several seeds, the row names one"):
        make_context(users_case, "en")


def test_numbers_read_well_at_every_size() -> None:
    assert [number_text(value, 3) for value in (1.0, -0.0004, -2.5, None, float("nan"), float("inf"))] == [
        "1.000",
        "0.000",
        "−2.500",
        "–",
        "–",
        "–",
    ]
    assert number_text(-1e300, 2) == "−1e+300"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("results.csv", "arm,seed,condition\n", "the column 'checkpoint' is missing"),
        (
            "results.csv",
            "arm,seed,condition,checkpoint,metric,value\nnobody,0,id,final,score,1\n",
            "'nobody' is not one",
        ),
        (
            "results.csv",
            "arm,seed,condition,checkpoint,metric,value\nv2_full,0,id,final,score,x\n",
            ":2: 'x' is not a number",
        ),
        ("results.csv", "arm,seed,condition,checkpoint,metric,value\nv2_full,0,id\n", "3 fields, the header has 6"),
        ("cells.csv", "arm,seed,state\nv2_full,0,done\n", "state 'done' is not one of"),
        ("cells.csv", "arm,seed,state\nv2_full,0.5,proven\n", "'0.5' is not a whole number"),
    ],
)
def test_a_wrong_imported_table_is_refused_with_its_line(
    users_case: Path, name: str, text: str, complaint: str
) -> None:
    (users_case / "imported" / name).write_text(text)
    with pytest.raises(BadInput, match=complaint):
        write_all(users_case, figures=False)


def test_signals_of_risk_have_a_table_of_their_own_and_leave_the_key_table_alone(tmp_path: Path) -> None:
    signals = {"certificate/claimed": 0.9, "certificate/coverage": 0.93, "auroc/innovation": 0.75}
    context = make_context(make_study(tmp_path / "study", Plan(signals=signals)), "en")
    table = signals_table(context)
    assert table is not None
    assert table.header == ["arm", "condition", "auroc/innovation", "certificate/claimed", "certificate/coverage"]
    assert len(table.rows) == 4 * 3
    assert not [title for title in key_table(context).header if title.startswith(("auroc", "certificate"))]


def test_a_study_without_signals_has_no_table_of_them(tmp_path: Path) -> None:
    assert signals_table(make_context(make_study(tmp_path / "study"), "en")) is None


def riding(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
    """Episodes of a locomotion task, which has neither cost nor goals."""
    metres = np.full(10, 40.0 + seed if arm == "full" else 20.0 + seed)
    none, moved = np.zeros(10), {"forward/metres": metres, "forward/metres_per_second": metres / 10}
    return {"return": metres * 20, "length": np.full(10, 200.0), "cost": none, "goals": none, **moved}


FORWARD = Plan(arms=("baseline", "full"), seeds=3, constraint=None, draw=riding, floors={"still": {"return": 10.0}})


def test_distance_and_speed_of_locomotion_stand_in_a_table_for_every_condition(tmp_path: Path) -> None:
    root = make_study(tmp_path / "study", FORWARD)
    context = make_context(root, "en")
    table = motion_table(context)
    assert table is not None
    assert table.header == ["arm", "condition", "length (agent steps)", "distance (m)", "speed (m/s)"]
    assert len(table.rows) == 2 * 3
    write_all(root, figures=False)
    text = (root / "reports" / "appendix.md").read_text()
    assert "| full | id | 200.00 ± 0.00 | 41.00 ± 1.00 | 4.100 ± 0.100 |" in text
    assert {row["metric"] for row in rows(root / "tables" / "main_results.csv")} >= {"forward/metres", "length"}


def test_what_is_zero_everywhere_takes_no_column_of_the_key_table(tmp_path: Path) -> None:
    titles = key_table(make_context(make_study(tmp_path / "forward", FORWARD), "en")).header
    assert [title for title in titles if title.startswith(("cost", "goals", "forward"))] == []
    assert "length · id" in titles
    limited = Plan(arms=("baseline", "full"), seeds=3, draw=riding, floors={})
    assert "cost · id" in key_table(make_context(make_study(tmp_path / "limited", limited), "en")).header


def test_a_task_without_a_forward_has_no_table_of_it(tmp_path: Path) -> None:
    assert motion_table(make_context(make_study(tmp_path / "study"), "en")) is None


@pytest.mark.parametrize(("smallest", "shown"), [(1.0, "0.2"), (0.02, "0.225")])
def test_a_floor_has_the_decimals_of_the_smallest_difference(tmp_path: Path, smallest: float, shown: str) -> None:
    floors = {"random": {"return": 0.2254, "cost": 64.0}}
    plan = Plan(metric={"name": "return", "smallest_difference": smallest}, floors=floors)
    context = make_context(make_study(tmp_path / "study", plan), "en")
    header, row = summary_table(context).header, summary_table(context).rows[-1]
    assert (header[1], row[1], "64.0" in row) == ("return · id", shown, True)
