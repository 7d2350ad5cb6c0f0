"""The figures of the console and their words, in a real Chromium on a real node."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from tests.browser.console_node import ConsoleNode


def test_the_consumers_of_a_topic_show_the_lag_in_that_topic(console: ConsoleNode, page: Page) -> None:
    one, other = console.create_topic("lag.one"), console.create_topic("lag.other")
    console.produce(one, *[{"value": "v"}] * 3)
    console.produce(other, *[{"value": "v"}] * 40)
    console.commit("lag.group", one, offset=1)
    console.commit("lag.group", other, offset=0)

    page.goto(f"/topics/{one}/consumers")
    row = page.get_by_role("table", name="Consumer groups").get_by_role("row").filter(has_text="lag.group")

    expect(row.get_by_role("cell").last).to_have_text("2")
