"""A headless Chromium for tests: where it is, pages from disk that may ask for nothing else, and what they show."""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = "tests of pages need Chromium: scripts/browser.sh installs Debian's (apt-get install chromium)"


def found() -> str | None:
    """Where Chromium is, if it is on this machine."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


@cache
def launched():
    """The browser of this process, which ends with it. Without Chromium tests are skipped, but in CI they fail."""
    path = found()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(INSTALL)
        pytest.skip(INSTALL)
    from playwright.sync_api import sync_playwright

    driver = sync_playwright().start()
    atexit.register(driver.stop)
    return driver.chromium.launch(executable_path=path, args=["--no-sandbox"])


class Opened:
    """A page on the screen of the browser, with all that went wrong in it."""

    def __init__(self, tab) -> None:
        self.tab = tab
        self.wrong: list[str] = []
        tab.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        tab.on("console", lambda line: self._heard(line))
        tab.on("requestfailed", lambda request: self.wrong.append(f"failed: {request.url[:200]}"))
        tab.route("**/*", self._asked)

    def _heard(self, line) -> None:
        if line.type in ("error", "warning", "assert"):
            self.wrong.append(f"console {line.type}: {line.text}")

    def _asked(self, route) -> None:
        """Files on this disk, and what a page has within itself; anything else is wrong."""
        if route.request.url.partition(":")[0] in ("file", "data", "blob", "about"):
            route.continue_()
        else:
            self.wrong.append(f"asked for {route.request.url[:200]}")
            route.abort()

    def go(self, path, state: str = "") -> Opened:
        """Open a file in a state of its address, and wait until its first view is complete."""
        return self.follow(Path(path).resolve().as_uri() + (f"#{state}" if state else ""))

    def follow(self, link: str) -> Opened:
        """Open an address; where the page does not get ready, what went wrong in it is said."""
        self.tab.goto(link)
        try:
            self.tab.wait_for_function("() => window.Symacct && Symacct.ready === true", timeout=60_000)
        except Exception as error:
            raise AssertionError(f"{link} is not ready: {self.wrong}") from error
        return self

    def drawn(self) -> Opened:
        """Wait until what was changed is on the screen: two frames later."""
        self.tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self

    def set(self, **sizes: int) -> Opened:
        """Write sizes into the boxes, as a person does."""
        for name, size in sizes.items():
            self.write(name, str(size))
        return self.drawn()

    def write(self, dim: str, text: str) -> Opened:
        """Write a text into the box of a dim and leave it."""
        box = self.tab.locator(f'[id="size-{dim}"]')
        box.fill(text)
        box.press("Enter")
        return self.drawn()

    def choose(self, menu: str, value: str) -> Opened:
        """Choose from a menu."""
        self.tab.locator(f"#{menu}").select_option(value)
        return self.drawn()

    def figures(self) -> dict[str, str]:
        """All figures that the page has, by name. One that stands in several places has one value."""
        pairs = self.tab.evaluate(
            "() => [...document.querySelectorAll('[data-figure]')].map(e => [e.dataset.figure, e.dataset.value])"
        )
        shown: dict[str, str] = {}
        for name, value in pairs:
            assert shown.setdefault(name, value) == value, f"{name} is {shown[name]} in one place, {value} in another"
        return shown

    def banner(self) -> str:
        """The text of the banner; "" when all is well."""
        return self.tab.locator("#banner").inner_text().strip()


@contextmanager
def opened(**options) -> Iterator[Opened]:
    """A new window of its own, with nothing of others in it; at its end nothing may have gone wrong."""
    context = launched().new_context(**options)
    try:
        page = Opened(context.new_page())
        yield page
        assert not page.wrong, page.wrong
    finally:
        context.close()
