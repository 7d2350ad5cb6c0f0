"""A real Chromium on the console of a real node, and what every test holds it to.

`console` is the node. `page` is a tab; when the test is over it must have logged no error, thrown nothing,
and asked no other host for anything. `open_tab` makes more of them. Screenshots are kept in artefacts/.

The browser lives as long as a module: Playwright keeps an event loop in this thread, and tests of other
modules run theirs here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)
from tests.browser.console_node import DEADLINE_S, WIDE, ConsoleNode

_CHROMIUM = Path("/usr/bin/chromium")
_TIMEOUT_MS = DEADLINE_S * 1000  # of every wait: a machine may be busy, and what is right comes at once


class OpenTab(Protocol):
    """Opens a tab: open_tab(viewport=PHONE, color_scheme="dark")."""

    def __call__(self, *, expects_errors: bool = False, **options: Any) -> Page: ...


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleNode]:
    with ConsoleNode() as node:
        yield node


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not _CHROMIUM.exists():
        pytest.skip("there is no Chromium. Install it: apt-get install chromium")
    expect.set_options(timeout=_TIMEOUT_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(_CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_tab(browser: Browser, console: ConsoleNode) -> Iterator[OpenTab]:
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def open_one(*, expects_errors: bool = False, **options: Any) -> Page:
        context = browser.new_context(base_url=console.address, **{"viewport": WIDE, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        _watch(page, console.address, faults, expects_errors=expects_errors)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def page(open_tab: OpenTab) -> Page:
    return open_tab()


def _watch(page: Page, address: str, faults: list[str], *, expects_errors: bool) -> None:
    own = (address, address.replace("http", "ws", 1), "data:", "blob:")

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not expects_errors:
            faults.append(f"console: {message.text} {message.location.get('url', '')}")

    def on_request(request: Request) -> None:
        if not request.url.startswith(own):
            faults.append(f"another host: {request.url}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: faults.append(f"thrown: {error}"))
    page.on("request", on_request)
