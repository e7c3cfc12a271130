"""The browser that pages are opened in."""

import importlib.util
import shutil

import pytest

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), "")
_FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="module")
def browser():
    """Chromium; the test is skipped where it, playwright or axe is missing."""
    if not _CHROMIUM:
        pytest.skip("needs Chromium: apt-get install chromium")
    if not all(map(importlib.util.find_spec, ("playwright", "axe_playwright_python"))):
        pytest.skip("needs playwright and axe: pip install -c constraints.txt -e '.[test]'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Returns the function (address, width, **options of the context) -> the opened page.

    At the end of the test nothing has failed in any page, and none has asked for anything but what
    is at its address. Errors that a server answers are no failures: tests ask for them.
    """
    contexts, seen = [], []

    def visit(address: str, width: int = 1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()

        def check(url: str) -> None:
            if not url.startswith((address, "about:", "data:")):
                seen.append(url)

        page.on("request", lambda request: check(request.url))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("console", lambda message: seen.append(message.text))
        page.goto(address)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert [line for line in seen if "status of" not in line] == []
