"""Metrics as text, for Prometheus or as OpenMetrics, a piece at a time.

prometheus_client writes each piece; a family's head is written once, also where it comes in several pieces.
Between two pieces the loop is given to others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tailrace.metrics.collector import NodeCollector
from tailrace.metrics.family import PIECE_SAMPLES
from tailrace.metrics.loop_lag import LoopLag
from tailrace.metrics.observed import Observed
from tailrace.metrics.snapshot import Bounds, Choices, take_snapshot

_END = b"# EOF\n"


class Exporter:
    """The metrics of one node; remembers what it showed, so that it goes on showing it."""

    def __init__(self, observed: Observed, loop_lag: LoopLag, *, bounds: Bounds | None = None) -> None:
        self._observed = observed
        self._loop_lag = loop_lag
        self._choices = Choices(bounds)

    async def render(self, accept: str, *, by_partition: bool = False) -> tuple[bytes, str]:
        """Text and its media type, in the format that is asked for."""
        encode, media = choose_encoder(accept)
        broker = self._observed.broker
        snapshot = await take_snapshot(broker, self._choices, by_partition=by_partition)
        collector = NodeCollector(self._observed, snapshot, self._loop_lag)
        pieces = [piece async for piece in _write(collector.collect(), encode)]
        return b"".join(pieces), media


class _Single(Collector):
    """One piece, as prometheus_client wants it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


async def _write(metrics: Iterator[Metric], encode: Callable[[Collector], bytes]) -> AsyncIterator[bytes]:
    before, samples, ends = "", 0, False
    for metric in metrics:
        text = encode(_Single(metric))
        if text.endswith(_END):
            ends, text = True, text.removesuffix(_END)
        kind = f"{metric.type} {metric.name}"
        yield _without_head(text) if kind == before else text
        before = kind
        samples += len(metric.samples)
        if samples >= PIECE_SAMPLES:
            samples = 0
            await asyncio.sleep(0)
    if ends:
        yield _END


def _without_head(text: bytes) -> bytes:
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2]
    return text
