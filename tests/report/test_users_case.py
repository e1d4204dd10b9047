"""The users' own studies: what may be concluded from them, and what may not."""

import re
from pathlib import Path

import pytest

from dreamproof.report import make_context, write_all
from dreamproof.stats.verdict import Kind

EXPECTED = Path(__file__).parent / "expected"


def read(folder: Path, name: str) -> str:
    return (folder / "reports" / f"{name}.md").read_text(encoding="utf-8")


def flat(text: str) -> str:
    return re.sub(r" \[E\d+\]\(#e\d+\)", "", text.replace("\u00a0", " "))


@pytest.fixture
def decision(users_case: Path) -> str:
    write_all(users_case, figures=False)
    return read(users_case, "decision")


@pytest.fixture
def appendix(users_case: Path) -> str:
    write_all(users_case, figures=False)
    return flat(read(users_case, "appendix"))


def test_nothing_is_decided(users_case: Path) -> None:
    verdicts = make_context(users_case, "en").analysis.verdicts
    assert {verdict.kind for verdict in verdicts.values()} == {Kind.CANNOT_DECIDE}


def test_the_answer_says_cannot_decide_and_why(decision: str) -> None:
    answer = next(line for line in decision.splitlines() if line.startswith("> ➤"))
    assert "Cannot decide" in answer
    assert "hallu2: v2_baseline, v2_u_only, v2_cert_only are identical under id; 2 seeds" in answer
    assert "2 seeds per arm can never reach p < 0.05 (smallest possible p = 0.333)" in answer
    assert "3 of 20 train cells are missing; 24 of 40 eval cells are missing" in answer


def test_the_missing_cells_are_named(appendix: str) -> None:
    assert "Missing train cells (3): v2_u_only/2; v2_cert_only/2; v2_full/2." in appendix
    everywhere = "v2_baseline,v2_u_only,v2_cert_only,v2_full/2,3,4 × id,hallu2"
    assert f"Missing eval cells (24): {everywhere}." in appendix


def test_the_identical_column_is_flagged(appendix: str) -> None:
    assert "Under id these arms agree in every seed to the last digit: v2_baseline, v2_u_only, v2_cert_only" in appendix
    assert "also for v2_full" in appendix


def test_full_is_reported_to_look_worse_without_a_verdict(appendix: str) -> None:
    line = next(line for line in appendix.splitlines() if "looks **worse**" in line)
    assert line.startswith("- `v2_full` looks **worse** than `v2_baseline` under hallu2: −1.204")
    assert "−2.144 to −0.264, p = 0.033" in line
    assert "This is not a verdict: the exact test gives p = 0.333 and cannot go below 0.333" in line


def test_hallu2_is_a_proxy(decision: str, appendix: str) -> None:
    assert "`hallu2` simulates a shift in the observations; it is a proxy and must not be called OOD." in appendix
    assert "warning: identical values (v2_full · id); best of many; proxy, not OOD (hallu2)" in decision


def test_the_main_table_is_the_users_table(decision: str, appendix: str) -> None:
    assert "| v2_baseline | 2.20 ± 0.15 | 1.7 ± 0.7 | 83.00 (cannot tell) |" in decision
    assert "| v2_baseline | 1.684 ± 0.741 | 2.203 ± 0.151 | 83.00 (cannot tell) | 0.000 |" in appendix
    assert "| v2_full | 1.918 ± 0.410 | 0.999 ± 0.223 | 14.50 (cannot tell) | 2.887 |" in appendix


def test_no_arm_of_two_seeds_is_said_to_keep_or_break_the_limit(users_case: Path) -> None:
    write_all(users_case, figures=False)
    for name in ("appendix", "defense"):
        text = flat(read(users_case, name))
        assert "keeps the limit:" not in text and "breaks the limit:" not in text
        assert "Cannot tell whether `v2_full` keeps the limit of 25: cost@best 14.50 under hallu2 (only a mean" in text


def test_completion_and_decision_have_a_price(decision: str) -> None:
    assert "Train the 3 missing cells: 5.0 GPU hours, ¥18" in decision
    assert "The plan ends at 5 seeds per arm" in decision
    assert "A new study of the 4 arms with 52 fresh seeds each" in decision
    assert "208 cells, 350 GPU hours, ¥1,200." in decision
    assert "Raise the budget, or stop spending on this question." in decision


def test_the_bill_is_held_against_the_record(users_case: Path) -> None:
    write_all(users_case, figures=False)
    money = read(users_case, "money")
    assert "| useful | 28.49 | ¥99.71 | 50% |" in money
    assert "| unexplained (bill minus records) | – | ¥100.29 | 50% |" in money


def test_no_ranking_of_peaks_survives(peaks_case: Path) -> None:
    write_all(peaks_case, figures=False)
    decision, status = read(peaks_case, "decision"), read(peaks_case, "status")
    assert "**better**" not in decision and "**worse**" not in decision
    appendix = flat(read(peaks_case, "appendix"))
    assert "one seed per arm gives no information about the spread between seeds" in decision
    assert "48M_flow_v2/0 (64%), 48M_flow_v3/0 (45%)" in appendix
    assert "48M_baseline/0 (1254 → 23.4)" in appendix
    assert "| 48M_flow_v3 | 17.47 | 1 | 1255.97 | 45% |" in status
    assert "| 5M_flow_v1 | 1131.74 | 1 | 1132.89 | 100% |" in status
    assert status.index("5M_flow_v1 | 1131.74") < status.index("48M_flow_v3 | 17.47")
    assert "The order is not a ranking." in status


def test_the_chart_shows_what_is_done_and_what_is_missing(users_case: Path) -> None:
    write_all(users_case, "zh-Hans", figures=False)
    chart = re.findall(r"```mermaid\n(.*?)```", read(users_case, "zh-Hans/status"), re.DOTALL)[0]
    assert chart.startswith("flowchart LR\n") and 'A --> B["已训练：17/20"]' in chart
    assert 'B -.-> M["缺失：v2_u_only/2; v2_cert_only/2; v2_full/2"]' in chart


@pytest.mark.parametrize("name", ["decision", "appendix", "money", "status", "record", "defense"])
def test_what_a_person_reads_is_the_stored_text(users_case: Path, name: str) -> None:
    write_all(users_case, figures=False)
    assert read(users_case, name) == (EXPECTED / f"{name}.md").read_text(encoding="utf-8")
