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
