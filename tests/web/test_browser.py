"""The pages in a real browser: live, by keyboard alone, on phones, in three languages, light and dark."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from tests.web.browser import READY, chromium, page_of, until, visit
from tests.web.test_attacks import HOSTILE, hostile_study

from dreamproof.base.files import read_json
from dreamproof.runs.layout import Cell, StudyFolder
from dreamproof.testing.lively_study import LivelyStudy, lively_study
from dreamproof.testing.made_study import make_study
from dreamproof.testing.served import Dashboard, dashboard
from dreamproof.testing.small_study import declare, small_study
from dreamproof.testing.waiting import wait_for

pytestmark = pytest.mark.long(60)

PICTURES = os.environ.get("DREAMPROOF_PICTURES")
"""Where pictures for the documents go; else they go where tests keep what they write."""
STUDY = "/studies/safe_navigation"
PAGES = {
    "overview": "/",
    "study": STUDY,
    "cell": f"{STUDY}/cells/full/1",
    "curves": f"{STUDY}/curves",
    "conditions": f"{STUDY}/conditions",
    "timeline": f"{STUDY}/timeline",
    "money": f"{STUDY}/money",
    "decision": f"{STUDY}/decision",
    "ledger": f"{STUDY}/ledger",
}


DOCUMENTED = {(name, 1280, "light") for name in PAGES} | {("study", 1280, "dark"), ("curves", 1280, "dark")}
DOCUMENTED |= {(name, 390, "light") for name in ("study", "curves", "cell")}
NEUTRAL = """(pairs) => { const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) for (const [from, to] of pairs)
        walk.currentNode.data = walk.currentNode.data.replaceAll(from, to); }"""
"""Takes names of this machine out of pictures."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivelyStudy]:
    root = tmp_path_factory.mktemp("results")
    make_study(root / "baselines")
    with lively_study(root / "safe_navigation") as study:
        yield study


@pytest.fixture(scope="module")
def site(lively: LivelyStudy) -> Iterator[Dashboard]:
    with dashboard(lively.folder.root.parent) as running:
        yield running


def _shrink(picture: Path) -> None:
    """Few colours are enough for a page, and documents stay small."""
    from PIL import Image

    with Image.open(picture) as image:
        image.convert("RGB").quantize(128).save(picture, optimize=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_shown_at_every_width_and_brightness(
    browser: Any, site: Dashboard, lively: LivelyStudy, width: int, scheme: str, tmp_path: Path
) -> None:
    folder = Path(PICTURES or tmp_path)
    view = {"width": width, "height": 780}
    with page_of(browser, viewport=view, color_scheme=scheme) as page:
        for name, path in PAGES.items():
            visit(page, site.address + path)
            if name == "decision":
                until(page, "[...document.images].filter(i => i.loading === 'lazy').length >= 1")
                page.evaluate("for (const i of document.images) i.loading = 'eager'")
                until(page, "[...document.images].every(i => i.complete)")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
            dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
            assert dark == (scheme == "dark")
            page.evaluate("scrollTo(0, 0)")
            picture = folder / f"{name}-{width}-{scheme}.png"
            if PICTURES:
                if (name, width, scheme) not in DOCUMENTED:
                    continue
                page.evaluate(
                    NEUTRAL, [[str(lively.folder.root.parent), "/home/ann/results"], [gethostname(), "gpu-box"]]
                )
            page.screenshot(path=picture, animations="disabled")
            assert picture.stat().st_size > 5000
            if PICTURES:
                _shrink(picture)


def test_the_matrix_shows_state_and_cause_by_colour_and_shape(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address + STUDY)
        looks = page.evaluate("""Object.fromEntries([...document.querySelectorAll('.matrix a')].map(a => {
            const style = getComputedStyle(a);
            return [a.dataset.cell, [a.className, style.backgroundColor, style.backgroundImage, a.ariaLabel]]; }))""")
        assert looks["baseline/0"][0] == "s-proven" and looks["baseline/0"][1] == "rgb(46, 125, 91)"
        assert looks["full/2"][0].startswith("s-stopped cause") and "error in the program" in looks["full/2"][3]
        assert looks["full/1"][0].startswith("s-waiting cause") and "out of host memory" in looks["full/1"][3]
        assert looks["full/3"][0] == "s-running" and "48 %" in looks["full/3"][3]
        assert looks["full/4"][0] == "s-running stalled" and looks["cert_only/4"][0] == "s-missing"
        shapes = {name: look[2] for name, look in looks.items()}
        assert len({shapes[cell] for cell in ("baseline/0", "full/1", "full/2", "full/3", "cert_only/4")}) == 5
        badges = {page.evaluate(f"getComputedStyle(document.querySelector('[data-cell=\"{c}\"]'), '::after').clipPath")
                  for c in ("full/1", "full/2")}  # fmt: skip
        assert len(badges) == 2
        legend = page.inner_text(".legend")
        assert "proven" in legend and "out of host memory" in legend


def test_the_page_follows_the_ledger_and_the_logs(browser: Any, site: Dashboard, lively: LivelyStudy) -> None:
    with page_of(browser) as page:
        visit(page, site.address + STUDY)
        page.wait_for_selector("[data-cell='full/3'][aria-label*='48 %']")
        lively.progress("full/3", 30_000)
        page.wait_for_selector("[data-cell='full/3'][aria-label*='75 %']")
        lively.start("a000105", "cert_only/4", 0.01)
        page.wait_for_selector("[data-cell='cert_only/4'].s-running")
        lively.end("a000105", "cert_only/4", "device_oom", ["RESOURCE_EXHAUSTED: Out of memory"], 0.001, 100)
        page.wait_for_selector("[data-cell='cert_only/4'].s-waiting.cause")
        page.click("[data-cell='cert_only/4']")
        page.wait_for_selector(".attempt.bad")
        assert "out of GPU memory" in page.inner_text(".attempt.bad")
        assert "RESOURCE_EXHAUSTED" in page.inner_text(".attempt.bad blockquote")
        output = lively.folder.attempt("a000105").output
        with output.open("a") as file:
            file.write("a line printed later\n")
        lively.progress("full/3", 30_100)
        until(page, "document.querySelector('.log').innerText.includes('a line printed later')")


def test_curves_draw_zoom_and_say_how_they_are_smoothed(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address + f"{STUDY}/curves")
        page.wait_for_selector(".chart canvas")
        drawn = "document.querySelector('.chart canvas')"
        coloured = f"""(() => {{ const c = {drawn}, d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            let n = 0;
            for (let i = 0; i < d.length; i += 4)
                if (d[i] > 180 && d[i + 1] < 150 && d[i + 2] > 130 && d[i + 3] > 200) n++;
            return n; }})()"""
        assert page.evaluate(coloured) > 100  # the pink of the fourth arm
        box = page.locator(".chart .u-over").bounding_box()
        page.mouse.move(box["x"] + 200, box["y"] + 80)
        until(page, "!document.querySelector('.u-legend .shown .u-value').innerText.includes('–')")
        page.mouse.down()
        page.mouse.move(box["x"] + 400, box["y"] + 80, steps=5)
        page.mouse.up()
        until(page, "new URLSearchParams(location.search).has('from')")
        page.reload()
        page.wait_for_selector(".chart canvas")
        low = page.evaluate("document.querySelector('.chart').chart.scales.x.min")
        assert low > 1000
        page.select_option("[data-key=smooth]", "10")
        until(page, "document.body.innerText.includes('mean of the last 10 logged values')")
        page.check("[data-key=y]")
        until(page, "document.querySelector('.chart').chart.scales.y.distr === 3")
        page.select_option("[data-key=metric]", "cost")
        until(page, "document.querySelector('.chart').ariaLabel.startsWith('cost')")


def test_a_chart_is_used_by_keys(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address + f"{STUDY}/curves")
        page.focus(".chart")
        whole = page.evaluate("document.querySelector('.chart').chart.scales.x.max")
        for _ in range(5):
            page.keyboard.press("ArrowLeft")
        until(page, "!document.querySelector('.u-legend .shown .u-value').innerText.includes('–')")
        page.keyboard.press("+")
        until(page, "new URLSearchParams(location.search).has('from')")
        page.keyboard.press("0")
        until(page, "!new URLSearchParams(location.search).has('from')")
        assert page.evaluate("document.querySelector('.chart').chart.scales.x.max") == whole


def test_language_and_appearance_are_chosen_and_kept(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address + STUDY)
        page.select_option("select[aria-label=Language]", "zh-Hans")
        page.wait_for_selector("text=单元")
        assert page.get_attribute("html", "lang") == "zh-Hans"
        page.select_option("select[aria-label=外观]", "dark")
        page.goto(site.address + f"{STUDY}/decision")
        page.wait_for_selector("text=决策报告")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
        page.select_option("select[aria-label=语言]", "zh-Hant")
        page.wait_for_selector("text=決策報告")
    with page_of(browser, locale="zh-TW") as page:
        visit(page, site.address)
        assert page.get_attribute("html", "lang") == "zh-Hant"


def test_money_is_shown_with_its_currency_if_one_is_declared(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address)
        address = page.evaluate("performance.getEntriesByType('resource').find(e => /text.*js/.test(e.name)).name")
        shown = f"import('{address}').then(m => ['CNY', 'CHF', null].map(currency => m.money(1.5, currency)))"
        assert page.evaluate(shown) == ["¥1.50", "1.50 CHF", "1.50"]


def test_everything_is_reached_by_keyboard_alone(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        _tab_to(page, "document.activeElement.innerText === 'safe_navigation'")
        page.keyboard.press("Enter")
        page.wait_for_selector(".matrix")
        _tab_to(page, "document.activeElement.dataset.cell === 'baseline/0'")
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.cell") == "full/2"
        page.keyboard.press("Enter")
        page.wait_for_selector(".attempt")
        assert page.url.endswith("/cells/full/2")
        names = page.evaluate("""[...document.querySelectorAll('button, a, select, input')].filter(e =>
            !(e.innerText || e.ariaLabel || e.title || (e.labels && e.labels.length))).length""")
        assert names == 0
        unnamed = page.evaluate(
            "[...document.querySelectorAll('[role=img], [role=region]')].filter(e => !e.ariaLabel).length"
        )
        assert unnamed == 0


def _tab_to(page: Any, condition: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return
    raise AssertionError(condition)


def test_back_and_forward_lead_through_views_and_filters(browser: Any, site: Dashboard) -> None:
    with page_of(browser) as page:
        visit(page, site.address)
        page.click("text=safe_navigation")
        page.wait_for_selector(".matrix")
        page.click("[data-cell='full/2']")
        page.wait_for_selector(".attempt")
        page.click("nav >> text=Money")
        page.wait_for_selector(".money-drawing")
        page.go_back()
        page.wait_for_selector(".attempt")
        page.go_back()
        page.wait_for_selector(".matrix")
        page.go_forward()
        page.wait_for_selector(".attempt")
        visit(page, site.address + f"{STUDY}/ledger?event=attempt_ended&text=host_oom")
        page.wait_for_selector(".ledger-table tbody tr")
        assert {row.split()[3] for row in page.locator(".ledger-table tbody tr").all_inner_texts()} == {"attempt_ended"}
        assert page.input_value("input[name=event]") == "attempt_ended"


def test_every_view_can_be_saved_as_a_table_and_as_a_picture(browser: Any, site: Dashboard) -> None:
    with page_of(browser, accept_downloads=True) as page:
        for name, path in PAGES.items():
            visit(page, site.address + path)
            if name in ("curves", "cell"):
                page.wait_for_selector(".chart canvas")
            for button, start in (("CSV", None), ("PNG", b"\x89PNG")):
                with page.expect_download() as saved:
                    page.click(f".downloads >> text={button}")
                content = Path(saved.value.path()).read_bytes()
                assert len(content) > 100 and (start is None or content.startswith(start)), (name, button)


def log_metrics(root: Path, rows: list[dict[str, float]]) -> None:
    """Further lines in the log of one cell."""
    run = StudyFolder(root).run(Cell("full", 0))
    with run.metrics.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_axes_of_any_values_are_drawn_and_say_what_they_leave_out(browser: Any, tmp_path: Path) -> None:
    root = make_study(tmp_path / "study")
    steps = range(100_000, 100_100)
    log_metrics(root, [{"agent_steps": n, "below": -1.0 - n, "mixed": n - 100_049.0, "huge": n * 1e295} for n in steps])
    scale = "(({distr, min, max}) => [distr, min, max])(document.querySelector('.chart').chart.scales.y)"
    with dashboard(root) as running, page_of(browser) as page:
        address = f"{running.address}/studies/study/curves"
        visit(page, f"{address}?metric=below&y=log")
        assert page.evaluate(scale)[0] == 1 and "No value is above 0" in page.inner_text(".view")
        visit(page, f"{address}?metric=mixed&y=log&x=log")
        assert page.evaluate(scale)[0] == 3 and page.evaluate(scale)[1] > 0
        assert "100 of 200 drawn values are not above 0" in page.inner_text(".view")  # the seed and its mean
        for query in ("huge", "huge&y=log"):
            visit(page, f"{address}?metric={query}")
            marks = page.evaluate("document.querySelector('.chart').chart.axes.map(axis => axis._splits.length)")
            assert all(2 <= count <= 20 for count in marks), (query, marks)
        visit(page, f"{address}?metric=return&smooth=25")
        page.wait_for_selector("a[download='study-return-mean_of_last_25.csv']")


def test_a_phone_shows_everything_without_scrolling_sideways(browser: Any, site: Dashboard) -> None:
    with page_of(browser, viewport={"width": 390, "height": 780}) as page:
        for name in ("timeline", "money", "conditions", "decision", "ledger"):
            visit(page, site.address + PAGES[name])
            tab = page.locator(".tabs [aria-current]").bounding_box()
            assert tab["x"] >= 0 and tab["x"] + tab["width"] <= 390, name
            hidden = """[...document.querySelectorAll('.scroll, main')].filter(e =>
                e.scrollWidth > e.clientWidth + 1).length"""
            assert page.evaluate(hidden) == 0, name


def test_pages_are_read_by_keys_and_in_one_time_zone(browser: Any, site: Dashboard) -> None:
    with page_of(browser, timezone_id="Asia/Shanghai") as page:
        visit(page, site.address + STUDY)
        page.focus("[data-cell='baseline/0']")
        page.keyboard.press("Control+End")
        assert page.evaluate("document.activeElement.dataset.cell") == "full/4"
        page.keyboard.press("Enter")
        page.wait_for_selector(".attempt")
        assert " UTC" in page.inner_text(".attempt")
        texts = page.evaluate("performance.getEntriesByType('resource').find(e => /text.*js/.test(e.name)).name")
        assert page.evaluate(f"import('{texts}').then(m => m.moment(86400))") == "1970-01-02 00:00:00 UTC"
        page.go_back()
        until(page, "document.activeElement.dataset.cell === 'full/4'")
        visit(page, site.address + f"{STUDY}/decision")
        page.locator(".report .number").first.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".source:has-text('cells:')")
        visit(page, site.address + f"{STUDY}/nope")
        assert "nothing at this address" in page.inner_text("main")
        visit(page, site.address + f"{STUDY}/cells/full/99")
        assert page.locator("main h2:visible").count() == 0 and page.locator(".failed").count() == 1


def test_what_the_program_recorded_is_translated_and_other_english_is_marked(browser: Any, site: Dashboard) -> None:
    with page_of(browser, locale="zh-CN") as page:
        visit(page, site.address + f"{STUDY}/cells/full/2")
        text = page.inner_text("main")
        assert "failed" not in text and "ended:" not in text
        english = page.locator("blockquote span[lang=en]").all_inner_texts()
        assert english and all(line.isascii() for line in english)


def test_nothing_that_a_study_holds_is_executed(browser: Any, tmp_path: Path) -> None:
    root = hostile_study(tmp_path / "hostile")
    with dashboard(root) as running, page_of(browser) as page:
        page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective))"
        )
        paths = [
            "",
            "/curves",
            "/conditions",
            "/timeline",
            "/money",
            "/decision",
            "/ledger",
            "/cells/full/0?attempt=efull-0",
        ]
        for path in ("/", *(f"/studies/hostile{part}" for part in paths)):
            visit(page, running.address + path)
            assert page.evaluate("document.querySelectorAll('img[src=x], body script, [onerror]').length") == 0
        until(page, "document.querySelector('.log').innerText.includes('<img src=x')")
        page.select_option("[data-key=metric]", HOSTILE)
        page.wait_for_selector(".chart canvas")
        assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0


def test_the_token_opens_the_page_and_leaves_its_address(browser: Any, tmp_path: Path) -> None:
    make_study(tmp_path / "study")
    with dashboard(tmp_path, token=True) as running:
        token = running.site.access.token
        with page_of(browser) as page:
            page.goto(running.address)
            page.wait_for_selector("form.token")
            page.fill("#token", "wrong")
            page.click("form.token button")
            page.wait_for_selector("text=The token is wrong")
            assert page.inner_text("#connection") == ""
            page.fill("#token", str(token))
            page.click("form.token button")
            page.wait_for_selector(".card")
        with page_of(browser) as page:
            visit(page, f"{running.address}/studies/study#token={token}")
            page.wait_for_selector(".matrix")
            assert str(token) not in page.url
            page.reload()
            page.wait_for_selector(".matrix")


def test_the_page_connects_again_by_itself(browser: Any, lively: LivelyStudy) -> None:
    root = lively.folder.root.parent
    with page_of(browser) as page:
        with dashboard(root) as running:
            visit(page, running.address)
            page.wait_for_selector(".connection.live")
            port = running.port
        page.wait_for_selector(".connection.lost")
        with dashboard(root, port=port):
            page.wait_for_selector(".connection.live")
            until(page, "!document.querySelector('.failed')")


def run_study(file: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "dreamproof.cli", "run", str(file), "--plain", "--no-check"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_live_study_grows_and_what_is_killed_is_shown(browser: Any, tmp_path: Path) -> None:
    """A supervisor of its own, real attempts; one trainer is killed, then the supervisor itself."""
    trainer = small_study()["trainer"]
    trainer["command"] = [*trainer["command"][:3], "--step-seconds", "0.2", "--save-every", "5"]
    file = declare(tmp_path, agent_steps=100, trainer=trainer, backend={"slots": 2}, conditions=[])
    folder = StudyFolder(tmp_path / "results" / "small")
    supervisor = run_study(file)
    try:
        wait_for(folder.ledger.exists)
        with dashboard(file) as running, page_of(browser) as page:
            visit(page, f"{running.address}/studies/small")
            page.wait_for_selector(".matrix .s-running")
            page.wait_for_selector(".is-running")
            first = folder.attempt("a000001")
            child = wait_for(lambda: (read_json(first.shim) or {}).get("child"))
            os.kill(child["process_id"], signal.SIGKILL)
            page.goto(f"{running.address}/studies/small/cells/low/0")
            page.wait_for_selector(".attempt.bad")
            assert "killed" in page.inner_text(".attempt.bad .cause")
            assert page.inner_text(".attempt.bad blockquote")
            page.goto(f"{running.address}/studies/small")
            page.wait_for_selector(READY)
            supervisor.kill()
            supervisor.wait()
            page.wait_for_selector(".is-killed")
            page.wait_for_selector("text=The supervisor is gone.")
            supervisor = run_study(file)
            page.wait_for_selector(".is-running")
    finally:
        supervisor.send_signal(signal.SIGINT)
        supervisor.wait()


def test_ten_thousand_cells_are_shown(browser: Any, tmp_path: Path) -> None:
    from tests.web.test_api import big_study

    big_study(tmp_path / "big")
    with dashboard(tmp_path / "big") as running, page_of(browser) as page:
        page.goto(f"{running.address}/studies/big")
        page.wait_for_selector(".matrix a.s-missing")
        cells = page.eval_on_selector_all(".matrix a", "cells => cells.map(cell => cell.dataset.cell)")
        assert set(cells) == {f"arm{arm}/{seed}" for arm in range(100) for seed in range(100)} and len(cells) == 10_000
        last = page.locator(".matrix a").last
        last.scroll_into_view_if_needed()
        box = last.bounding_box()
        assert box is not None and min(box["width"], box["height"]) >= 4
        shown = page.evaluate("performance.now()")
        print(json.dumps({"ten_thousand_cells_ms": shown}))
