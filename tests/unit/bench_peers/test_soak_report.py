"""The soak's report: verdicts, ledger, files that are read back, a page that loads nothing, exit status."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.soak.chart import Line, lines, thin
from bench.soak.command import INTERRUPTED, command, line_printer, status_of, stoppable
from bench.soak.page import CHARTS, as_page
from bench.soak.report import (
    SAMPLED,
    WINDOWED,
    Report,
    add_row,
    as_markdown,
    ledger_failures,
    read_json,
    write_json,
)
from bench.soak.run import Plan, Progress, load_figures, rates_between
from bench.soak.shape import Job, Rates, Shape
from click.testing import CliRunner

from tailrace.bench.wire import LoadError
from tailrace.page import tick_step


def report_of(*, seconds: int = 100, leak_mb: float = 0.0, records_per_s: float = 1000.0) -> Report:
    """A soak that went well, but for what is asked."""
    report = Report(
        began="2026-01-01 00:00 UTC", minutes=seconds / 60, machine={"cpu": "<a> & b"}, settings={"x": 1}
    )
    report.target = {"singles_per_s": 500.0, "batches_per_s": 5.0, "records_per_s": 1000.0, "mb_per_s": 1.0}
    report.capacity = {**report.target, "cpu": 0.9, "generator_cpu": 0.5}
    report.span_s = float(seconds)
    for at in range(1, seconds + 1):
        row: dict[str, float | None] = {figure.name: 10.0 for figure in SAMPLED}
        row |= {"at_s": float(at), "rss_mb": 100 + leak_mb * at, "records_per_s": records_per_s}
        row |= {"log_start": 0.0, "log_end": 1000.0 * at, "singles_p99_ms": None}
        report.add_sample(row)
        if at % 5 == 0:
            report.add_window(
                {"at_s": float(at), "lag_max_ms": 9.0} | {figure.name: 1.0 for figure in WINDOWED}
            )
    report.ledger = [{"partition": 0, "acknowledged": 9, "read_to": 9, "log_start": 3, "log_end": 9}]
    report.visits = {"groups": 3}
    return report


def concluded(report: Report) -> Report:
    report.conclude()
    return report


# ---- verdicts


def test_a_level_soak_passes() -> None:
    report = concluded(report_of())

    assert report.passed
    assert {verdict.name for verdict in report.verdicts} == {each.name for each in (*SAMPLED, *WINDOWED)}
    assert status_of(report) == 0


def test_a_leak_fails_the_soak_and_is_named() -> None:
    report = concluded(report_of(leak_mb=1.0))

    assert [verdict.name for verdict in report.verdicts if not verdict.passed] == ["rss_mb"]
    assert status_of(report) == 1


def test_a_load_that_was_not_achieved_is_a_failure() -> None:
    report = concluded(report_of(records_per_s=900.0))

    assert report.failures == ["900 records/s of 1,000: the broker did not keep up with the load"]
    assert status_of(report) == 1


def test_a_figure_that_was_never_measured_has_no_verdict() -> None:
    report = report_of()
    report.windows["anonymous_mb"] = [None] * len(report.windows["at_s"])

    report.conclude()

    assert "anonymous_mb" not in {verdict.name for verdict in report.verdicts}


def test_an_early_end_with_too_little_to_judge_is_no_failure() -> None:
    report = report_of(seconds=5)
    report.interrupted = True

    assert status_of(concluded(report)) == INTERRUPTED


@pytest.mark.parametrize("seconds", [5, 100])
def test_an_early_end_hides_no_failure(seconds: int) -> None:
    report = report_of(seconds=seconds, leak_mb=1.0)
    report.interrupted = True
    if seconds == 5:
        report.failures = ["a producer: the peer closed the connection"]

    assert status_of(concluded(report)) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"log_end": 8}, ["partition 0: 9 records were acknowledged, the log ends at 8"]),
        ({"log_end": 10}, ["partition 0: 9 records were acknowledged, the log ends at 10"]),
        ({"read_to": 8}, ["partition 0: 9 records were acknowledged, 8 were read"]),
        ({}, []),
    ],
)
def test_the_log_holds_what_was_acknowledged_and_all_of_it_was_read(
    change: dict[str, int], said: list[str]
) -> None:
    assert ledger_failures([report_of().ledger[0] | change]) == said


def test_a_row_with_other_columns_is_a_mistake() -> None:
    columns: dict[str, list[float | None]] = {"at_s": [1.0]}

    with pytest.raises(AssertionError):
        add_row(columns, {"at_s": 2.0, "more": 1.0})


# ---- rows of the load


def row_of(at_s: float, count: int) -> dict[str, object]:
    names = ("singles", "batches", "records", "bytes", "fetches", "fetched_bytes", "cpu_s")
    return {"at_s": at_s, "singles_p50_ms": 1.5, **dict.fromkeys(names, count)}


def test_rates_are_what_was_acknowledged_between_two_rows() -> None:
    found = rates_between(row_of(10.0, 100), row_of(12.0, 500))

    assert found == {"singles_per_s": 200, "batches_per_s": 200, "records_per_s": 200, "mb_per_s": 0.0002}


def test_a_kind_of_producer_that_gets_nothing_gives_no_rates() -> None:
    assert rates_between(row_of(10.0, 100), {**row_of(12.0, 500), "batches": 100}) is None


def test_a_row_without_a_counter_is_an_error() -> None:
    with pytest.raises(LoadError, match="tells no records"):
        load_figures(row_of(1.0, 1), {**row_of(2.0, 2), "records": None})


def test_a_latency_that_nobody_saw_stays_unknown() -> None:
    found = load_figures(row_of(1.0, 1), row_of(2.0, 3))

    assert (found["records_per_s"], found["singles_p50_ms"], found["batches_p99_ms"]) == (2.0, 1.5, None)


@pytest.mark.parametrize("rates", [None, Rates(singles_per_s=10.5, batches_per_s=2.0)])
def test_a_job_comes_back_from_its_row(rates: Rates | None) -> None:
    job = Job(host="127.0.0.1", port=9, shape=Shape(partitions=2), rates=rates)

    assert Job.from_row(job.as_row()) == job


def test_half_a_rate_is_half_of_each_kind() -> None:
    assert Rates(singles_per_s=10, batches_per_s=4).scaled(0.5) == Rates(singles_per_s=5, batches_per_s=2)


@pytest.mark.parametrize(("minutes", "window_s"), [(20.0, 10.0), (0.5, 1.25), (0.05, 1.0)])
def test_windows_are_short_in_a_short_run(minutes: float, window_s: float) -> None:
    assert Plan(minutes=minutes).window_s == window_s


# ---- files


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = concluded(report_of())

    write_json(report, tmp_path / "soak.json")

    assert read_json(tmp_path / "soak.json") == report
    assert [path.name for path in tmp_path.iterdir()] == ["soak.json"]
    assert len((tmp_path / "soak.json").read_text().splitlines()) < 100


def test_the_text_tells_outcome_verdicts_and_failures() -> None:
    text = as_markdown(concluded(report_of(leak_mb=1.0, records_per_s=900.0)))

    assert "Soak failed: 1.7 minutes" in text
    assert re.search(r"\| resident memory, MB +\|.*rises ✗ \|", text)
    assert re.search(r"\| threads +\|.*flat ✓ \|", text)
    assert "- 900 records/s of 1,000" in text


def test_a_soak_that_never_began_has_a_report_too() -> None:
    report = Report(began="now", minutes=1.0, machine={}, settings={}, failures=["it did not start"])
    report.conclude()

    assert "- it did not start" in as_markdown(report)
    assert "it did not start" in as_page(report)
    assert status_of(report) == 1


def test_the_page_loads_nothing_and_escapes_what_it_shows() -> None:
    page = as_page(concluded(report_of()))

    assert "<script" not in page and "http://" not in page and "https://" not in page and "src=" not in page
    assert "prefers-color-scheme: dark" in page
    assert "&lt;a&gt; &amp; b" in page
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)


def test_every_judged_figure_is_in_a_chart() -> None:
    shown = {name for chart in CHARTS for name, _ in chart.columns}

    assert {each.name for each in (*SAMPLED, *WINDOWED)} <= shown


def test_a_report_is_rendered_again(tmp_path: Path) -> None:
    write_json(concluded(report_of()), tmp_path / "soak.json")

    done = CliRunner().invoke(
        command, ["--render", str(tmp_path / "soak.json"), "--out", str(tmp_path / "out")]
    )

    assert done.exit_code == 0, done.output
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".html", ".json", ".md"]


@pytest.mark.parametrize("arguments", [["--minutes", "0"], ["--load", "1.5"], ["--calibrate", "0"]])
def test_a_wrong_number_is_a_usage_error(arguments: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [*arguments, "--out", str(tmp_path / "out")])

    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


# ---- charts


def test_a_chart_draws_every_line_within_its_frame() -> None:
    rows = [
        Line(label=label, times_s=[0, 50, 100], values=[0, 7, most]) for label, most in (("a", 3), ("b", 9))
    ]

    drawing = ElementTree.fromstring(lines("x", rows, unit="MB", span_s=100))
    drawn = [path for path in drawing.iter("path") if path.find("title") is not None]

    assert [path.findtext("title") for path in drawn] == ["a", "b"]
    for path in drawn:
        numbers = [float(each) for each in re.findall(r"[\d.]+", path.get("d") or "")]
        assert all(62 <= x <= 708 for x in numbers[::2]) and all(28 <= y <= 176 for y in numbers[1::2])


@pytest.mark.parametrize(("values", "span_s"), [([], 10.0), ([1.0], 0.0)])
def test_nothing_to_show_is_no_chart(values: list[float], span_s: float) -> None:
    assert lines("x", [Line(label="a", times_s=values, values=values)], unit="", span_s=span_s) == ""


def test_a_line_of_zeros_is_drawn() -> None:
    assert "<path" in lines("x", [Line(label="a", times_s=[1, 2], values=[0, 0])], unit="", span_s=2)


@pytest.mark.parametrize(
    ("most", "step"),
    [(4, 1), (4.1, 2), (8, 2), (9, 2.5), (19, 5), (21, 10), (0.004, 0.001), (0, 1), (1e6, 250_000)],
)
def test_ticks_are_round_and_four_of_them_reach_the_top(most: float, step: float) -> None:
    assert tick_step(most) == pytest.approx(step)
    assert tick_step(most) * 4 >= most


def test_a_long_line_is_thinned_and_keeps_its_extremes() -> None:
    values = [1.0] * 5000
    values[1234], values[4321] = 99.0, -99.0

    points = thin(range(5000), values, 100)

    assert len(points) <= 100
    assert (1234, 99.0) in points and (4321, -99.0) in points
    assert points == sorted(points)


# ---- waiting and telling


def test_a_wait_that_nobody_cuts_short_goes_on() -> None:
    with stoppable() as wait:
        assert not wait(0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_this_wait_and_all_that_follow(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stoppable() as wait:
        os.kill(os.getpid(), number)
        assert wait(30) and wait(30)

    assert signal.getsignal(number) is before


def test_the_second_signal_ends_at_once() -> None:
    with stoppable():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_elsewhere_than_on_a_terminal_there_is_a_line_a_minute() -> None:
    said: list[str] = []
    show = line_printer(said.append)

    show(Progress(done_s=0, span_s=180, text="starting"))
    for at in range(1, 180):
        show(Progress(done_s=at, span_s=180, text="fine"))

    assert said == [
        "starting",
        "[0:01 of 3:00, 2:59 left] fine",
        "[1:00 of 3:00, 2:00 left] fine",
        "[2:00 of 3:00, 1:00 left] fine",
    ]
