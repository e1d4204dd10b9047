"""A real Chromium for tests of the pages; without one they are skipped, which CI counts as a failure."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

WAIT_MS = int(os.environ.get("BROWSER_MS", "120000"))
READY = ".view[data-ready]"


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, driven by Playwright, which downloads nothing."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_of(browser: Any, **options: Any) -> Iterator[Any]:
    """A page in a fresh context; an error of its scripts, a dialog or a breach of its policy fails the test."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, "locale": "en-US"} | options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda line: faults.append(line.text) if _is_fault(line) else None)
    try:
        yield page
    finally:
        context.close()
    assert faults == []


def _is_fault(line: Any) -> bool:
    expected = ("Failed to load resource", "net::ERR_")
    return line.type == "error" and not any(text in line.text for text in expected)


def visit(page: Any, address: str) -> None:
    """Opens an address and waits until its view has its data."""
    page.goto(address)
    page.wait_for_selector(READY)


def until(page: Any, condition: str) -> None:
    """Waits until an expression is true in the page, whose policy forbids that scripts are made from texts."""
    for _ in range(WAIT_MS // 100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise TimeoutError(condition)
