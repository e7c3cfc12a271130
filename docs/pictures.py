"""Makes a picture of a page for the documentation: the top of an HTML file, or of an address.

    python docs/pictures.py runs/quickstart/report.html docs/report.png
    bert_jax attention "The cat sat on the mat." --model=MODEL --output=attention.html
    python docs/pictures.py attention.html docs/attention.png
    bert_jax serve --model=runs/quickstart &
    python docs/pictures.py http://127.0.0.1:8000 docs/serve.png

A form is filled in with its first sample, and sent. Requires Chromium and the extra `test`.
The labels that a picture shows are stored in it, so that tests find those that the program no
longer writes.
"""

import pathlib
import shutil
import struct
import sys
import zlib

SIZE = {"width": 1280, "height": 860}  # pixels
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_KEYWORD = b"Labels\0"
# The texts without digits of visible elements that have no others inside.
_READ_LABELS = """height => [...document.querySelectorAll("body *")]
    .filter(e => !e.children.length && e.checkVisibility())
    .filter(e => e.getBoundingClientRect().bottom < height)
    .map(e => e.textContent.trim())
    .filter(text => text.length > 3 && !/[0-9]/.test(text))"""


def take(page: str, picture: str) -> None:
    """Writes the top of a page as a PNG file."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        opened = browser.new_page(viewport=SIZE)
        opened.goto(page if "://" in page else pathlib.Path(page).resolve().as_uri())
        opened.wait_for_selector("main section")  # a server's model may be loaded meanwhile
        for button in ("button.sample", "button[type=submit]"):
            if (found := opened.locator(f"{button} >> visible=true").first).count():
                found.click()
        opened.wait_for_load_state("networkidle")
        content, labels = opened.screenshot(), opened.evaluate(_READ_LABELS, SIZE["height"])
        browser.close()
    text = _KEYWORD + "\n".join(dict.fromkeys(labels)).encode("latin-1", "ignore")
    chunk = struct.pack(">I", len(text)) + b"tEXt" + text
    chunk += struct.pack(">I", zlib.crc32(b"tEXt" + text))
    header_end = len(_SIGNATURE) + 25  # the first chunk, IHDR, has 25 bytes
    pathlib.Path(picture).write_bytes(content[:header_end] + chunk + content[header_end:])


def labels_of(picture: str) -> list[str]:
    """Returns the labels that `take` has stored in a picture."""
    content = pathlib.Path(picture).read_bytes()
    start = content.index(b"tEXt" + _KEYWORD)
    (length,) = struct.unpack(">I", content[start - 4 : start])
    return content[start + 4 + len(_KEYWORD) : start + 4 + length].decode("latin-1").split("\n")


if __name__ == "__main__":
    take(*sys.argv[1:])
