"""The decision fits on one page, and its numbers have no more digits than the data support."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dreamproof.base.text import estimate_text, two_digits
from dreamproof.report import make_context, write_all
from dreamproof.report.documents.summary import summary_table, verdicts_table
from dreamproof.report.headline import headline
from dreamproof.report.language import LANGUAGES
from dreamproof.report.numbers import Number, plain
from dreamproof.report.rounding import round_by
from dreamproof.runs.layout import StudyFolder
from dreamproof.testing.gallery import unpack
from dreamproof.testing.made_study import Plan, make_study

FLAGSHIP = Path(__file__).parents[2] / "gallery" / "safedreamer_v2"
MAX_WORDS = 900


@pytest.fixture(scope="module")
def flagship(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(FLAGSHIP, tmp_path_factory.mktemp("flagship") / "study")


@cache
def decision(root: Path, language: str = "en") -> str:
    """The page of a study that does not change; it is written once."""
    write_all(root, language, figures=False)
    return (StudyFolder(root).reports_in(language) / "decision.md").read_text(encoding="utf-8")


def test_the_kept_decision_of_the_flagship_is_one_page_with_two_figures() -> None:
    text = (FLAGSHIP / "reports" / "decision.md").read_text(encoding="utf-8")
    assert len(text.split()) < MAX_WORDS
    assert text.count("](../figures/") == 2 and "[appendix" in text
    assert re.findall("(?m)^## (.*)$", text) == [
        "Key table",
        "Verdicts",
        "Final and selected checkpoints",
        "Next steps, and their price",
        "Read with care",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_begins_with_the_answer(flagship: Path, language: str) -> None:
    first = decision(flagship, language).split("\n\n")[1]
    expected = {
        "en": (
            ("Cannot decide whether any arm differs from `margin`", "do not separate the arms at level 0.013"),
            "no arm wins: none is shown to be better and to keep the limit under id.",
        ),
        "zh-Hans": (("无法判定是否有配置", "在水平 0.013 上分不开"), "没有一个被证明更优且在 id 下满足约束。"),
        "zh-Hant": (("無法判定是否有配置", "在水準 0.013 上分不開"), "沒有一個被證明更優且在 id 下滿足約束。"),
    }
    parts, end = expected[language]
    assert first.startswith("> ➤ **") and all(part in first for part in parts) and first.endswith(end)


def some_worse(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
    centre = {"u_only": 15.0, "full": 15.0, "cert_only": 18.0 + seed}.get(arm, 20.0)
    return {"return": generator.normal(centre + 0.1 * seed, 0.01, 10), "cost": np.zeros(10)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_several_verdicts_are_one_sentence(tmp_path: Path, language: str) -> None:
    study = make_study(tmp_path / "study", Plan(draw=some_worse, curves=False, trails=False))
    expected = {
        "en": "In return under id, `u_only` and `full` are **worse** than `baseline`; `cert_only` is **undecided**.",
        "zh-Hans": "id 下的 return：`u_only` 和 `full` 比 `baseline` **更差**；`cert_only` **尚未判定**。",
        "zh-Hant": "id 下的 return：`u_only` 和 `full` 比 `baseline` **更差**；`cert_only` **尚未判定**。",
    }
    assert headline(make_context(study, language)) == expected[language]


def test_the_key_table_has_score_ood_score_cost_with_verdict_and_risk(flagship: Path) -> None:
    context = make_context(flagship, "en")
    table = summary_table(context)
    assert table.header == [
        "arm",
        "return · the mean of 7 conditions",
        "return · OOD, mean of 7 shifts",
        "cost · id (limit 5)",
        "cost, worst tenth",
        "limit under 8 other conditions",
    ]
    assert "(id, mass_x2, damping_x0.5, hazards_16, action_delay_2, yaw_gain_x0.6, action_noise_0.1)" in decision(
        flagship
    )
    assert "the worst 10 % of the episodes of a seed (CVaR90), then the mean over seeds" in decision(flagship)
    rows = [[plain(cell, context.numbers.rounded) for cell in row] for row in table.rows]
    assert rows[0][:5] == ["margin", "22.3 ± 1.0", "22.3 ± 1.0", "1.5 ± 1.2 (cannot tell)", "9.1"]
    assert rows[3][3] == "0.28 ± 0.35 (keeps)"
    assert rows[5][:2] == ["scripted policy: random", "−0.9"]
    assert len(verdicts_table(context).header) == 5


def test_a_proxy_is_not_called_ood(users_case: Path) -> None:
    assert "OOD" not in " ".join(summary_table(make_context(users_case, "en")).header)


def test_without_a_limit_the_risk_is_the_worst_seed(tmp_path: Path) -> None:
    context = make_context(make_study(tmp_path / "study", Plan(constraint=None, curves=False, trails=False)), "en")
    assert summary_table(context).header[-1] == "return, worst seed"


def test_the_number_of_seeds_is_that_of_the_values(users_case: Path) -> None:
    assert "Mean ± sd over 2 training seeds" in decision(users_case)


def alike(generator: np.random.Generator, arm: str, seed: int, condition: str) -> dict[str, np.ndarray]:
    return {"return": generator.normal(0, 0.01, 10), "cost": np.zeros(10)}


def test_equivalent_and_single_arms_have_a_headline(tmp_path: Path) -> None:
    plan = Plan(arms=("baseline", "u", "v"), draw=alike, curves=False, trails=False)
    context = make_context(make_study(tmp_path / "alike", plan), "en")
    assert headline(context) == (
        "In return under id, `u` and `v` are **equivalent** to `baseline` and shown to keep the limit."
    )
    alone = make_context(make_study(tmp_path / "alone", Plan(arms=("baseline",), curves=False, trails=False)), "en")
    assert headline(alone) == "There is only one arm (baseline): nothing is compared."


@pytest.mark.parametrize(
    ("text", "value", "uncertainty", "shown"),
    [
        ("−334.82", -334.82, 126.8, "−330"),
        ("25.19", 25.19, 1.23, "25.2"),
        ("21.40", 21.396, 0.87, "21.4"),
        ("+4.08", 4.08, 1.04, "+4.1"),
        ("0.04", 0.04, 0.97, "0.0"),
        ("1.684", 1.684, 0.0001, "1.684"),
        ("83.00", 83.0, None, "83.00"),
        ("83.00", 83.0, 0.0, "83.00"),
        ("1e+300", 1e300, 1.0, "1e+300"),
        ("–", None, 1.0, "–"),
    ],
)
def test_a_number_has_the_digits_of_its_uncertainty(
    text: str, value: float | None, uncertainty: float | None, shown: str
) -> None:
    assert round_by(text, value, uncertainty) == shown


def test_a_forecast_has_two_digits() -> None:
    assert [two_digits(value) for value in (9526.38, 315.07, 17.6, 5.03, 0.417, 0.0, None)] == [
        *("9,500", "320", "18", "5.0", "0.42", "0.0", "–"),
    ]
    assert (estimate_text(9526.38, "CNY"), estimate_text(1.0, "CHF"), estimate_text(None, "CNY")) == (
        "¥9,500",
        "1.0 CHF",
        "–",
    )


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("versus.full.damping_x0.5_low", ("versus.full.damping_x0.5", "low")),
        ("main.full.damping_x0.5.t_high", ("main.full.damping_x0.5", "t_high")),
        ("main.full.damping_x0.5.mean", ("main.full.damping_x0.5", "mean")),
        ("versus.full.id.improvement_low", ("versus.full.id", "improvement_low")),
        ("limit.full.id.cost_high", ("limit.full.id.cost", "high")),
    ],
)
def test_a_key_is_split_behind_the_whole_name_of_its_condition(key: str, parts: tuple[str, str]) -> None:
    assert Number(key, 1.0, "1", ()).place_and_name == parts


def test_the_page_has_contents_and_one_print_page_for_the_decision(flagship: Path) -> None:
    decision(flagship)
    page = (flagship / "reports" / "decision.html").read_text(encoding="utf-8")
    listed = re.findall('<a href="#([^"]+)"', page[page.index("<nav>") : page.index("</nav>")])
    headings = re.findall('<h[12] id="([^"]+)"', page)
    assert listed == headings and "appendix" in listed
    assert "break-before: page" in page and "prefers-color-scheme: dark" in page
