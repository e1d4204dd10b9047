"""All languages have the same keys and placeholders, and a font that has every character."""

import re
import string
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont

from dreamproof import report
from dreamproof.report import write_all
from dreamproof.report.figures.theme import BUNDLED, FONTS
from dreamproof.report.fonts.subset import characters_of
from dreamproof.report.language import LANGUAGES, read_texts
from dreamproof.report.quotes import local_duration, translated
from dreamproof.stats.verdict import Kind, Why
from dreamproof.study.diagnosis.diagnose import Cause

SOURCE = Path(report.__file__).parent


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_no_key_is_untranslated_or_left_over(language: str) -> None:
    assert set(read_texts(language).entries) == set(read_texts("en").entries)


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_every_text_has_the_same_placeholders(language: str) -> None:
    english, other = read_texts("en").entries, read_texts(language).entries
    assert [key for key in english if fields(english[key]) != fields(other[key])] == []


def test_every_key_in_the_program_is_in_the_catalogue() -> None:
    used = set()
    for path in SOURCE.rglob("*.py"):
        used |= set(re.findall(r"(?<!read_)texts\(\s*\"([a-z_.]+)\"", path.read_text()))
    assert len(used) > 100
    assert used - set(read_texts("en").entries) == set()


def test_every_lint_verdict_reason_and_cause_has_a_text() -> None:
    texts = read_texts("en").entries
    lints = "".join(path.read_text() for path in (SOURCE / "lints").glob("*.py"))
    found = re.findall(r"Lint\(\s*\"([a-z_]+)\"", lints)
    assert len(found) > 25
    for code in [*found, "no_cjk_font", "no_slides"]:
        assert f"lint.{code}" in texts and f"lint_title.{code}" in texts
    assert {f"verdict.{kind}" for kind in Kind} <= set(texts)
    assert {f"why.{why}" for why in Why} <= set(texts)
    assert {f"cause.{cause}" for cause in Cause} <= set(texts)


def test_the_two_kinds_of_chinese_do_not_mix() -> None:
    simplified, traditional = ("".join(read_texts(tag).entries.values()) for tag in ("zh-Hans", "zh-Hant"))
    assert not set("训练评预应实验证结论声") & set(traditional)
    assert not set("訓練評預應實驗證結論聲") & set(simplified)


FORBIDDEN = {
    "zh-Hans": "主人 训练格 评估格 跑 把握 复盘 死因 每边",
    "zh-Hant": "主人 訓練格 評估格 跑 把握 復盤 死因 每邊 導入 信號 回滾",
}


@pytest.mark.parametrize("language", FORBIDDEN)
def test_the_wording_of_each_place_is_used(language: str) -> None:
    whole = "\n".join(read_texts(language).entries.values())
    assert [word for word in FORBIDDEN[language].split() if word in whole] == []
    assert not re.search(r"[^布佈]局", whole)
    assert not re.search("[\u4e00-\u9fff][,;:](?!//)", whole)


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_what_the_program_recorded_is_read_in_chinese(language: str) -> None:
    texts = read_texts(language)
    english = "failed 3 times with the same cause: host_oom"
    assert translated(english, read_texts("en")) == english
    assert texts.entries["cause.host_oom"] in translated(english, texts) and "3" in translated(english, texts)
    assert translated("RuntimeError: CUDA error", texts) == "RuntimeError: CUDA error"
    nested = translated("asked to stop: the last step was not reached", texts)
    assert not re.search("[A-Za-z]", nested)
    assert (
        not re.search("[a-z]", local_duration(7500.0, texts))
        and local_duration(7500.0, read_texts("en")) == "2 h 5 min"
    )


def test_every_form_of_a_recorded_text_is_written_by_the_program() -> None:
    program = "\n".join(path.read_text() for path in (SOURCE.parent / "study").rglob("*.py"))
    program += (SOURCE / "loading.py").read_text()
    for key, text in read_texts("en").entries.items():
        if key.startswith("quote.") and key != "quote.proven_before":  # of version 0.1.0
            longest = max(re.split(r"\{\w+\}", text), key=len).strip(" ,:")
            assert longest in program, key


@pytest.mark.parametrize("language", BUNDLED)
def test_the_bundled_font_has_every_character(language: str) -> None:
    with TTFont(FONTS / BUNDLED[language]) as font:
        known = set(font.getBestCmap())
    labels = {c for c in characters_of(language) if 0x2E7F < ord(c) < 0x1F000}
    assert {c for c in labels if ord(c) not in known} == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_documents_are_written_in_every_language(users_case: Path, language: str) -> None:
    write_all(users_case, language)
    folder = users_case / "reports" / ("" if language == "en" else language)
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.md")]
    assert len(texts) == 6
    for text in texts:
        assert not re.search(r"\{(?!run_dir|seed|condition)[a-z_]+\}", text)
        assert ("实验" in text) == (language == "zh-Hans")


def test_without_any_font_labels_are_english_and_the_report_says_so(
    users_case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dreamproof.report.figures.theme.BUNDLED", {})
    monkeypatch.setattr("dreamproof.report.figures.theme.SYSTEM_FONTS", ())
    write_all(users_case, "zh-Hans")
    assert "没有中文字体" in (users_case / "reports" / "zh-Hans" / "appendix.md").read_text(encoding="utf-8")
