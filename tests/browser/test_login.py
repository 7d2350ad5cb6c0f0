"""The console's login in a real browser: a person logs in, changes something, and logs out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from tests.unit.http.test_audit import WORD
from tests.unit.http.test_console_login import started


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A node that asks for logins, in a thread of its own."""
    loop, ready, done = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[str] = []

    async def serve() -> None:
        async with started() as node:
            found.append(node.origin)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(60)
    loop.close()


def test_a_person_logs_in_changes_something_and_logs_out(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/topics")
    page.get_by_label("User").fill("alice")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("The user name or the password is wrong")
    page.get_by_label("Password").fill(WORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    assert page.url == f"{address}/topics"
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="New topic").first.click()
    page.get_by_label("Name").fill("made-by-hand")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="made-by-hand")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in to Tailrace")).to_be_visible()
    assert context.request.get(f"{address}/api/v1/topics").status == 401
    context.close()
