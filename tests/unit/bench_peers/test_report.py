"""Report, goals, table and page, from figures that were made up."""

from __future__ import annotations

import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bench.goal import GOALS, Goal, judge
from bench.page import as_page
from bench.report import Report, Row, ServerFacts, read_json, write_json
from bench.table import as_markdown, figure, goal_table, load_table, markdown, notes

from tailrace.page import Bar, bars


def sample(per_s: float, **more: object) -> Row:
    return {"count": 100, "per_s": per_s, "p99_ms": 1.0, "rss_mb": 50.0, **more}


@pytest.fixture
def report() -> Report:
    made = Report(began="2026-01-01", quick=True, machine={"cpu": "x<y", "cores": 2})
    made.targets = {"tailrace-os": "Tailrace (fsync = os)", "kafka": "Kafka <default>"}
    made.loads = {"unbatched": "one <b> record", "fetch-1m-1": "fetch"}
    made.servers = {
        "tailrace-os": ServerFacts(version="0.1.0", ready_s=[0.3, 0.2, 0.9], idle_rss_mb=40.0, idle_cpu=0.01),
        "kafka": ServerFacts(version="4.3.0", ready_s=[4.0]),
    }
    for number, (ours, theirs) in enumerate(((40_000, 10_000), (20_000, 20_000), (50_000, 15_000)), 1):
        made.add({"unbatched": sample(ours)}, target="tailrace-os", server="tailrace-os", round_number=number)
        made.add({"unbatched": sample(theirs)}, target="kafka", server="kafka", round_number=number)
    return made


def goal(**changes: object) -> Goal:
    settings = {"text": "g", "figure": "per_s", "limit": 2.0, "loads": ("unbatched",), **changes}
    return Goal(**settings)  # type: ignore[arg-type]


def test_a_figure_is_the_median_of_its_rounds(report: Report) -> None:
    assert report.value("unbatched", "tailrace-os", "per_s") == 40_000
    assert report.value("unbatched", "redis", "per_s") is None
    assert report.fact("tailrace-os", "ready_s") == 0.3


def test_the_most_memory_seen_is_the_memory_loaded(report: Report) -> None:
    report.add({"x": sample(1, rss_mb=99.0)}, target="kafka", server="kafka", round_number=1)
    report.add({"x": sample(1, rss_mb=70.0)}, target="kafka", server="kafka", round_number=2)

    assert report.fact("kafka", "loaded_rss_mb") == 99.0


def test_a_load_without_figures_is_told_and_not_counted(report: Report) -> None:
    report.add({"fetch-1m-1": {"error": "closed"}}, target="kafka", server="kafka", round_number=1)
    report.add({"fetch-1m-1": {"unsupported": "no"}}, target="redis", server="redis", round_number=1)

    assert report.value("fetch-1m-1", "kafka", "per_s") is None
    assert notes(report) == ["redis: no", "kafka, fetch-1m-1, round 1: closed"]


@pytest.mark.parametrize(
    ("changes", "value", "met"),
    [
        ({}, 40_000 / 15_000, True),
        ({"limit": 3.0}, 40_000 / 15_000, False),
        ({"limit": 3.0, "at_most": True}, 40_000 / 15_000, True),
        ({"theirs": None, "limit": 1e5}, 40_000, False),
        ({"theirs": "redis"}, None, None),
        ({"loads": ("unbatched", "fetch-1m-1")}, 40_000 / 15_000, True),
        ({"loads": (), "figure": "ready_s", "at_most": True, "limit": 0.1}, 0.3 / 4.0, True),
    ],
)
def test_a_goal_is_a_ratio_of_medians(
    report: Report, changes: dict[str, object], value: float | None, met: bool | None
) -> None:
    made = goal(**changes)
    found = made.value(report)

    assert found == (None if value is None else pytest.approx(value))
    assert (None if found is None else made.is_met(found)) is met


def test_over_several_loads_the_worst_counts(report: Report) -> None:
    for target, rate in (("tailrace-os", 5.0), ("kafka", 10.0)):
        report.add({"fetch-1m-1": sample(rate)}, target=target, server=target, round_number=1)

    assert goal(loads=("unbatched", "fetch-1m-1")).value(report) == 0.5
    assert goal(loads=("unbatched", "fetch-1m-1"), at_most=True).value(report) == pytest.approx(40 / 15)


def test_every_goal_names_loads_and_targets_that_exist() -> None:
    from bench.load import LOADS
    from bench.run import titles_of
    from bench.target import PEERS, plan_targets

    loads = {name for load in LOADS for name in titles_of(load)}
    targets = {target.name for target in plan_targets(PEERS)}
    for each in GOALS:
        assert set(each.loads) <= loads
        assert {each.ours, each.theirs or each.ours} <= targets


def test_json_comes_back_as_it_was_written(report: Report, tmp_path: Path) -> None:
    report.goals = judge(report)
    write_json(report, tmp_path / "r.json")

    assert read_json(tmp_path / "r.json") == report
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_the_table_ticks_what_is_met_and_crosses_what_is_not(report: Report) -> None:
    report.goals = [
        {"text": "a", "value": 2.5, "unit": "x", "bound": ">= 2x", "met": True},
        {"text": "b", "value": 0.5, "unit": "x", "bound": ">= 2x", "met": False},
        {"text": "c", "value": None, "unit": "x", "bound": ">= 2x", "met": None},
    ]

    lines = goal_table(report).splitlines()[2:]

    assert ["✓" in line for line in lines] == [True, False, False]
    assert ["✗" in line for line in lines] == [False, True, False]
    assert "2.50x" in lines[0] and "not measured" in lines[2]


def test_a_load_shows_only_columns_that_have_figures(report: Report) -> None:
    table = load_table(report, "unbatched")

    assert "p99 ms" in table and "p50 ms" not in table
    assert load_table(report, "fetch-1m-1") == ""


def test_columns_line_up() -> None:
    assert markdown(["a", "bb"], [["long", "1"]]) == "| a    | bb |\n| ---- | -: |\n| long |  1 |"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (1234.5, "1,234"), (12.34, "12.3"), (0.126, "0.13")]
)
def test_figures_have_three_digits(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_the_markdown_tells_what_is_missing(report: Report) -> None:
    report.skipped["nats"] = "nats-server is not installed"
    report.interrupted = True

    text = as_markdown(report)

    assert "nats: skipped. nats-server is not installed" in text
    assert "interrupted" in text


def test_the_page_is_whole_escaped_and_loads_nothing(report: Report) -> None:
    page = as_page(report)

    assert "Kafka &lt;default&gt;" in page and "<default>" not in page
    assert "x&lt;y" in page
    assert "one &lt;b&gt; record</h2>" in page
    assert "<script" not in page and "http" not in page
    assert open_tags(page) == []


def open_tags(page: str) -> list[str]:
    """Tags that are opened and never closed, or closed in the wrong order."""
    left: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                left.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert left.pop() == tag

    Parser().feed(page)
    return left


def test_bars_are_an_image_with_lengths_in_proportion() -> None:
    rows = [Bar(label="a & b", value=10, low=8, high=12), Bar(label="c", value=5, low=5, high=5, ours=True)]

    root = xml.etree.ElementTree.fromstring(bars("t<", rows, unit="/s"))

    long, short = (float(each.attrib["width"]) for each in root.iter("rect"))
    assert long == pytest.approx(2 * short, rel=0.01)


def test_no_bars_are_no_image() -> None:
    assert bars("t", [], unit="/s") == ""


def test_bars_of_nothing_but_zeros_are_drawn() -> None:
    assert "<rect" in bars("t", [Bar(label="a", value=0, low=0, high=0)], unit="/s")
