"""Curves in the report: JSON, table, page and the lines that are drawn, from figures that were made up."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path

import pytest
from bench.page import as_page
from bench.report import Report, Row, growth, read_json, write_json
from bench.table import as_markdown, curve_table, growth_text, notes

from tailrace.page import Dot, line

HEADINGS = {"a": "speed <x>, MB/s", "b": "rare, ms"}


def curve_row(*points: Row, missing: list[Row] | None = None) -> Row:
    return {
        "name": "groups",
        "title": "Groups & more",
        "x": "groups",
        "figures": [
            {"key": "a", "title": "speed <x>", "unit": "MB/s"},
            {"key": "b", "title": "rare", "unit": "ms"},
        ],
        "points": list(points),
        "missing": missing or [],
    }


def point(x: int, **figures: float) -> Row:
    return {"x": x, "label": f"{x:,}", **figures}


@pytest.fixture
def report() -> Report:
    made = Report(began="2026-01-01", quick=False, machine={"cores": 2})
    made.scaling = [
        curve_row(
            point(1, a=10.0),
            point(1_000, a=25.0, b=1.0),
            missing=[{"x": 9_000, "label": "9,000", "why": "no <room>"}],
        )
    ]
    return made


@pytest.mark.parametrize(
    ("points", "grown", "text"),
    [
        ([point(1, a=10.0), point(2, a=1.0), point(3, a=25.0)], 2.5, "2.50x"),
        ([point(1), point(2, a=5.0), point(3, a=10.0)], 2.0, "2.00x"),
        ([point(1, a=100.0), point(2, a=1.0)], 0.01, "0.01x"),
        ([point(1, a=1000.0), point(2, a=1.0)], 0.001, "0.001x"),
        ([point(1, a=10.0)], None, "-"),
        ([point(1, a=0.0), point(2, a=1.0)], None, "-"),
        ([], None, "-"),
    ],
)
def test_growth_is_the_last_over_the_first(points: list[Row], grown: float | None, text: str) -> None:
    row = curve_row(*points)

    assert growth(row, "a") == grown
    assert growth_text(row, "a") == text


def test_json_comes_back_with_its_curves(report: Report, tmp_path: Path) -> None:
    write_json(report, tmp_path / "r.json")

    assert read_json(tmp_path / "r.json") == report


def test_a_report_from_before_there_were_curves_is_read(report: Report, tmp_path: Path) -> None:
    write_json(report, tmp_path / "r.json")
    row = json.loads((tmp_path / "r.json").read_text())
    del row["scaling"]
    (tmp_path / "r.json").write_text(json.dumps(row))

    assert read_json(tmp_path / "r.json").scaling == []


def test_a_curve_is_a_row_for_each_size_and_one_for_its_growth() -> None:
    lines = curve_table(curve_row(point(1, a=10.0), point(1_000, a=25.0))).splitlines()

    assert [[cell.strip() for cell in each.strip("|").split("|")] for each in (lines[0], *lines[2:])] == [
        ["groups", HEADINGS["a"]],  # nothing was measured of the other one
        ["1", "10.0"],
        ["1,000", "25.0"],
        ["last / first", "2.50x"],
    ]


def test_a_curve_without_points_is_no_table() -> None:
    assert curve_table(curve_row()) == ""


def test_the_markdown_has_curves_remarks_and_what_is_missing(report: Report) -> None:
    text = as_markdown(report)

    assert "## Tailrace: cost against size" in text and "### Groups & more" in text
    assert "All positions are in memory" in text
    assert "Groups & more, 9,000: no <room>" in notes(report)


def test_a_report_of_curves_alone_speaks_of_no_peers(report: Report) -> None:
    for text in (as_markdown(report), as_page(report)):
        assert "against Kafka" not in text and "Servers" not in text


def test_a_report_without_curves_does_not_speak_of_them(report: Report) -> None:
    report.scaling = [curve_row()]

    for text in (as_markdown(report), as_page(report)):
        assert "cost against size" not in text


def test_the_page_draws_every_figure_and_escapes_all_text(report: Report) -> None:
    page = as_page(report)

    assert page.count("<svg") == page.count("</svg>") == 2
    assert "speed &lt;x&gt;" in page and "speed <x>" not in page
    assert "Groups &amp; more" in page and "no &lt;room&gt;" in page
    assert "<script" not in page and "http" not in page


def dots(*places: tuple[float, float]) -> list[Dot]:
    return [Dot(x=x, value=value, label=f"{x:g} <") for x, value in places]


def drawn(*places: tuple[float, float]) -> list[tuple[float, float]]:
    root = xml.etree.ElementTree.fromstring(line("t<", dots(*places), unit="ms"))
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in root.iter("circle")]


def test_sizes_are_placed_by_their_logarithm_and_figures_from_zero() -> None:
    first, second, third, fourth = drawn((1, 0), (10, 5), (100, 10), (1_000, 10))

    gaps = [second[0] - first[0], third[0] - second[0], fourth[0] - third[0]]
    assert gaps == pytest.approx([gaps[0]] * 3, abs=0.2) and gaps[0] > 10
    assert first[1] - second[1] == pytest.approx(second[1] - third[1], abs=0.2)
    assert third[1] == fourth[1] < second[1]


def test_a_single_dot_is_in_the_middle() -> None:
    assert [x for x, _ in drawn((7, 1.0))] == [170.0]


def test_dots_of_nothing_but_zeros_are_drawn_on_the_axis() -> None:
    (first, second) = drawn((1, 0), (10, 0))

    assert first[1] == second[1]


def test_what_has_no_logarithm_is_left_out_and_no_dots_are_no_image() -> None:
    assert len(drawn((0, 1.0), (10, 2.0))) == 1
    assert line("t", dots((0, 1.0)), unit="ms") == line("t", [], unit="ms") == ""
