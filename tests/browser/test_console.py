"""The console's journeys, as a person goes through them: a real Chromium, a real node, no part replaced."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import OpenTab
from tests.browser.console_node import PHONE, WIDE, ConsoleNode, keep_picture

pytestmark = pytest.mark.slow

_EVERY_PAGE = (
    "/",
    "/topics",
    "/topics?new=1",
    "/topics/{topic}",
    "/topics/{topic}?produce=1",
    "/topics/{topic}/partitions",
    "/topics/{topic}/config",
    "/topics/{topic}/consumers",
    "/topics/{topic}/messages?open=0:0",
    "/topics/{topic}/messages?live=1",
    "/groups",
    "/groups/{group}",
    "/groups/{group}?reset=1",
    "/subscriptions",
    "/subscriptions/{subscription}",
    "/transactions",
    "/transactions?show=all",
    "/pipelines",
    "/charts",
    "/cluster",
)


@pytest.fixture(scope="module")
def names(console: ConsoleNode) -> dict[str, str]:
    """Something of everything, to look at."""
    topic = console.create_topic("look.at.this", partitions=3)
    values = [f'{{"order": {number}, "total": "{number}.50"}}' for number in range(12)]
    console.produce(
        topic, *({"key": f"k{number % 4}", "value": value} for number, value in enumerate(values))
    )
    console.commit("readers", topic, offset=1)
    console.open_transaction("look-at-this", topic)
    console.ask("POST", "/api/v1/subscriptions", {"name": "jobs", "topic": topic, "settings": {}})
    return {"topic": topic, "group": "readers", "subscription": "jobs"}


def _settled(page: Page) -> None:
    """Whatever a page loads is there."""
    expect(page.locator("main h1").first).to_be_visible()
    expect(page.locator(".skeleton")).to_have_count(0)


# ---- messages


def test_a_message_of_the_form_appears_in_a_tail_in_another_tab(
    console: ConsoleNode, open_tab: OpenTab
) -> None:
    topic = console.create_topic("form")
    tail, form = open_tab(), open_tab()
    tail.goto(f"/topics/{topic}/messages?live=1")
    expect(tail.get_by_text("Live", exact=True).first).to_be_visible()
    expect(tail.locator(".pulse:not(.off)")).to_be_visible()

    form.goto(f"/topics/{topic}")
    form.get_by_role("button", name="Produce", exact=True).click()
    form.get_by_label("Key", exact=True).fill("customer-7")
    form.get_by_role("button", name="JSON").click()
    form.get_by_label("Value", exact=True).fill('{"id": 9223372036854775807}')
    form.get_by_role("button", name="Header").click()
    form.get_by_label("Name of header 1").fill("trace")
    form.get_by_label("Value of header 1").fill("abc")
    form.get_by_role("button", name="Send").click()

    expect(form.get_by_text("Stored in partition 0 at offset 0.")).to_be_visible()
    expect(tail.locator(".message .value", has_text="9223372036854775807")).to_be_visible()
    (record,) = console.read(topic)
    assert record["key"] == "customer-7"
    assert record["value"] == '{"id": 9223372036854775807}'  # to the last digit
    assert record["headers"] == [{"name": "trace", "value": "abc"}]
    form.get_by_role("link", name="Show it").click()
    expect(form.get_by_role("dialog", name="Message 0")).to_contain_text("9223372036854775807")


def test_a_value_that_is_not_json_is_not_sent_as_such(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("not-json")
    page.goto(f"/topics/{topic}/messages?produce=1")
    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Value", exact=True).fill("{oops")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    assert console.read(topic) == []


def test_a_tail_that_is_paused_counts_what_passes(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("paused")
    with page.expect_websocket() as opened:
        page.goto(f"/topics/{topic}/messages?live=1")
    expect(page.locator(".pulse:not(.off)")).to_be_visible()
    console.produce(topic, {"value": "before"})
    expect(page.locator(".message .value", has_text="before")).to_be_visible()
    with opened.value.expect_event("framesent"):  # the broker hears of it before of what is written next
        page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused", exact=True)).to_be_visible()
    console.produce(topic, *({"value": f"unseen {number}"} for number in range(7)))
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("7 skipped")).to_be_visible()
    console.produce(topic, {"value": "after"})
    expect(page.locator(".message .value", has_text="after")).to_be_visible()
    expect(page.get_by_text("unseen")).to_have_count(0)


def test_turning_pages_shows_every_message_once(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("pages", partitions=3)
    total = 250
    console.produce(topic, *({"key": f"k{number}", "value": f"v{number}"} for number in range(total)))
    page.goto(f"/topics/{topic}/messages")
    seen: list[str] = []
    for _ in range(3):
        expect(page.locator("button.message")).not_to_have_count(0)
        seen += page.locator("button.message .value").all_inner_texts()
        older = page.get_by_role("button", name="Older")
        if older.is_disabled():
            break
        first = page.locator("button.message .value").first.inner_text()
        older.click()
        expect(page.locator("button.message .value").first).not_to_have_text(first)
    assert len(seen) == total
    assert set(seen) == {f"v{number}" for number in range(total)}
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    oldest_page = page.locator("button.message .value").all_inner_texts()
    page.get_by_role("button", name="Newer").click()
    expect(page.locator("button.message .value").last).not_to_have_text(oldest_page[-1])
    assert not set(oldest_page) & set(page.locator("button.message .value").all_inner_texts())


def test_large_messages_are_all_shown_the_newest_first(console: ConsoleNode, page: Page) -> None:
    """A node answers with so many bytes at once: fewer messages than a page has."""
    topic = console.create_topic("large")
    total, filling = 110, "x" * 100_000
    for first in range(0, total, 10):
        console.produce(topic, *({"value": f"v{number} {filling}"} for number in range(first, first + 10)))
    page.goto(f"/topics/{topic}/messages")
    older = page.get_by_role("button", name="Older")
    lines = page.locator("button.message .value")
    expected = total - 1
    while True:
        expect(lines.first).to_have_text(re.compile(f"^v{expected} "))
        shown = [int(text.partition(" ")[0][1:]) for text in lines.all_inner_texts()]
        assert shown == list(range(expected, expected - len(shown), -1))
        expected -= len(shown)
        if older.is_disabled():
            break
        older.click()
    assert expected == -1


def test_a_message_is_sent_again_as_it_is(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("again")
    headers = [{"name": "", "value": ""}, {"name": "raw", "value": "/wA=", "encoding": "base64"}]
    console.produce(topic, {"key": "", "value": "/wAB", "encoding": "base64", "headers": headers})
    page.goto(f"/topics/{topic}/messages?open=0:0")
    page.get_by_role("button", name="Send again").click()
    dialog = page.get_by_role("dialog", name="Produce to")
    expect(dialog.get_by_label("Value", exact=True)).to_have_value("/wAB")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_text("Stored in partition 0 at offset 1.")).to_be_visible()
    first, second = console.read(topic)
    for name in ("key", "value", "value_encoding", "headers"):
        assert second[name] == first[name]
    dialog.get_by_role("button", name="Close").last.click()
    page.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog.get_by_label("Value", exact=True)).to_have_value("")  # and not what was sent again


def test_letters_that_are_typed_while_a_search_begins_stay(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("typing")
    page.goto(f"/topics/{topic}")
    field = page.get_by_label("Search key and value")
    field.evaluate(_TYPE_MORE_AT_ONCE, "abc")
    field.fill("ab")
    expect(page).to_have_url(re.compile("contains=abc$"))
    expect(field).to_have_value("abc")


_TYPE_MORE_AT_ONCE = """(field, text) => {
  const push = history.pushState.bind(history);
  history.pushState = (...address) => {
    push(...address);
    history.pushState = push;
    field.value = text;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  };
}"""
"""Another letter comes when the first ones were just taken."""


def test_a_search_finds_by_text_and_by_key(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("search", partitions=2)
    console.produce(topic, *({"key": f"k{number % 5}", "value": f"value-{number}"} for number in range(60)))
    page.goto(f"/topics/{topic}")
    page.get_by_label("Search key and value").fill("value-41")
    expect(page.locator("button.message")).to_have_count(1)
    expect(page.get_by_text("among 60 that were searched")).to_be_visible()
    assert "contains=value-41" in page.url
    page.get_by_label("Search key and value").fill("")
    page.get_by_label("Exact key").fill("k3")
    expect(page.locator("button.message")).to_have_count(12)


def test_a_search_shows_the_newest_of_many_and_goes_on_with_what_comes(
    console: ConsoleNode, page: Page
) -> None:
    topic = console.create_topic("many")
    words = ("even", "odd")
    console.produce(topic, *({"value": f"{words[number % 2]} {number}"} for number in range(600)))
    page.goto(f"/topics/{topic}?contains=even")
    lines = page.locator("button.message .value")
    expect(lines).to_have_text([f"even {number}" for number in range(598, 398, -2)])
    expect(page.get_by_text("The newest 100 of 300 messages, among 600 that were searched.")).to_be_visible()
    search_on = page.get_by_role("button", name="Search on")
    expect(search_on).to_be_disabled()
    console.produce(topic, {"value": "even more"}, {"value": "odd one"})
    search_on.click()
    expect(lines).to_have_text(["even more"])
    page.goto(f"/topics/{topic}?contains=even&from=oldest")
    expect(lines).to_have_text([f"even {number}" for number in range(0, 200, 2)])
    search_on.click()
    expect(lines).to_have_text([f"even {number}" for number in range(200, 400, 2)])


def test_a_search_shows_the_newest_of_large_messages(console: ConsoleNode, page: Page) -> None:
    """Those of a page are more than a node answers with at once."""
    topic = console.create_topic("large-found", partitions=2)
    filling = "x" * 100_000
    for first in range(0, 110, 10):
        records = ({"value": f"v{first + number} {filling}", "partition": number % 2} for number in range(10))
        console.produce(topic, *records)
    page.goto(f"/topics/{topic}?contains=v")
    lines = page.locator("button.message .value")
    expect(lines).to_have_count(100)
    shown = {int(text.partition(" ")[0][1:]) for text in lines.all_inner_texts()}
    assert shown == set(range(10, 110))


def test_seeking_by_offset_time_and_end(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("seek")
    console.produce(
        topic,
        *({"value": f"v{number}", "timestamp": 1_700_000_000_000 + number * 1000} for number in range(20)),
    )
    page.goto(f"/topics/{topic}")
    first = page.locator("button.message .value").first
    expect(first).to_have_text("v19")
    page.get_by_role("button", name="Oldest", exact=True).click()
    expect(first).to_have_text("v0")
    page.get_by_role("button", name="Offset", exact=True).click()
    page.get_by_label("Offset", exact=True).last.fill("7")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(first).to_have_text("v7")
    page.goto(f"/topics/{topic}/messages?ts=1700000012000")
    expect(first).to_have_text("v12")


def test_a_message_is_decoded_and_copied(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(permissions=["clipboard-read", "clipboard-write"])
    topic = console.create_topic("decoded")
    console.produce(
        topic, {"value": "/wAB", "encoding": "base64"}, {"key": "k", "value": '{"deep": {"list": [1, 2]}}'}
    )
    page.goto(f"/topics/{topic}/messages?open=0:0")
    drawer = page.get_by_role("dialog")
    expect(drawer.locator("pre.hex")).to_contain_text("ff 00 01")
    page.goto(f"/topics/{topic}/messages?open=0:1")
    expect(drawer.locator(".json")).to_contain_text("deep")
    for button, part in (
        ("CLI", f"tailrace tail {topic} -p 0 --offset 1 -n 1"),
        ("curl", f"/api/v1/topics/{topic}/records?partition=0&offset=1&limit=1"),
        ("Python", "confluent_kafka"),
    ):
        drawer.get_by_role("button", name=button).click()
        page.wait_for_function(
            "part => navigator.clipboard.readText().then(text => text.includes(part))", arg=part
        )
    program = page.evaluate("navigator.clipboard.readText()")
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("1 b'k' b'{")
    groups = console.ask("GET", "/api/v1/consumer-groups")["groups"]
    assert "look" not in [each["group"] for each in groups]  # who looks leaves nothing behind


def test_a_link_to_a_message_survives_a_reload_and_back_closes_it(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("linked")
    console.produce(topic, *({"value": f"v{number}"} for number in range(9)))
    page.goto(f"/topics/{topic}/messages?partition=0&offset=5")
    expect(page.locator("button.message .value").first).to_have_text("v5")
    page.locator("button.message").nth(1).click()
    expect(page.get_by_role("dialog", name="Message 6")).to_be_visible()
    page.reload()
    expect(page.get_by_role("dialog", name="Message 6")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("button.message .value").first).to_have_text("v5")


# ---- topics


def test_a_topic_is_made_and_deleted_by_typing_its_name(console: ConsoleNode, page: Page) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="New topic").first.click()
    page.get_by_label("Name").fill("made.here")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Retention time").select_option(label="1 day")
    page.get_by_role("button", name="Create topic").click()
    expect(page).to_have_url(re.compile("/topics/made.here$"))
    made = console.ask("GET", "/api/v1/topics/made.here")
    assert made["partitions"] == 3
    assert made["configs"] == {"retention.ms": "86400000"}

    page.get_by_role("button", name="Delete topic").click()
    dialog = page.get_by_role("dialog")
    confirm = dialog.get_by_role("button", name="Delete topic")
    dialog.get_by_role("textbox").fill("made.her")
    expect(confirm).to_be_disabled()
    dialog.get_by_role("textbox").fill("made.here")
    confirm.click()
    expect(page).to_have_url(re.compile("/topics$"))
    assert console.client.get("/api/v1/topics/made.here").status_code == 404


def test_a_topic_that_cannot_be_made_says_why(console: ConsoleNode, open_tab: OpenTab) -> None:
    page = open_tab(expects_errors=True)
    page.goto("/topics?new=1")
    page.get_by_label("Name").fill("not/a/name")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("alert")).to_contain_text("not/a/name")


def test_a_setting_is_changed_in_place_and_given_back_its_default(
    console: ConsoleNode, open_tab: OpenTab
) -> None:
    page = open_tab(expects_errors=True)
    topic = console.create_topic("settings")
    page.goto(f"/topics/{topic}/config")
    page.get_by_label("Filter settings").fill("retention.ms")
    setting = page.locator('[data-setting="retention.ms"]')
    setting.get_by_role("button", name="Change").click()
    setting.get_by_role("textbox").fill("never")
    setting.get_by_role("button", name="Save").click()
    expect(setting.get_by_role("alert")).to_contain_text("never")
    setting.get_by_role("textbox").fill("3600000")
    setting.get_by_role("textbox").press("Enter")
    expect(setting).to_contain_text("1 h")
    assert console.ask("GET", f"/api/v1/topics/{topic}")["configs"] == {"retention.ms": "3600000"}
    setting.get_by_role("button", name="Reset").click()
    expect(setting).to_contain_text("default")
    expect(setting.get_by_role("button", name="Reset")).to_have_count(0)
    assert console.ask("GET", f"/api/v1/topics/{topic}")["configs"] == {}


def test_partitions_are_added(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("growing")
    page.goto(f"/topics/{topic}/partitions")
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_label("Total partitions").fill("4")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("table", name="Partitions").get_by_role("row")).to_have_count(5)


# ---- consumers


def test_a_group_is_reset_after_a_preview(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("reset")
    console.produce(topic, *({"value": str(number)} for number in range(10)))
    console.commit("late", topic, offset=8)
    page.goto("/groups")
    page.get_by_role("row", name=re.compile("late")).click()
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Start at").select_option(label="records back or ahead")
    dialog.get_by_role("spinbutton").fill("-3")
    dialog.get_by_role("button", name="Preview").click()
    row = dialog.get_by_role("table").get_by_role("row").nth(1)
    expect(row.get_by_role("cell")).to_have_text([topic, "0", "8", "5", "-3", "5"])
    keep_picture(page, "reset-preview")
    assert console.committed("late") == [8]
    confirm = dialog.get_by_role("button", name="Reset offsets")
    expect(confirm).to_be_disabled()
    dialog.get_by_role("textbox").fill("late")
    confirm.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert console.committed("late") == [5]


def test_a_group_that_moved_after_the_preview_is_shown_anew(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("stale")
    console.produce(topic, *({"value": str(number)} for number in range(10)))
    console.commit("restless", topic, offset=8)
    page.goto("/groups/restless?reset=1")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Start at").select_option(label="records back or ahead")
    dialog.get_by_role("spinbutton").fill("-3")
    dialog.get_by_role("button", name="Preview").click()
    cells = dialog.get_by_role("table").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_have_text([topic, "0", "8", "5", "-3", "5"])
    console.commit("restless", topic, offset=4)
    confirm = dialog.get_by_role("button", name="Reset offsets")
    dialog.get_by_role("textbox").fill("restless")
    confirm.click()
    expect(dialog.get_by_role("alert")).to_contain_text("since you looked")
    expect(cells).to_have_text([topic, "0", "4", "1", "-3", "9"])
    expect(confirm).to_be_disabled()
    assert console.committed("restless") == [4]
    dialog.get_by_role("textbox").fill("restless")
    confirm.click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert console.committed("restless") == [1]


def test_dead_letters_are_shown_and_driven_again(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("work")
    console.produce(topic, {"key": "a", "value": "poison"}, {"key": "b", "value": "fine"})
    settings = {"max_deliveries": "1"}
    console.ask("POST", "/api/v1/subscriptions", {"name": "workers", "topic": topic, "settings": settings})
    pulled = console.ask("POST", "/api/v1/subscriptions/workers/pull", {"max": 1, "wait_ms": 20_000})
    ids = [each["ack_id"] for each in pulled["messages"]]
    console.ask("POST", "/api/v1/subscriptions/workers/nack", {"ack_ids": ids, "reason": "cannot be read"})
    page.goto("/subscriptions/workers")
    expect(page.get_by_role("table", name="Dead letters")).to_contain_text("cannot be read")
    page.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 message will be delivered again")).to_be_visible()
    expect(page.get_by_text("None left: all were redriven.")).to_be_visible()


def test_a_subscription_is_made_replayed_and_deleted(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("letters")
    console.produce(topic, *({"value": str(number)} for number in range(5)))
    page.goto("/subscriptions?new=1")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("mailing")
    dialog.get_by_label("Topic").fill(topic)
    dialog.get_by_label("Start at").select_option(label="latest: from now on")
    dialog.get_by_role("button", name="Create").click()
    expect(page).to_have_url(re.compile("/subscriptions/mailing$"))
    lag = page.locator(".facts div", has=page.get_by_text("Lag", exact=True)).locator("dd")
    expect(lag).to_have_text("0")
    page.get_by_role("button", name="Replay").click()
    dialog.get_by_role("button", name="Preview").click()
    cells = dialog.get_by_role("table").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_have_text([topic, "0", "5", "0", "5", "0"])
    keep_picture(page, "replay-preview")
    confirm = dialog.get_by_role("button", name="Replay")
    expect(confirm).to_be_disabled()
    expect(lag).to_have_text("0")
    dialog.get_by_role("textbox").fill("mailing")
    confirm.click()
    expect(lag).to_have_text("5")
    page.get_by_role("button", name="Delete subscription").click()
    page.get_by_role("dialog").get_by_role("textbox").fill("mailing")
    page.get_by_role("dialog").get_by_role("button", name="Delete subscription").click()
    expect(page).to_have_url(re.compile("/subscriptions$"))


def test_a_subscription_is_replayed_from_a_time(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("timed")
    hour_ms, noon_ms = 3_600_000, 1_700_000_000_000
    console.produce(
        topic, *({"value": f"v{number}", "timestamp": noon_ms + number * hour_ms} for number in range(5))
    )
    console.ask("POST", "/api/v1/subscriptions", {"name": "timely", "topic": topic, "settings": {}})
    page.goto("/subscriptions/timely")
    lag = page.locator(".facts div", has=page.get_by_text("Lag", exact=True)).locator("dd")
    expect(lag).to_have_text("5")
    page.get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Start at").select_option(label="a time")
    moment = page.evaluate(_LOCAL_TIME, noon_ms + 2 * hour_ms + 60_000)
    dialog.get_by_role("textbox", name="Time").fill(moment)
    dialog.get_by_role("button", name="Preview").click()
    cells = dialog.get_by_role("table").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_have_text([topic, "0", "0", "3", "0", "3"])
    dialog.get_by_role("textbox", name="to go on").fill("timely")
    dialog.get_by_role("button", name="Replay").click()
    expect(page.get_by_text("timely is replayed from that time")).to_be_visible()
    expect(lag).to_have_text("2")


_LOCAL_TIME = """(at) => {
  const local = new Date(at - new Date(at).getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}"""
"""A moment as it is typed into a field of this browser."""


def test_a_replay_whose_place_has_moved_is_shown_anew(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("trimmed")
    console.produce(topic, *({"value": str(number)} for number in range(5)))
    console.ask("POST", "/api/v1/subscriptions", {"name": "careful", "topic": topic, "settings": {}})
    page.goto("/subscriptions/careful")
    page.get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Preview").click()
    cells = dialog.get_by_role("table").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_have_text([topic, "0", "0", "0", "0", "0"])
    console.ask("DELETE", f"/api/v1/topics/{topic}/records?partition=0&before=3")
    dialog.get_by_role("textbox").fill("careful")
    dialog.get_by_role("button", name="Replay").click()
    expect(dialog.get_by_role("alert")).to_contain_text("since you looked")
    expect(cells).to_have_text([topic, "0", "0", "3", "0", "0"])
    expect(dialog.get_by_role("button", name="Replay")).to_be_disabled()


def test_a_group_behind_the_start_of_the_log_leads_to_the_oldest_message(
    console: ConsoleNode, page: Page
) -> None:
    topic = console.create_topic("shortened")
    console.produce(topic, *({"value": f"v{number}"} for number in range(5)))
    console.commit("slow", topic, offset=1)
    console.ask("DELETE", f"/api/v1/topics/{topic}/records?partition=0&before=3")
    page.goto("/groups/slow")
    page.get_by_role("table", name="Offsets").get_by_role("link").click()
    expect(page.locator("button.message .value")).to_have_text(["v3", "v4"])


# ---- the frame


def test_the_keyboard_goes_everywhere(page: Page, names: dict[str, str]) -> None:
    page.add_init_script("performance.now = () => 1")  # no second key comes too late
    page.goto("/")
    _settled(page)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile("/topics$"))
    page.keyboard.press("/")
    expect(page.get_by_label("Filter topics")).to_be_focused()
    page.keyboard.type("look.at")
    expect(page.get_by_role("table", name="Topics").get_by_role("row")).to_have_count(2)
    page.keyboard.press("g")  # typing is not taken for a key
    expect(page).to_have_url(re.compile(r"q=look\.atg"))
    page.keyboard.press("Escape")
    expect(page.get_by_label("Filter topics")).not_to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    for key, path in (("g", "/groups"), ("p", "/pipelines"), ("m", "/charts"), ("c", "/cluster"), ("o", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page).to_have_url(re.compile(f"{path}$"))


def test_the_keyboard_can_pass_over_the_pages(page: Page) -> None:
    page.goto("/topics?q=look")
    _settled(page)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.get_by_label("Filter topics")).to_have_value("look")


# ---- transactions


def test_an_open_transaction_is_found_and_aborted(console: ConsoleNode, page: Page) -> None:
    topic = console.create_topic("ledger")
    console.open_transaction("payments/7", topic)
    page.goto("/")
    page.get_by_role("link", name="Transactions").click()
    expect(page.get_by_role("heading", name="Transactions")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="payments/7")
    expect(row).to_contain_text("Ongoing")
    row.get_by_role("button", name="Abort payments/7").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("ledger-0: from offset 0")
    dialog.get_by_role("button", name="Cancel").click()
    expect(row).to_contain_text("Ongoing")
    row.get_by_role("button", name="Abort payments/7").click()
    expect(dialog).to_contain_text("ledger-0: from offset 0")
    keep_picture(page, "transaction-abort")
    dialog.get_by_role("button", name="Abort", exact=True).click()
    expect(page.get_by_text("The transaction of payments/7 is aborted")).to_be_visible()
    expect(row).to_have_count(0)
    page.get_by_role("button", name="All ids").click()
    expect(row).to_contain_text("CompleteAbort")
    (found,) = console.ask("GET", f"/api/v1/topics/{topic}")["partition_details"]
    assert (found["end_offset"], found["last_stable_offset"]) == (2, 2)


def test_a_transaction_that_hangs_is_told_and_aborted(console: ConsoleNode, page: Page) -> None:
    console.open_hanging(console.create_topic("stuck"))
    page.goto("/transactions")
    hanging = page.get_by_role("article", name="Hangs in stuck-0")
    expect(hanging).to_contain_text("990000 / 0")
    keep_picture(page, "transaction-hanging")
    hanging.get_by_role("button", name="Abort").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
    expect(hanging).to_have_count(0)
    (found,) = console.ask("GET", "/api/v1/topics/stuck")["partition_details"]
    assert found["last_stable_offset"] == 2


def test_the_theme_follows_the_system_until_one_is_chosen(open_tab: OpenTab) -> None:
    page = open_tab(color_scheme="dark")
    page.goto("/cluster")
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Light", exact=True).click()
    expect(html).to_have_attribute("data-theme", "light")
    page.reload()
    expect(html).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="As the system").click()
    expect(html).to_have_attribute("data-theme", "dark")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("shape", ["wide", "phone"])
def test_every_page_fits_can_be_read_and_names_what_it_has(
    open_tab: OpenTab, names: dict[str, str], shape: str, theme: str
) -> None:
    viewport = WIDE if shape == "wide" else PHONE
    page = open_tab(viewport=viewport, color_scheme=theme)
    for path in _EVERY_PAGE:
        page.goto(path.format(**names))
        _settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], path
        assert page.locator("dialog[open]:not(:modal)").count() == 0, path
        assert page.evaluate(_FAINT_TEXTS) == [], path
        assert page.evaluate(_NAMELESS) == [], path
        name = re.sub(r"[^a-z]+", "-", re.sub("[{}]", "", path)).strip("-") or "overview"
        keep_picture(page, f"{name}-{shape}-{theme}")


_FAINT_TEXTS = """() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const over = (top, under) => under.map((part, at) => top[at] * (top[3] ?? 1) + part * (1 - (top[3] ?? 1)));
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      layers.push(channels(getComputedStyle(each).backgroundColor));
      if (each.tagName === "DIALOG") break;
    }
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const isText = (element) =>
    [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()) &&
    element.checkVisibility() && !element.closest("[disabled], noscript, svg, .off-screen, .skip");
  const faint = new Set();
  for (const element of [...document.querySelectorAll("body *")].filter(isText)) {
    const shades = [light(channels(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(...shades) + 0.05) / (Math.min(...shades) + 0.05);
    if (contrast < 4.5) faint.add(`${element.className || element.tagName} ${contrast.toFixed(2)}`);
  }
  return [...faint];
}"""
"""What has less than 4.5:1 to what lies behind it."""

_NAMELESS = """() => {
  const nameOf = (each) =>
    each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.[0]?.textContent.trim();
  return [...document.querySelectorAll("button, a, input, select, textarea, [role=img], dialog")]
    .filter((each) => each.checkVisibility() && !nameOf(each))
    .map((each) => each.outerHTML.slice(0, 120));
}"""
"""What a screen reader could say nothing of."""
