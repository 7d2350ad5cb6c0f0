"""The figures of the console and their words, in a real Chromium on a real node."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.console_node import ConsoleNode

_KEEP_PLOTS = """() => {
  window.plots = [];
  let Real;
  Object.defineProperty(window, "uPlot", {
    get: () => Real && new Proxy(Real, {
      construct: (kind, values) => {
        const plot = new kind(...values);
        window.plots.push(plot);
        return plot;
      },
    }),
    set: (value) => { Real = value; },
  });
}"""
"""Keeps every chart that the page makes, because what is drawn on a canvas is nowhere else to be read."""

_AXES = """() => window.plots.filter((plot) => plot.root.isConnected).map((plot) => ({
  lines: plot.axes.map((axis) => axis._splits.filter((at) => at !== null).length),
  labels: plot.axes[0]._values.filter((text) => text),
  step: plot.valToPos(plot.axes[0]._splits[1], "x") - plot.valToPos(plot.axes[0]._splits[0], "x"),
}))"""
"""Of every chart that is shown: the grid lines of both axes, the labels of the time axis, and their step."""

_LETTER = 6.2  # the width of a letter of a label, in pixels


def test_the_consumers_of_a_topic_show_the_lag_in_that_topic(console: ConsoleNode, page: Page) -> None:
    one, other = console.create_topic("lag.one"), console.create_topic("lag.other")
    console.produce(one, *[{"value": "v"}] * 3)
    console.produce(other, *[{"value": "v"}] * 40)
    console.commit("lag.group", one, offset=1)
    console.commit("lag.group", other, offset=0)

    page.goto(f"/topics/{one}/consumers")
    row = page.get_by_role("table", name="Consumer groups").get_by_role("row").filter(has_text="lag.group")

    expect(row.get_by_role("cell").last).to_have_text("2")


def past_of(route: Route, samples: int) -> None:
    """The real answer of the node, as if it had been measuring for so long already."""
    answer = route.fetch()
    body: dict[str, Any] = answer.json()
    for broker in body["brokers"]:
        history = broker["history"]
        history["end_ms"] = broker["at_ms"]
        for place, name in enumerate(history["series"]):
            history["series"][name] = [
                (place + 1.7) * 1e3 * (1.3 + math.sin(at / 9 + place)) for at in range(samples)
            ]
    route.fulfill(response=answer, body=json.dumps(body))


@pytest.mark.parametrize("minutes", [2, 5, 7, 10])
@pytest.mark.parametrize(("path", "width"), [("/", 1440), ("/", 1024), ("/charts", 1280)])
def test_charts_of_some_minutes_have_several_labels_and_grid_lines(
    console: ConsoleNode, page: Page, minutes: int, path: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.add_init_script(f"({_KEEP_PLOTS})()")
    page.route("**/api/v1/metrics/brokers", lambda route: past_of(route, minutes * 12))
    page.goto(path)
    expect(page.locator(".chart-plot canvas").first).to_be_visible()

    charts = page.evaluate(_AXES)

    assert len(charts) >= 6
    for chart in charts:
        assert len(chart["labels"]) >= 3, chart
        assert chart["step"] > _LETTER * max(map(len, chart["labels"])), chart  # they do not touch
        assert all(count >= 3 for count in chart["lines"]), chart


def test_the_console_has_kafkas_words(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("words")
    console.produce(topic, {"value": "v"})
    configs = {"max_deliveries": "2"}
    console.ask("POST", "/api/v1/subscriptions", {"name": "words", "topic": topic, "configs": configs})

    page.goto("/cluster")
    expect(page.get_by_text("Under-replicated", exact=True)).to_be_visible()
    expect(page.get_by_text("Leaderless", exact=True)).to_be_visible()

    page.goto("/topics?new=1")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Partitions")).to_have_attribute("placeholder", "4 (broker default)")
    expect(dialog.get_by_label("Replication factor")).to_have_attribute("placeholder", "1 (broker default)")
    expect(dialog.get_by_label("Retention time")).to_contain_text("31 d (broker default)")
    expect(dialog.get_by_label("Cleanup policy")).to_contain_text("delete (broker default)")

    page.goto(f"/topics/{topic}/partitions")
    head = page.get_by_role("table", name="Partitions").get_by_role("row").first
    expect(head).to_contain_text("Start offset")
    expect(head).to_contain_text("End offset")

    page.goto("/subscriptions/words")
    expect(page.get_by_text("Redelivered", exact=True)).to_be_visible()
    page.get_by_role("button", name="Replay").click()
    expect(dialog.get_by_label("Start at")).to_contain_text("earliest")
