"""Reports on small lakes whose figures are known; tasks run here, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tailrace
from tailrace.model import ConfigError
from tailrace.spark.lake import BadRange
from tailrace.spark.link import close_links
from tailrace.spark.pipelines import report as report_module
from tailrace.spark.pipelines import report_measure
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.report import ReportConfig, report
from tailrace.spark.pipelines.report_measure import SIZE_BUCKETS
from tailrace.spark.pipelines.report_summary import size_quantile

T0 = 1_700_000_000_000  # 2023-11-14T22:13:20
Row = Any
Archive = Callable[..., Path]


class Page(HTMLParser):
    """The text of a page, its rows of cells, and the elements in it."""

    EMPTY = frozenset({"meta", "rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.rows: list[list[str]] = []
        self.json = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "pre":
            self.json += data
        elif "td" in self._open or "th" in self._open:
            self.rows[-1][-1] += data

    def fact(self, name: str) -> str:
        return next(row[1] for row in self.rows if row[0] == name)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def spread(
        _spark: object, work: Callable[[Any], Any], tasks: Sequence[Any], *, result: type[Any]
    ) -> list[Any]:
        return [msgspec.json.decode(msgspec.json.encode(work(task)), type=result) for task in tasks]

    monkeypatch.setattr(report_module, "spread", spread)


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running
        close_links()


@pytest.fixture
def lake(archive_rows: Archive, row: type[Row]) -> Path:
    """Five records of `orders`: sizes 3, 5, 1, 130 and 9 bytes; the fourth is late by 10 s."""
    rows = [
        row(offset=0, time_ms=T0, key=b"ab", value=b"1"),
        row(offset=1, time_ms=T0 + 20_000, key=b"ab", value=b"1", headers=(("h", b"2"),)),
        row(offset=2, time_ms=T0 + 30_000, key=b"x", value=None),
        row(offset=5, time_ms=T0 + 20_000, key=None, value=b"v" * 130),
        row(partition=1, offset=0, time_ms=T0, key=b"<script>", value=b"1"),
    ]
    bad = BadRange(topic="orders", partition=0, first_offset=3, last_offset=4, reason="<b>torn</b>")
    return archive_rows(rows, bad=[bad])


def run(lake: Path, tmp_path: Path, **fields: Any) -> tuple[Page, dict[str, Any]]:
    out = tmp_path / "page.html"
    report(ReportConfig(lake=str(lake), out=str(out), **fields), spark=None)  # type: ignore[arg-type]
    page = Page(out.read_text())
    return page, msgspec.json.decode(page.json)


def test_figures_are_those_of_the_rows(lake: Path, tmp_path: Path) -> None:
    _, row = run(lake, tmp_path)
    (topic,) = row["topics"]
    assert topic["topic"] == "orders"
    assert (topic["rows"], topic["record_bytes"], topic["record_bytes_max"]) == (5, 148, 130)
    assert (topic["null_keys"], topic["tombstones"], topic["with_headers"]) == (1, 1, 1)
    assert (topic["late"], topic["late_us_max"], topic["outside"]) == (1, 10_000_000, 0)
    assert topic["sizes_below"] == {"2": 1, "4": 1, "8": 1, "16": 1, "256": 1}
    assert topic["keys"] == [
        {"key": "ab", "rows": 2},
        {"key": "<script>", "rows": 1},
        {"key": "x", "rows": 1},
    ]
    assert (topic["keys_distinct"], topic["headers"], topic["days"]) == (3, {"h": 1}, ["2023-11-14"])
    assert [(each["partition"], each["rows"], each["end"], each["lag"]) for each in topic["partitions"]] == [
        (0, 4, 6, None),
        (1, 1, 1, None),
    ]
    assert [each["reason"] for each in topic["bad"]] == ["<b>torn</b>"]


def test_windows_hold_the_records_of_their_time(lake: Path, tmp_path: Path) -> None:
    _, row = run(lake, tmp_path)
    windows = row["topics"][0]["windows"]
    found = {
        windows["start_us"] + at * windows["length_us"]: count
        for at, count in enumerate(windows["rows"])
        if count
    }
    assert found == {T0 * 1000: 2, (T0 + 20_000) * 1000: 2, (T0 + 30_000) * 1000: 1}
    assert sum(windows["bytes"]) == 148
    assert len(windows["rows"]) <= 60


def test_what_comes_from_records_is_text_on_the_page(lake: Path, tmp_path: Path) -> None:
    page, _ = run(lake, tmp_path)
    assert "script" not in page.elements and "b" not in page.elements
    assert "<script>" in [row[0] for row in page.rows if row]
    assert "<b>torn</b>" in [row[3] for row in page.rows if len(row) == 5]


def test_a_page_needs_nothing_but_itself(lake: Path, tmp_path: Path) -> None:
    page, _ = run(lake, tmp_path)
    assert not {"script", "link", "img", "iframe"} & set(page.elements)
    assert "svg" in page.elements
    assert page.fact("without a key") == "1 (20.0%)"
    assert page.fact("out of order") == "1 (20.0%), by up to 10 s"


def test_the_lag_is_what_the_broker_has_more(lake: Path, tmp_path: Path, broker: tailrace.Broker) -> None:
    broker.create_topic("orders", partitions=2)
    for _ in range(9):
        broker.produce("orders", b"v", partition=0)
    page, row = run(lake, tmp_path, bootstrap=broker.bootstrap_servers)
    assert row["topics"][0]["lag"] == 3
    assert [each["lag"] for each in row["topics"][0]["partitions"]] == [3, 0]
    assert page.fact("lag").startswith("3 records")


def test_a_topic_that_the_broker_does_not_have_has_no_lag(
    lake: Path, tmp_path: Path, broker: tailrace.Broker
) -> None:
    _, row = run(lake, tmp_path, bootstrap=broker.bootstrap_servers)
    assert row["topics"][0]["lag"] is None


def test_many_small_files_are_worth_a_hint(archive_rows: Archive, row: type[Row], tmp_path: Path) -> None:
    for at in range(4):
        lake = archive_rows([row(offset=at, time_ms=T0)])
    report(ReportConfig(lake=str(lake), out=str(tmp_path / "p.html")), spark=None)  # type: ignore[arg-type]
    assert "4 of 4 files are small" in (tmp_path / "p.html").read_text()


def test_records_without_a_time_do_not_set_the_scale(
    archive_rows: Archive, row: type[Row], tmp_path: Path
) -> None:
    rows = [
        row(offset=0, time_ms=-1),
        row(offset=1, time_ms=T0),
        row(offset=2, time_ms=T0 + 1000),
        row(offset=3, time_ms=9_000_000_000_000_000),
    ]
    _, found = run(archive_rows(rows), tmp_path)
    (topic,) = found["topics"]
    assert topic["outside"] == 2
    assert topic["windows"]["start_us"] == T0 * 1000


def test_keys_beyond_the_limit_leave_the_frequent_ones(
    archive_rows: Archive, row: type[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_measure, "KEYS_MAX", 10)
    keys = [b"often" if at % 2 else b"k%d" % at for at in range(60)]
    lake = archive_rows([row(offset=at, time_ms=T0, key=key) for at, key in enumerate(keys)])
    _, found = run(lake, tmp_path)
    assert found["topics"][0]["keys"][0] == {"key": "often", "rows": 30}
    assert found["topics"][0]["keys_distinct"] is None


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (b"", "(empty)"),
        (b"\xff\x00", "0xff00"),
        (b"\x1b[2J", "\\x1b[2J"),
        ("größe".encode(), "größe"),
        (b"a" * 100, "a" * 59 + "…"),
    ],
)
def test_keys_as_text(archive_rows: Archive, row: type[Row], tmp_path: Path, key: bytes, shown: str) -> None:
    _, found = run(archive_rows([row(offset=0, time_ms=T0, key=key)]), tmp_path)
    assert found["topics"][0]["keys"] == [{"key": shown, "rows": 1}]


def test_several_topics_and_a_stop(archive_rows: Archive, row: type[Row], tmp_path: Path) -> None:
    import threading

    for topic in ("b", "a", "c"):
        lake = archive_rows([row(offset=0, time_ms=T0)], topic=topic)
    _, found = run(lake, tmp_path, topic=("c", "a"))
    assert [each["topic"] for each in found["topics"]] == ["a", "c"]
    stop = threading.Event()
    told: list[Progress] = []

    def observe(progress: Progress) -> None:
        told.append(progress)
        stop.set()

    config = ReportConfig(lake=str(lake), out=str(tmp_path / "p.html"))
    done = report(config, spark=None, observe=observe, stop=stop)  # type: ignore[arg-type]
    assert (done.topics, done.is_complete) == (("a",), False)
    assert (told[-1].rows, told[-1].lag) == (1, 2)
    assert "Stopped before" in (tmp_path / "p.html").read_text()


def test_an_empty_lake_has_a_page_too(archive_rows: Archive, row: type[Row], tmp_path: Path) -> None:
    from tailrace.spark.lake import open_table

    open_table(tmp_path / "empty", create=True).close()
    page, found = run(tmp_path / "empty", tmp_path)
    assert found["topics"] == []
    assert page.fact("records") == "0"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"topic": ("order",)}, r"did you mean orders\?"),
        ({"topic": ("zzz",)}, "there is orders"),
    ],
)
def test_a_topic_that_is_not_there_is_refused(
    lake: Path, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(lake, tmp_path, **fields)


def test_a_page_that_could_not_be_written_is_refused_before_the_work(lake: Path, tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "none" / "p.html"):
        with pytest.raises(ConfigError, match="out = "):
            report(ReportConfig(lake=str(lake), out=str(out)), spark=None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "size"), [(0.5, 64), (0.99, 100)])
def test_no_share_of_the_records_is_larger_than_the_largest(share: float, size: int) -> None:
    sizes = [0] * SIZE_BUCKETS
    sizes[6], sizes[7] = 60, 40  # below 64, and from 64 to below 128
    assert size_quantile(sizes, share, largest=100) == size
