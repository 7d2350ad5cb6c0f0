"""The report of `tailrace bench` and its page, over figures made up here; the page is read with a parser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from tailrace.bench.broker_page import write_broker_page
from tailrace.bench.broker_report import BrokerReport, broker_lines, report_of, write_value
from tailrace.bench.wire.broker import SHAPES, BrokerRun, Plan, ShapeResult
from tailrace.bench.wire.subject import Process, Subject
from tailrace.model.address import Address
from tailrace.wire.kafka import FETCH, PRODUCE

MEASURED_AT = datetime(2026, 3, 9, 17, 4, tzinfo=UTC)
SUBJECT = Subject(
    bootstrap="h:1,[::1]:2",
    address=Address("::1", 2),
    nodes={1: Address("::1", 2), 2: Address("h", 1)},
    cluster_id="<id> & co",
    versions={PRODUCE: (0, 9), FETCH: (4, 12), 18: (0, 4)},
    processes=[Process(812, "java"), Process(813, "java")],
    timeout_s=30,
)
FIRST = ShapeResult(
    name="one",
    title="one <record>",
    per_s=2000,
    mb_per_s=0.3,
    p50_ms=0.5,
    p99_ms=5.0,
    p999_ms=50.0,
    cpu_us=100.0,
    cpu_ms_per_mb=700.0,
    rss_mb=45.6,
    client_cpu=0.4,
)
SECOND = replace(FIRST, name="fetch-1m", title="fetch", per_s=1000, mb_per_s=1000, client_cpu=0.97)
PLAN = Plan(seconds=1.0, shapes=SHAPES[:2], acks=1, partitions=6, record_bytes=321)


def report(*loads: ShapeResult, failure: str | None = None, subject: Subject = SUBJECT) -> BrokerReport:
    return report_of(subject, PLAN, BrokerRun(results=list(loads), failure=failure))


# ---- the report


def test_the_keys_of_the_json_stay() -> None:
    row = json.loads(json.dumps(report(FIRST).as_row()))
    assert list(row) == ["broker", "settings", "loads", "stopped", "machine"]
    assert row["broker"] == {
        "address": "[::1]:2",
        "nodes": 2,
        "cluster_id": "<id> & co",
        "apis": 3,
        "produce_versions": [0, 9],
        "fetch_versions": [4, 12],
        "processes": [{"pid": 812, "program": "java"}, {"pid": 813, "program": "java"}],
    }
    assert row["settings"] == {
        "seconds": 1.0,
        "acks": "1",
        "partitions": 6,
        "record_bytes": 321,
        "loads": ["one", "unbatched"],
    }
    assert list(row["loads"][0]) == [
        "name",
        "title",
        "per_s",
        "mb_per_s",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "cpu_us",
        "cpu_ms_per_mb",
        "rss_mb",
        "client_cpu",
    ]
    assert row["stopped"] is None
    assert {"cpu", "cores", "memory_bytes", "kernel", "python", "tailrace"} <= row["machine"].keys()
    assert "file_system" not in row["machine"]  # that of the broker's data may be another


def test_why_a_run_stopped_is_kept() -> None:
    assert report(failure="one: no reply").stopped == "one: no reply"
    assert report_of(SUBJECT, PLAN, BrokerRun(interrupted=True)).stopped == "interrupted"


def test_columns_without_a_figure_are_left_out() -> None:
    elsewhere = replace(FIRST, cpu_us=None, cpu_ms_per_mb=None, rss_mb=None)
    assert [each.key for each in report(elsewhere).figures()] == [
        "per_s",
        "mb_per_s",
        "p50_ms",
        "p99_ms",
        "p999_ms",
    ]
    assert len(report(elsewhere, FIRST).figures()) == 8
    assert report().figures() == []


def test_a_load_that_this_process_limited_is_named() -> None:
    assert report(FIRST).notes() == []
    (note,) = report(FIRST, SECOND).notes()
    assert "fetch-1m" in note and "one" not in note.split(":")[0].split()


def test_people_read_the_broker_in_lines() -> None:
    lines = broker_lines(report())
    assert lines["speaks"] == "3 APIs, Produce 0 to 9, Fetch 4 to 12"
    assert lines["runs as"] == "java, pid 812; java, pid 813"
    assert lines["topic"] == "partitions 6, acks 1"
    elsewhere = report(subject=replace(SUBJECT, processes=[]))
    assert broker_lines(elsewhere)["runs as"] == "elsewhere, or not ours to look at"


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0.00"), (0.456, "0.46"), (45.67, "45.7"), (100, "100"), (12345.6, "12,346")]
)
def test_small_figures_have_more_places(value: float, shown: str) -> None:
    assert write_value(value) == shown


# ---- the page


class Page(HTMLParser):
    """The elements with their attributes, the text, and whether everything was closed."""

    EMPTY = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def numbers(self, tag: str, key: str) -> list[float]:
        return [float(attrs[key] or "nan") for name, attrs in self.elements if name == tag and key in attrs]

    def plots(self) -> list[str | None]:
        return [attrs["aria-label"] for tag, attrs in self.elements if tag == "svg"]


def page(loads: Sequence[ShapeResult] = (FIRST, SECOND), failure: str | None = None) -> Page:
    return Page(write_broker_page(report(*loads, failure=failure), measured_at=MEASURED_AT))


def test_the_page_asks_nobody_for_anything() -> None:
    text = write_broker_page(report(FIRST), measured_at=MEASURED_AT)
    found = Page(text)
    asking = {"src", "href", "srcset", "action", "data", "style", "xlink:href"}
    assert not [(tag, attrs) for tag, attrs in found.elements if asking & attrs.keys()]
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in found.elements}
    assert not [word for word in ("://", "url(", "@import") if word in text]
    assert "prefers-color-scheme: dark" in text


def test_there_is_a_plot_for_every_kind_of_figure() -> None:
    assert page().plots() == [
        "Requests or records per second",
        "MB per second",
        "Latency in ms: median, p99 and p99.9",
        "Processor time of the broker, µs per request",
    ]


def test_bars_share_a_scale_that_begins_at_zero() -> None:
    found = page([replace(FIRST, cpu_us=None), replace(SECOND, cpu_us=None)])
    per_s, half, _mb = found.numbers("rect", "width")
    assert half == pytest.approx(per_s / 2, abs=0.1)


def test_latencies_stand_on_a_logarithmic_scale() -> None:
    found = page([FIRST])
    p50, p99, p999 = found.numbers("circle", "cx")
    assert p99 - p50 == pytest.approx(p999 - p99, abs=0.2)  # ten times each
    assert [text for text in found.texts if text in ("0.1", "1", "10")] == ["0.1", "1", "10"]


def test_a_latency_of_zero_stays_on_the_scale() -> None:
    found = page([replace(FIRST, p50_ms=0.0, p99_ms=0.0, p999_ms=0.0)])
    assert all(290 <= x <= 820 for x in found.numbers("circle", "cx"))


def test_megabytes_are_plotted_where_they_say_something() -> None:
    assert "MB per second" not in page([FIRST]).plots()


def test_nothing_measured_is_a_page_too() -> None:
    found = page([], failure="one <record>: no reply")
    assert found.plots() == []
    assert any("Not every load was measured: one <record>: no reply" in text for text in found.texts)


def test_what_a_broker_says_of_itself_cannot_write_into_the_page() -> None:
    text = write_broker_page(report(FIRST, failure="<b>"), measured_at=MEASURED_AT)
    assert not [raw for raw in ("<record>", "<id>", "<b>") if raw in text]
    assert "<id> & co" in "".join(Page(text).texts)
