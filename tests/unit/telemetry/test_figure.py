"""Families as OTLP has them: kinds, units, pieces, and messages of a bounded size."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'tailrace[otel]'")

from opentelemetry.sdk.metrics.export import Gauge, Histogram, Metric, Sum
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from tailrace.metrics.family import PIECE_SAMPLES, counter, gauge, histogram, one
from tailrace.runtime import Histogram as Durations
from tailrace.telemetry.figure import Figures, in_messages


def convert(*families: Family) -> list[Metric]:
    return list(Figures(started_ns=1, now_ns=2).convert(families))


def test_a_counter_is_a_sum_that_only_grows() -> None:
    (metric,) = convert(*counter("records_in", "Records.", [({"topic": "a"}, 3), ({"topic": "b"}, 4)]))
    assert (metric.name, metric.description, metric.unit) == ("records_in", "Records.", "")
    assert isinstance(metric.data, Sum) and metric.data.is_monotonic
    points = metric.data.data_points
    assert [(point.attributes, point.value) for point in points] == [({"topic": "a"}, 3), ({"topic": "b"}, 4)]
    assert {(point.start_time_unix_nano, point.time_unix_nano) for point in points} == {(1, 2)}


def test_the_moment_when_a_counter_was_made_is_not_a_figure() -> None:
    family = Family("records_in", "Records.", "counter")
    family.samples += [Sample("records_in_total", {}, 3), Sample("records_in_created", {}, 1.7e9)]
    (metric,) = convert(family)
    assert isinstance(metric.data, Sum)
    assert [point.value for point in metric.data.data_points] == [3]


def test_a_gauge_stays_one() -> None:
    (metric,) = convert(*gauge("log_bytes", "Size.", one(5)))
    assert isinstance(metric.data, Gauge)
    assert metric.unit == "By"
    assert [point.value for point in metric.data.data_points] == [5]


def test_a_histogram_has_what_fell_into_each_bucket() -> None:
    durations = Durations()
    for seconds in (0.00005, 0.0002, 0.0002, 100.0):
        durations.observe(seconds)
    (metric,) = convert(*histogram("wait_seconds", "Waits.", [({"listener": "http"}, durations)]))
    assert isinstance(metric.data, Histogram)
    assert metric.unit == "s"
    (point,) = metric.data.data_points
    assert point.attributes == {"listener": "http"}
    assert list(point.bucket_counts) == durations.counts
    assert len(point.explicit_bounds) == len(durations.counts) - 1
    assert (point.count, point.sum) == (4, durations.sum_s)


def test_pieces_of_a_family_are_one_metric_also_where_a_histogram_is_torn() -> None:
    count = PIECE_SAMPLES // 3
    families = list(histogram("wait_seconds", "Waits.", [({"n": str(n)}, Durations()) for n in range(count)]))
    torn = [_half(families[0], first=True), _half(families[0], first=False), *families[1:]]
    assert len(families) > 1
    (metric,) = convert(*torn)
    points = metric.data.data_points
    assert [point.attributes for point in points] == [{"n": str(n)} for n in range(count)]


def _half(family: Family, *, first: bool) -> Family:
    half = Family(family.name, family.documentation, family.type)
    half.samples = family.samples[:7] if first else family.samples[7:]
    return half


def test_a_family_without_samples_is_not_sent() -> None:
    assert convert(*counter("records_in", "Records.", [])) == []


@pytest.mark.parametrize(("points_max", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3]), (100, [3])])
def test_messages_are_bounded(points_max: int, sizes: list[int]) -> None:
    metrics = convert(*(family for name in "abc" for family in gauge(name, "", one(1))))
    assert [len(message) for message in in_messages(metrics, points_max=points_max)] == sizes


def test_nothing_is_no_message() -> None:
    assert list(in_messages([], points_max=10)) == []
