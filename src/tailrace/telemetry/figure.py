"""The families of /metrics as OTLP has them. The same names, labels and numbers; nothing is counted twice.

    prometheus_client                              OTLP
    counter    name_total{labels} value            sum, cumulative, only growing      `name`
    gauge      name{labels} value                  gauge                              `name`
    histogram  name_bucket{le}: up to each bound   histogram: in each bucket          `name`
               name_count, name_sum

Whoever writes OTLP into Prometheus adds the `_total` again. Units are those that the names end with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

_UNITS = {"_seconds": "s", "_bytes": "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE
_INFINITE = "+Inf"


class Figures:
    """Families of one moment, on their way."""

    def __init__(self, *, started_ns: int, now_ns: int) -> None:
        self._started_ns = started_ns  # since when totals are counted
        self._now_ns = now_ns

    def convert(self, families: Iterable[Family]) -> Iterator[Metric]:
        """Those that have something to say; the pieces of a family are put together."""
        for (name, kind), pieces in groupby(families, key=lambda each: (each.name, each.type)):
            several = list(pieces)
            samples = [sample for piece in several for sample in piece.samples]
            data = self._data(name, kind, samples)
            if data.data_points:
                yield Metric(name=name, description=several[0].documentation, unit=_unit_of(name), data=data)

    def _data(self, name: str, kind: str, samples: list[Sample]) -> Sum | Gauge | Histogram:
        if kind == "histogram":
            return Histogram(data_points=list(self._histograms(samples)), aggregation_temporality=_CUMULATIVE)
        if kind == "counter":
            totals = [self._number(each) for each in samples if each.name == f"{name}_total"]
            return Sum(data_points=totals, aggregation_temporality=_CUMULATIVE, is_monotonic=True)
        return Gauge(data_points=[self._number(each) for each in samples])

    def _number(self, sample: Sample) -> NumberDataPoint:
        return NumberDataPoint(
            attributes=dict(sample.labels),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=self._now_ns,
            value=sample.value,
        )

    def _histograms(self, samples: list[Sample]) -> Iterator[HistogramDataPoint]:
        for labels, several in groupby(samples, key=_labels_of):
            parts = list(several)
            buckets = [each for each in parts if each.name.endswith("_bucket")]
            totals = [0, *(int(each.value) for each in buckets)]
            yield HistogramDataPoint(
                attributes=labels,
                start_time_unix_nano=self._started_ns,
                time_unix_nano=self._now_ns,
                count=totals[-1],
                sum=next((each.value for each in parts if each.name.endswith("_sum")), 0.0),
                bucket_counts=[after - before for before, after in pairwise(totals)],
                explicit_bounds=[float(le) for each in buckets if (le := each.labels["le"]) != _INFINITE],
                min=None,  # type: ignore[arg-type]  # nobody keeps it, and None is not sent
                max=None,  # type: ignore[arg-type]
            )


def in_messages(metrics: Iterable[Metric], *, points_max: int) -> Iterator[list[Metric]]:
    """Metrics in lists of not many more points than that; one metric is never torn."""
    message: list[Metric] = []
    points = 0
    for metric in metrics:
        message.append(metric)
        points += len(metric.data.data_points)
        if points >= points_max:
            yield message
            message, points = [], 0
    if message:
        yield message


def _labels_of(sample: Sample) -> dict[str, str]:
    return {name: value for name, value in sample.labels.items() if name != "le"}


def _unit_of(name: str) -> str:
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")
