"""Texts of the pages: every language has every key, every key that the pages use is there, and files are packaged."""

import json
import re
import string
from pathlib import Path

import pytest
from tests.web.test_api import Growing

from dreamproof.report.language import LANGUAGES, texts_in
from dreamproof.study.ledger import events
from dreamproof.study.ledger.clock import read_moment
from dreamproof.study.ledger.status import STATUSES
from dreamproof.study.plan.open_study import open_study
from dreamproof.study.views.overview import make_overview
from dreamproof.web.assets import FOLDER, WEB_TEXTS, assets, recorded_forms, web_texts

SCRIPTS = [*FOLDER.glob("*.js"), *FOLDER.glob("views/*.js")]


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_no_text_is_untranslated_or_left_over(language: str) -> None:
    english, other = texts_in(WEB_TEXTS, "en").entries, texts_in(WEB_TEXTS, language).entries
    assert set(english) == set(other)
    assert [key for key in english if fields(english[key]) != fields(other[key])] == []


def test_every_text_that_the_pages_use_is_in_the_catalogue() -> None:
    used = {key for path in SCRIPTS for key in re.findall(r"\bt\(\"([a-z_.]+)\"", path.read_text())}
    assert len(used) > 80
    assert used - web_texts("en").keys() == set()


def test_every_text_of_the_catalogue_is_used() -> None:
    scripts = "\n".join(path.read_text() for path in SCRIPTS)
    families = ("state.", "study_state.", "tab.", "column.", "work.", "theme.", "phase.", "remedy.", "notice.")
    own = [key for key in texts_in(WEB_TEXTS, "en").entries if not key.startswith(families)]
    assert [key for key in own if f'"{key}"' not in scripts] == []


def test_every_state_has_a_text_a_colour_and_a_shape() -> None:
    texts, style = web_texts("en"), (FOLDER / "style.css").read_text()
    shapes = (FOLDER / "states.js").read_text()
    for state in STATUSES:
        assert (
            f"state.{state}" in texts and f".s-{state} {{ --c:" in style and f".matrix .s-{state} {{ --shape" in style
        )
        assert f"\n  {state}: " in shapes


def test_the_two_kinds_of_chinese_do_not_mix() -> None:
    simplified, traditional = ("".join(texts_in(WEB_TEXTS, tag).entries.values()) for tag in ("zh-Hans", "zh-Hant"))
    assert not set("训练评预应实验证结论声运监进单时间费账") & set(traditional)
    assert not set("訓練評預應實驗證結論聲運監進單時間費帳") & set(simplified)


def test_pages_scripts_styles_and_texts_are_served_by_name() -> None:
    names = set(assets())
    assert {
        "index.html",
        "app.js",
        "style.css",
        "vendor/uPlot.js",
        "vendor/uPlot-LICENSE.txt",
        "texts/zh-Hant.json",
    } <= names
    assert not [name for name in names if ".." in name or name.startswith("/")]


def known_again(text: str) -> bool:
    """Whether a page finds the form of a recorded sentence."""
    patterns = [re.sub(r"\\\{(\w+)\\\}", "(.+?)", re.escape(form)) for form in recorded_forms().values()]
    return any(re.fullmatch(pattern, text) for pattern in patterns)


def test_sentences_of_the_program_are_known_again_on_chinese_pages(tmp_path: Path) -> None:
    growing = Growing(tmp_path / "study")
    growing.append(events.BreakerTripped("7 attempts in a row failed within 60 s of their start"))
    growing.append(events.BudgetReached(4.5, 5.0), events.PreflightFailed("f", "no GPU"))
    growing.append(events.AttemptStarted("a1", "train", ["full/1"], [], ["train"], {"full/1": 0}))
    overview = make_overview(open_study(tmp_path / "study"), read_moment())
    assert len(overview.notices) >= 4
    assert [text for text in overview.notices if not known_again(text)] == []
    assert known_again("failed 2 times with the same cause: bug") and known_again("a000003 ended: bug")
    assert {"notice.breaker", "form.notice.breaker"} <= json.loads(assets()["texts/zh-Hans.json"].content).keys()
