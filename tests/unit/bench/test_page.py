"""The HTML page over figures made up here, read back with a parser."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser

import pytest

from tailrace.bench import GOALS, LogReport, write_page
from tailrace.bench.report import Twins

MEASURED_AT = datetime(2026, 3, 9, 17, 4, tzinfo=timezone(timedelta(hours=1), "CET"))
SPREAD = {"min": 100.0, "median": 2500.4, "max": 3000.0}
REPORT = LogReport(
    append_16k_ratio=0.75,
    append_1m_ratio=0.5,
    read_hot_ratio=0.9,
    group_commit_ratio=24,
    many_partitions_ratio=15,
    recovery_s_per_gib=2.5,
    encode_per_s=Twins(pure=500_000, compiled=4_200_000),
    decode_per_s=Twins(pure=700_000, compiled=None),
    machine={"cpu": "Abacus <3> & sons", "memory_bytes": 3 << 29, "uvloop": None},
    details={
        "append_16k": {"unit": "MB/s", "runs": 11, "tailrace": SPREAD, "bare": SPREAD},
        "recovery": {"bytes": 1, "seconds": [2.5]},
    },
)


class Page(HTMLParser):
    """Rows of cells as text, the elements met on the way, and whether all of them were closed."""

    EMPTY = frozenset({"meta", "rect", "line"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.rows and {"td", "th"} & set(self._open):
            self.rows[-1][-1] += data

    def row(self, first: str) -> list[str]:
        (found,) = [row for row in self.rows if row and row[0] == first]
        return found

    def bars(self) -> dict[str, float]:
        """Widths by kind and order: `met 0`, `missed 1`, ..."""
        filled = [a for tag, a in self.elements if tag == "rect" and a["class"] != "track"]
        return {f"{a['class']} {place}": float(a["width"] or "nan") for place, a in enumerate(filled)}


def page(report: LogReport = REPORT) -> Page:
    return Page(write_page(report, measured_at=MEASURED_AT))


def test_the_page_asks_nobody_for_anything() -> None:
    text = write_page(REPORT, measured_at=MEASURED_AT)
    found = Page(text)
    asking = {"src", "href", "srcset", "action", "data", "poster", "background", "style", "xlink:href"}
    assert not [(tag, attrs) for tag, attrs in found.elements if asking & attrs.keys()]
    assert not {"script", "link", "img", "iframe", "object", "base"} & {tag for tag, _ in found.elements}
    assert not [word for word in ("://", "url(", "@import") if word in text]
    policy = next(a["content"] for tag, a in found.elements if a.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_goal_has_its_row() -> None:
    found = page()
    for goal in GOALS:
        assert found.row(goal.text)
    assert found.row("append 16 KiB batches, against write")[2:] == ["0.75", "at least 0.60", "met"]
    assert found.row("append 1 MiB batches, against write")[2:] == ["0.50", "at least 0.85", "missed"]
    assert found.row("recovery, seconds per GiB")[2:] == ["2.50", "at most 4.00", "met"]
    assert found.row("encode, records/s, compiled")[2:] == ["4,200,000", "at least 3,000,000", "met"]


def test_what_could_not_be_measured_is_said_and_has_no_bar() -> None:
    found = page()
    assert found.row("decode, records/s, compiled")[1:] == ["", "not there", "at least 5,000,000", ""]
    assert len(found.bars()) == len(GOALS) - 1


def test_a_bar_is_a_share_of_the_goal_and_ends_with_its_track() -> None:
    found = page()
    bars = found.bars()
    goal_at = next(float(a["x1"] or "nan") for tag, a in found.elements if tag == "line")
    track = next(float(a["width"] or "nan") for tag, a in found.elements if a.get("class") == "track")
    assert bars["met 0"] == pytest.approx(goal_at * 0.75 / 0.6, abs=0.1)
    assert bars["missed 1"] == pytest.approx(goal_at * 0.5 / 0.85, abs=0.1)
    assert bars["met 3"] == track  # twice the goal
    assert bars["met 5"] == pytest.approx(goal_at * 2.5 / 4, abs=0.1)  # less is better, and shorter


def test_a_bar_is_told_to_those_who_do_not_see_it() -> None:
    labels = [attrs["aria-label"] for tag, attrs in page().elements if tag == "svg"]
    assert labels[1] == "0.50, at least 0.85: missed"


def test_the_absolute_figures_of_either_side_are_there() -> None:
    sides = ["100.00", "2,500", "3,000"] * 2
    assert page().row("append 16k") == ["append 16k", "MB/s", "11", *sides]


def test_a_load_that_compares_nothing_is_left_to_the_json() -> None:
    assert not [row for row in page().rows if row and row[0] == "recovery"]


def test_a_report_without_details_says_so() -> None:
    text = write_page(dataclasses.replace(REPORT, details={}), measured_at=MEASURED_AT)
    assert "Nothing was kept." in text


def test_the_machine_is_described_and_cannot_write_into_the_page() -> None:
    found = page()
    assert found.row("cpu") == ["cpu", "Abacus <3> & sons"]
    assert found.row("memory bytes")[1] == "1.5 GiB"
    assert found.row("uvloop")[1] == "not there"
    assert "<3>" not in write_page(REPORT, measured_at=MEASURED_AT)


def test_the_time_is_that_of_the_run() -> None:
    text = write_page(REPORT, measured_at=MEASURED_AT)
    assert '<time datetime="2026-03-09T17:04:00+01:00">2026-03-09 17:04 CET</time>' in text
