"""Families of metrics as prometheus_client has them, made of plain numbers, a piece at a time.

A family with many samples comes as several pieces of one name; `exposition` writes its head once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from tailrace.runtime import Histogram

PIECE_SAMPLES = 100

Labels = dict[str, str]
Labelled = Iterable[tuple[Labels, float]]


def gauge(name: str, doc: str, samples: Labelled) -> Iterator[Metric]:
    """What goes up and down."""
    return _pieces(name, doc, "gauge", (Sample(name, labels, value) for labels, value in samples))


def counter(name: str, doc: str, samples: Labelled) -> Iterator[Metric]:
    """What only grows; `name` is without the `_total` that its samples have."""
    return _pieces(
        name, doc, "counter", (Sample(f"{name}_total", labels, value) for labels, value in samples)
    )


def histogram(name: str, doc: str, samples: Iterable[tuple[Labels, Histogram]]) -> Iterator[Metric]:
    """How long things took."""
    return _pieces(name, doc, "histogram", _histogram_samples(name, samples))


def one(value: float) -> Labelled:
    """The sample of a metric without labels."""
    return (({}, value),)


def _histogram_samples(name: str, samples: Iterable[tuple[Labels, Histogram]]) -> Iterator[Sample]:
    for labels, each in samples:
        total = 0
        for bound, total in each.cumulative():
            yield Sample(f"{name}_bucket", {**labels, "le": bound}, total)
        yield Sample(f"{name}_count", labels, total)
        yield Sample(f"{name}_sum", labels, each.sum_s)


def _pieces(name: str, doc: str, kind: str, samples: Iterable[Sample]) -> Iterator[Metric]:
    """At least one, so that a family is known before it has anything to say."""
    piece = Metric(name, doc, kind)
    for sample in samples:
        if len(piece.samples) >= PIECE_SAMPLES:
            yield piece
            piece = Metric(name, doc, kind)
        piece.samples.append(sample)
    yield piece
