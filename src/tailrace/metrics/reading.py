"""A node's counters at one moment, and what two such moments say of the time between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from tailrace.metrics.history import Figure
from tailrace.metrics.observed import Observed
from tailrace.metrics.percentile import percentile
from tailrace.metrics.process import cpu_s, memory_bytes
from tailrace.runtime import quantile_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Numbers that only grow, but for `memory_bytes`."""

    at_ms: int
    at_s: float  # of the clock that never jumps
    records_in: int
    bytes_in: int
    records_out: int
    bytes_out: int
    requests: int
    errors: int
    cpu_s: float
    memory_bytes: int
    flushes: Sequence[int]  # by bucket
    produce_ms: Sequence[float]  # how long the newest who published waited for durability, the newest last


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What happened between two readings; None where nothing did that could be measured."""

    records_in_per_s: float
    bytes_in_per_s: float
    records_out_per_s: float
    bytes_out_per_s: float
    requests_per_s: float
    errors_per_s: float
    cpu_share: float  # 1: as much as one core has
    produce_p50_ms: Figure
    produce_p99_ms: Figure
    flush_p99_ms: Figure


def read_counters(observed: Observed) -> Reading:
    broker = observed.broker
    totals, counters = broker.counters.totals(), broker.counters
    return Reading(
        at_ms=broker.clock.now_ms(),
        at_s=broker.clock.monotonic(),
        records_in=totals.records_in,
        bytes_in=totals.bytes_in,
        records_out=totals.records_out,
        bytes_out=totals.bytes_out,
        requests=observed.requests,
        errors=observed.errors,
        cpu_s=cpu_s(),
        memory_bytes=memory_bytes(),
        flushes=tuple(broker.storage.counters.flush.counts),
        produce_ms=tuple(counters.produce_ms),
    )


def compare(before: Reading, now: Reading) -> Rates | None:
    """The rates between two readings; None if no time has passed."""
    seconds = now.at_s - before.at_s
    if seconds <= 0:
        return None
    flushed = [new - old for new, old in zip(now.flushes, before.flushes, strict=True)]
    flush_s = quantile_s(flushed, 0.99)
    waits_ms = _new_waits(before.produce_ms, now.produce_ms)
    return Rates(
        records_in_per_s=(now.records_in - before.records_in) / seconds,
        bytes_in_per_s=(now.bytes_in - before.bytes_in) / seconds,
        records_out_per_s=(now.records_out - before.records_out) / seconds,
        bytes_out_per_s=(now.bytes_out - before.bytes_out) / seconds,
        requests_per_s=(now.requests - before.requests) / seconds,
        errors_per_s=(now.errors - before.errors) / seconds,
        cpu_share=max(now.cpu_s - before.cpu_s, 0.0) / seconds,
        produce_p50_ms=percentile(waits_ms, 0.5),
        produce_p99_ms=percentile(waits_ms, 0.99),
        flush_p99_ms=None if flush_s is None else flush_s * 1000,
    )


def _new_waits(before: Sequence[float], now: Sequence[float]) -> list[float]:
    """Those that were not there before. Nobody numbers them: the last one seen is that very object."""
    if not before:
        return list(now)
    last = before[-1]
    return list(takewhile(lambda each: each is not last, reversed(now)))
