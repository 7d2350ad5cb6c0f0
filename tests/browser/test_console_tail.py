"""A live tail in the console: it is bounded, counts what it cannot show, and says why it stops."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenTab
from tests.browser.console_node import ConsoleNode

pytestmark = pytest.mark.slow

_WATCH_SOCKETS = """
  window.sockets = [];
  window.WebSocket = class extends WebSocket {
    constructor(...address) {
      super(...address);
      sockets.push(this);
    }
  };
"""
"""The sockets of the page are at hand, so that many messages come at one moment."""

_WATCH = """
  text => {
    const look = () => (window.wasSeen ||= document.body.innerText.includes(text));
    const everything = { childList: true, characterData: true, subtree: true };
    new MutationObserver(look).observe(document.body, everything);
  }
"""
"""Whether the page has shown a text, however short a time."""

_RECEIVE = "messages => messages.forEach((data) => sockets.at(-1).onmessage({ data }))"


def _messages(*offsets: int) -> list[str]:
    record = {"topic": "t", "partition": 0, "timestamp": 0, "key": None, "headers": []}
    return [json.dumps({"record": {**record, "offset": each, "value": f"v{each}"}}) for each in offsets]


# ---- large


def test_a_tail_holds_a_bounded_number_of_messages(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("flood")
    page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    for batch in range(4):
        console.produce(topic, *({"value": f"v{batch * 300 + number}"} for number in range(300)))
    expect(page.locator("button.message .value").first).to_have_text("v1199")
    assert page.locator("button.message").count() == 500


def test_messages_that_come_too_fast_to_be_shown_are_counted(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("burst")
    page.add_init_script(_WATCH_SOCKETS)
    page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    page.evaluate(_RECEIVE, _messages(*range(1_200)))
    expect(page.locator("button.message .value").first).to_have_text("v1199")
    expect(page.get_by_text("1,200 messages seen; the last 500 are shown")).to_be_visible()


def test_only_what_just_came_is_highlighted(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("calm")
    page.add_init_script(_WATCH_SOCKETS)
    page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    page.evaluate(_RECEIVE, _messages(*range(50)))
    expect(page.locator("button.message")).to_have_count(50)
    page.evaluate(_RECEIVE, _messages(50))
    expect(page.locator("button.message")).to_have_count(51)
    expect(page.locator("button.message.is-new .value")).to_have_text(["v50"])


# ---- broken and refused


def test_a_tail_that_broke_goes_on_by_itself(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("broken-tail")
    sockets: list[Any] = []

    def between(socket: Any) -> None:
        socket.connect_to_server()
        sockets.append(socket)

    page.route_web_socket("**/tail**", between)
    page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    page.evaluate(_WATCH, "Connecting again")
    sockets[0].close(code=1011, reason="gone")
    page.wait_for_function("window.wasSeen")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    console.produce(topic, {"value": "after the break"})
    expect(page.locator("button.message .value").first).to_have_text("after the break")


def test_a_tail_of_a_topic_that_is_deleted_says_so(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    topic = console.create_topic("ending")
    page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    console.ask("DELETE", f"/api/v1/topics/{topic}")
    expect(page.get_by_text("Not found").or_(page.get_by_text("Ended:")).first).to_be_visible()


def test_a_tail_goes_on_when_its_node_was_started_again(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("restarted")
    sockets: list[Any] = []

    def between(socket: Any) -> None:
        if sockets:
            socket.connect_to_server()
        sockets.append(socket)

    page.route_web_socket("**/tail**", between)
    page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    sockets[0].send(json.dumps({"end": "the node stops"}))
    sockets[0].close(code=1001, reason="the node stops")
    expect(page.get_by_text("what came meanwhile is missing")).to_be_visible()
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    console.produce(topic, {"value": "after the restart"})
    expect(page.locator("button.message .value").first).to_have_text("after the restart")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_text("what came meanwhile is missing")).to_have_count(0)


def test_a_tail_that_is_refused_says_why(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    topic = console.create_topic("refused")
    page.goto(f"/topics/{topic}/messages?live=1&partition=7")
    expect(page.get_by_text("there is no 7").first).to_be_visible()
