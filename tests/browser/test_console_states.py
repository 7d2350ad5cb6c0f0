"""The console when things are large, missing, wrong or away: a real Chromium, with answers put in between."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.conftest import OpenTab
from tests.browser.console_node import PHONE, WIDE, ConsoleNode, keep_picture

from tailrace.http.config import HttpConfig

pytestmark = pytest.mark.slow

_ROWS_MAX = 90  # that exist at once, however many there are


def _answer(page: Page, pattern: str, body: Any, *, status: int = 200) -> None:
    """Answer requests for a path like this, in place of the node."""

    def fulfill(route: Route) -> None:
        route.fulfill(status=status, content_type="application/json", body=json.dumps(body))

    page.route(pattern, fulfill)


def _topic(name: str, *, partitions: int = 3) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": "00000000-0000-0000-0000-000000000001",
        "partitions": partitions,
        "replication_factor": 1,
        "configs": {},
        "warnings": [],
        "internal": False,
    }


def _partition(index: int) -> dict[str, Any]:
    return {
        "partition": index,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "start_offset": 0,
        "end_offset": index,
        "bytes": index * 100,
    }


def _error(code: str, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "details": {}}}


# ---- large


def test_a_thousand_topics_are_filtered_and_sorted_at_once(page: Page) -> None:
    topics = [
        _topic(f"team-{number % 10}.events.{number:04}", partitions=number + 1) for number in range(1000)
    ]
    _answer(page, "**/api/v1/topics", {"topics": topics})
    figures = [
        {
            "topic": each["name"],
            "records": number,
            "bytes": number,
            "records_in_per_s": number,
            "sparkline": [1, 2],
        }
        for number, each in enumerate(topics)
    ]
    _answer(page, "**/api/v1/metrics/topics", {"interval_ms": 5000, "end_ms": 0, "topics": figures})
    page.goto("/topics")
    rows = page.locator(".table-body .table-row")
    expect(page.get_by_text("1,000 topics")).to_be_visible()
    assert 10 < rows.count() < _ROWS_MAX
    page.get_by_role("button", name="Partitions").click()
    expect(rows.first).to_contain_text("team-9.events.0999")
    page.get_by_label("Filter topics").fill("team-7")
    expect(page.get_by_text("100 of 1,000 topics")).to_be_visible()
    expect(rows.first).to_contain_text("team-7.events.0997")
    page.reload()  # the filter and the order are in the address
    expect(rows.first).to_contain_text("team-7.events.0997")
    keep_picture(page, "topics-thousand")


def test_ten_thousand_partitions_scroll_to_the_last(page: Page) -> None:
    topic = _topic("wide", partitions=10_000)
    details = [_partition(index) for index in range(10_000)]
    _answer(page, "**/api/v1/topics/wide", {**topic, "partition_details": details})
    _answer(page, "**/api/v1/metrics/topics/wide", {"topic": "wide"})
    page.goto("/topics/wide/partitions")
    rows = page.locator(".table-body .table-row")
    expect(rows.first).to_contain_text("0")
    assert rows.count() < _ROWS_MAX
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.get_by_role("row", name="9999").first).to_be_visible()
    assert rows.count() < _ROWS_MAX


def test_a_huge_list_is_drawn_as_far_as_it_is_unfolded(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("huge")
    console.produce(topic, {"value": json.dumps({"numbers": list(range(50_000))})})
    page.goto(f"/topics/{topic}/messages?open=0:0")
    tree = page.get_by_role("dialog").locator(".json")
    expect(tree).to_contain_text("50000 items")
    assert tree.locator(".leaf").count() < 10
    tree.get_by_text("50000 items").click()
    expect(tree).to_contain_text("and 49,000 more")
    assert tree.locator(".leaf").count() < 1_100


def test_a_gap_in_the_log_is_passed_over_when_turning_back(console: ConsoleNode, page: Page) -> None:
    """What compaction leaves: five messages, thousands of offsets without any, and a page."""
    offsets = [*range(5), *range(7_000, 7_100)]
    details = [{**_partition(0), "end_offset": 7_100}]
    _answer(page, "**/api/v1/topics/gap", {**_topic("gap", partitions=1), "partition_details": details})
    _answer(page, "**/api/v1/metrics/topics/gap", {"topic": "gap"})
    page.route("**/api/v1/topics/gap/records?**", lambda route: _read_from(route, offsets, end=7_100))
    page.goto("/topics/gap/messages")
    lines = page.locator("button.message .value")
    expect(lines.first).to_have_text("v7099")
    page.get_by_role("button", name="Older").click()
    expect(lines).to_have_text(["v4", "v3", "v2", "v1", "v0"])
    expect(page.get_by_role("button", name="Older")).to_be_disabled()


def _read_from(route: Route, offsets: list[int], *, end: int) -> None:
    """A read of a partition that has messages at these offsets."""
    asked = {name: int(values[0]) for name, values in parse_qs(urlsplit(route.request.url).query).items()}
    known = [each for each in offsets if each >= asked["offset"]]
    found = offsets[asked["offset"] :] if asked["offset"] < 0 else known[: asked["limit"]]
    whole = {"topic": "gap", "partition": 0, "timestamp": 0, "key": None, "headers": []}
    place = found[-1] + 1 if found and found[-1] < offsets[-1] else end
    answer = {
        "records": [{**whole, "offset": each, "value": f"v{each}"} for each in found],
        "next_offset": place,
        "next_offsets": {"0": place},
        "high_watermark": end,
        "high_watermarks": {"0": end},
        "scanned": len(found),
    }
    route.fulfill(status=200, content_type="application/json", body=json.dumps(answer))


def test_a_long_name_of_a_header_leaves_room_for_the_values(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("headers")
    headers = [
        {"name": "long" * 60, "value": "v" * 600},
        {"name": "none", "value": None},
        {"name": "", "value": ""},
    ]
    console.produce(topic, {"value": "x", "headers": headers})
    page.goto(f"/topics/{topic}/messages?open=0:0")
    values = page.get_by_role("dialog").locator(".payload dd")
    expect(values).to_have_text(["v" * 600, "null", "empty"])
    box = values.first.bounding_box()
    assert box is not None
    assert box["width"] > 200


# ---- pipelines, which need Spark to be real


def _run(name: str, *, state: str, stale: bool = False, error: str | None = None) -> dict[str, Any]:
    progress = {"pipeline": "archive", "batch": 12, "rows": 48_000, "rows_per_s": 950.5, "lag": 1200}
    return {
        "id": f"{name}-0001",
        "pipeline": "archive",
        "name": name,
        "state": state,
        "host": "laptop",
        "pid": 7,
        "started_at": "2026-11-16T09:00:00Z",
        "at": "2026-11-16T09:05:00Z",
        "config": {},
        "progress": {**progress, "offsets": {}, "bytes": 1 << 20, "eta_s": 1.3, "note": "orders to the lake"},
        "error": error,
        "stale": stale,
    }


def test_runs_of_pipelines_are_shown_and_one_is_stopped(page: Page) -> None:
    lake = _run("lake", state="running")
    gone = {"topic": "orders", "partition": 3, "first_offset": 10, "last_offset": 17}
    hole = {"missing": [gone], "missing_offsets": {"orders": {"3": 8}}}
    runs = [
        {**lake, "progress": {**lake["progress"], **hole}},
        _run("gone", state="running", stale=True),
        _run("broken", state="failed", error="java.io.IOException: no space left"),
    ]
    _answer(page, "**/api/v1/pipelines", {"pipelines": runs})
    _answer(page, "**/api/v1/pipelines/lake-0001/stop", {"pipelines": runs[:1]})
    page.goto("/pipelines")
    expect(page.get_by_label("Run of lake")).to_contain_text("48,000")
    expect(page.get_by_label("Run of gone")).to_contain_text("lost")
    expect(page.get_by_label("Run of broken")).to_contain_text("no space left")
    expect(page.get_by_role("button", name="Stop")).to_have_count(1)
    card = page.get_by_role("article", name="Run of lake")
    expect(card).to_contain_text("8 offsets are missing from the lake")
    expect(card.get_by_role("listitem")).to_have_text("orders-3: 10 to 17")
    keep_picture(page, "pipelines-runs")
    page.get_by_role("button", name="Stop").click()
    with page.expect_request("**/pipelines/lake-0001/stop") as asked:
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    assert asked.value.method == "POST"
    expect(page.get_by_text("lake stops after the batch under way")).to_be_visible()


# ---- missing and wrong


def test_a_node_that_lacks_parts_of_the_api_is_still_shown(open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    _answer(page, "**/api/v1/**", _error("INVALID_REQUEST", "there is no such thing"), status=404)
    for path in ("/", "/topics", "/groups", "/subscriptions", "/pipelines", "/charts", "/cluster"):
        page.goto(path)
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator(".skeleton")).to_have_count(0)
        expect(page.get_by_text("This page has a fault")).to_have_count(0)
    expect(page.get_by_text("Not offered here").first).to_be_visible()


def test_a_failure_says_what_it_is_and_can_be_tried_again(open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    message = "the disk is full. Free some space, or lower retention"
    _answer(page, "**/api/v1/topics", _error("BROKER_NOT_AVAILABLE", message), status=503)
    page.goto("/topics")
    expect(page.get_by_role("alert")).to_contain_text("The disk is full. Free some space, or lower retention")
    keep_picture(page, "topics-failure")
    page.unroute("**/api/v1/topics")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_health_that_is_not_known_any_more_is_not_shown(open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    page.goto("/")
    health = page.locator(".health h1")
    expect(health).not_to_have_text("Looking…")
    page.route("**/api/v1/cluster/health", lambda route: route.abort())
    page.evaluate(_COME_BACK)
    expect(health).to_have_text("The broker does not answer")


def test_what_cannot_be_read_again_is_marked_as_old(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    console.create_topic("still.shown")
    page.goto("/topics")
    expect(page.get_by_role("row", name="still.shown")).to_be_visible()
    _answer(page, "**/api/v1/topics", _error("BROKER_NOT_AVAILABLE", "the disk is full"), status=503)
    page.evaluate(_COME_BACK)
    expect(page.get_by_role("alert")).to_contain_text("This is how it was. The disk is full")
    expect(page.get_by_role("row", name="still.shown")).to_be_visible()
    page.unroute("**/api/v1/topics")
    page.evaluate(_COME_BACK)
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("path", ["/", "/topics/aged", "/groups/aged", "/subscriptions/aged"])
def test_every_page_marks_what_is_old(console: ConsoleNode, open_tab: OpenTab, path: str) -> None:
    if console.client.get("/api/v1/topics/aged").status_code == 404:
        console.commit("aged", console.create_topic("aged"), offset=0)
        console.ask("POST", "/api/v1/subscriptions", {"name": "aged", "topic": "aged", "settings": {}})
    page = open_tab(expects_errors=True)
    page.goto(path)
    expect(page.locator(".skeleton")).to_have_count(0)
    expect(page.locator(".facts, .charts").first).to_be_visible()
    _answer(page, "**/api/v1/**", _error("BROKER_NOT_AVAILABLE", "the disk is full"), status=503)
    page.evaluate(_COME_BACK)
    expect(page.get_by_role("alert").first).to_contain_text("This is how it was. The disk is full")
    keep_picture(page, f"old-{path.strip('/').replace('/', '-') or 'overview'}")
    page.unroute("**/api/v1/**")
    page.evaluate(_COME_BACK)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_dead_letters_from_before_a_restart_are_shown(console: ConsoleNode, page: Page) -> None:
    """The counter of dead letters begins anew with every start of a node; the letters stay."""
    topic = console.create_topic("survivors")
    console.produce(topic, {"key": "a", "value": "poison"})
    settings = {"max_deliveries": "1"}
    console.ask("POST", "/api/v1/subscriptions", {"name": "again", "topic": topic, "settings": settings})
    pulled = console.ask("POST", "/api/v1/subscriptions/again/pull", {"max": 1, "wait_ms": 20_000})
    ids = [each["ack_id"] for each in pulled["messages"]]
    console.ask("POST", "/api/v1/subscriptions/again/nack", {"ack_ids": ids, "reason": "cannot be read"})

    def started_again(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "dead": 0})

    page.route("**/api/v1/subscriptions/again", started_again)
    page.route("**/api/v1/subscriptions/again/dead-letters?**", started_again)
    page.goto("/subscriptions/again")
    expect(page.get_by_role("table", name="Dead letters")).to_contain_text("cannot be read")
    expect(page.get_by_role("button", name="Redrive")).to_be_visible()


# ---- slow


_OWN_DEADLINES = """
  window.deadlines = [];
  AbortSignal.timeout = (wait_ms) => {
    const deadline = new AbortController();
    deadlines.push({ wait_ms, pass: () => deadline.abort(new DOMException("", "TimeoutError")) });
    return deadline.signal;
  };
"""
"""Deadlines pass when the test says so."""

_PASS = "deadlines.forEach((each) => each.pass())"


def _leave_open(route: Route) -> None:
    """A request that nobody answers."""


def test_a_change_that_is_not_answered_may_still_have_been_done(
    console: ConsoleNode, open_tab: OpenTab
) -> None:
    page = open_tab(expects_errors=True)
    page.add_init_script(_OWN_DEADLINES)
    page.goto("/topics?new=1")
    expect(page.locator(".skeleton")).to_have_count(0)
    page.route("**/api/v1/topics", _leave_open)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("slowly")
    with page.expect_request(lambda request: request.method == "POST"):
        dialog.get_by_role("button", name="Create topic").click()
    waits_ms = page.evaluate("deadlines.map((each) => each.wait_ms)")
    assert min(waits_ms) > HttpConfig().request_timeout_s * 1000  # the node's own word comes first
    page.evaluate(_PASS)
    expect(dialog.get_by_role("alert")).to_contain_text("It may still have been done")
    expect(page.locator(".banner")).to_have_count(0)  # somebody is there, and took long


def test_a_page_that_is_not_answered_in_time_says_so(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    page.add_init_script(_OWN_DEADLINES)
    page.route("**/api/v1/cluster", _leave_open)
    with page.expect_request("**/api/v1/cluster"):
        page.goto("/cluster")
    page.evaluate(_PASS)
    alert = page.get_by_role("alert").first
    expect(alert).to_contain_text("did not answer within 65 s. Try again later.")
    expect(page.locator(".banner")).to_have_count(0)


_COME_BACK = "document.dispatchEvent(new Event('visibilitychange'))"
"""As if the tab was away and is looked at again: everything is read at once."""


def test_a_console_of_before_an_upgrade_offers_the_new_one(console: ConsoleNode, page: Page) -> None:
    page.goto("/topics")
    _settled(page)
    old = page.request.get("/").text()
    new = re.sub(r"/assets/\w+/", "/assets/0000000000000000/", old)
    page.route(f"{console.address}/", lambda route: route.fulfill(content_type="text/html", body=new))
    with page.expect_response(f"{console.address}/"):
        page.evaluate(_COME_BACK)
    expect(page.locator(".banner")).to_contain_text("another console")
    page.unroute(f"{console.address}/")
    page.get_by_role("button", name="Load it").click()
    expect(page.locator(".banner")).to_have_count(0)
    _settled(page)
    with page.expect_response(f"{console.address}/"):
        page.evaluate(_COME_BACK)
    expect(page.locator(".banner")).to_have_count(0)


def _settled(page: Page) -> None:
    """The page has loaded what it shows, and so listens to what happens."""
    expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)


_NOWHERE = {
    "/topics/nothing": "Not found",
    "/groups/nothing": "Not found",
    "/subscriptions/nothing": "Not found",
    "/topics/here/messages?open=0:99": "This did not work",
    "/topics/here/messages?partition=0&offset=99": "This did not work",
    "/topics/here/messages?before=x:y,z": "No messages yet",
    "/topics/here/messages?open=nonsense&partition=&live=2": "No messages yet",
    "/groups/%E0%A4%A": "Not found",
}


def test_an_address_that_leads_nowhere_says_so(console: ConsoleNode, open_tab: OpenTab) -> None:
    console.create_topic("here")
    page = open_tab(expects_errors=True)
    for path, words in _NOWHERE.items():
        page.goto(path)
        expect(page.get_by_text(words).first).to_be_visible()


def test_text_of_others_is_never_markup(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("markup")
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    console.produce(topic, {"key": evil, "value": '{"x": "</pre><img src=x>"}', "headers": {evil: evil}})
    console.commit("<b>group<b>", topic, offset=0)
    for path in (f"/topics/{topic}/messages?open=0:0", f"/topics/{topic}/consumers", "/groups"):
        page.goto(path)
        expect(page.locator("main h1").first).to_be_visible()
        expect(page.locator("img, main b, main script")).to_have_count(0)
        assert page.title() != "owned"


# ---- nothing yet, and away


def test_an_empty_node_says_how_to_begin(open_tab: OpenTab) -> None:
    for shape, viewport in (("wide", WIDE), ("phone", PHONE)):
        page = open_tab(viewport=viewport)
        cluster = {
            "cluster_id": "c",
            "controller_id": 1,
            "version": "0",
            "nodes": [{"node_id": 1, "kafka": "127.0.0.1:9092", "uptime_s": 3, "is_this": True}],
            "topics": 0,
            "partitions": 0,
            "groups": 0,
            "subscriptions": 0,
        }
        _answer(page, "**/api/v1/cluster", cluster)
        page.goto("/")
        expect(page.get_by_text("tailrace produce hello 'first message' -b 127.0.0.1:9092")).to_be_visible()
        keep_picture(page, f"overview-empty-{shape}")


def test_a_broker_that_went_away_is_found_again(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    console.create_topic("first")
    page.goto("/topics")
    expect(page.get_by_role("row", name="first")).to_be_visible()
    page.context.set_offline(True)
    page.get_by_label("Internal topics").check()  # asks, and gets no answer
    expect(page.locator(".banner")).to_contain_text("does not answer")
    keep_picture(page, "offline")
    console.create_topic("meanwhile")
    page.context.set_offline(False)
    expect(page.locator(".banner")).to_have_count(0)
    expect(page.get_by_role("row", name="meanwhile")).to_be_visible()
