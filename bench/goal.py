"""What is to be reached against Apache Kafka in the same run, as a table.

A goal is a ratio, ours over theirs, or a figure of ours alone. Over several loads it is the worst of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.load import CLIENT, LATENCY
from bench.report import Report, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One line of the table. Of a server it has no loads, and the figure is one of its facts."""

    text: str
    figure: str
    limit: float
    at_most: bool = False
    loads: tuple[str, ...] = ()
    ours: str = "tailrace-os"
    theirs: str | None = "kafka"  # None: the figure itself, without a ratio
    unit: str = "x"

    def value(self, report: Report) -> float | None:
        """The worst ratio; None as long as one side is missing everywhere."""
        if not self.loads:
            return self._against(report.fact(self.ours, self.figure), self._their_fact(report))
        ratios = [
            ratio
            for load in self.loads
            if (
                ratio := self._against(report.value(load, self.ours, self.figure), self._theirs(report, load))
            )
            is not None
        ]
        if not ratios:
            return None
        return max(ratios) if self.at_most else min(ratios)

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    @property
    def bound(self) -> str:
        return f"{'<=' if self.at_most else '>='} {self.limit:g} {self.unit}".replace(" x", "x")

    def _theirs(self, report: Report, load: str) -> float | None:
        return None if self.theirs is None else report.value(load, self.theirs, self.figure)

    def _their_fact(self, report: Report) -> float | None:
        return None if self.theirs is None else report.fact(self.theirs, self.figure)

    def _against(self, ours: float | None, theirs: float | None) -> float | None:
        if ours is None or self.theirs is None:
            return ours
        return ours / theirs if theirs else None


_SHAPES = tuple(f"{load.name}-{way}" for load in CLIENT for way in ("in", "out"))
_RATES = tuple(load.name for load in LATENCY)


def _durable(text: str, load: str, figure: str, limit: float, *, at_most: bool = False) -> Goal:
    return Goal(
        text=f"durable on both sides, {text}",
        loads=(load,),
        figure=figure,
        limit=limit,
        at_most=at_most,
        ours="tailrace",
        theirs="kafka-durable",
    )


def _durable_goals() -> Iterator[Goal]:
    for count, times in ((16, 5), (64, 8)):
        text, load = f"{count} producers, 1 partition", f"producers-{count}"
        yield _durable(f"{text}: requests/s", load, "per_s", times)
        yield _durable(f"{text}: p99", load, "p99_ms", 0.15, at_most=True)
    yield _durable("64 producers, 64 partitions: requests/s", "producers-64x64", "per_s", 8)
    yield _durable("one producer: p50", "producers-1", "p50_ms", 0.7, at_most=True)


def _mixed_goals() -> Iterator[Goal]:
    text = "ours durable, theirs not"
    for load, title, times in (("producers-16", "16 producers", 0.8), ("producers-64", "64 producers", 1.2)):
        yield Goal(
            text=f"{text}, {title}: requests/s", loads=(load,), figure="per_s", limit=times, ours="tailrace"
        )
    yield Goal(
        text=f"{text}, one producer: p50",
        loads=("producers-1",),
        figure="p50_ms",
        limit=1.8,
        at_most=True,
        ours="tailrace",
    )


def _relaxed_goals() -> Iterator[Goal]:
    text = "neither durable"
    yield Goal(text=f"{text}, unbatched, 8 x 5: requests/s", loads=("unbatched",), figure="per_s", limit=2)
    yield Goal(
        text=f"{text}, unbatched, 8 x 5: CPU per request",
        loads=("unbatched",),
        figure="cpu_us",
        limit=0.4,
        at_most=True,
    )
    for load, title, cpu in (("produce-16k", "16 KiB", 0.7), ("produce-1m", "1 MB", 0.8)):
        yield Goal(text=f"produce {title}: MB/s", loads=(load,), figure="mb_per_s", limit=1)
        yield Goal(
            text=f"produce {title}: CPU per MB",
            loads=(load,),
            figure="cpu_ms_per_mb",
            limit=cpu,
            at_most=True,
        )
    yield Goal(text="fetch 16 KB: requests/s", loads=("fetch-16k",), figure="per_s", limit=1.8)
    yield Goal(text="fetch 1 MB: MB/s", loads=("fetch-1m-1", "fetch-1m-4"), figure="mb_per_s", limit=1)


def _client_goals() -> Iterator[Goal]:
    yield Goal(text="real client, worst shape: records/s", loads=_SHAPES, figure="per_s", limit=0.95)
    yield Goal(
        text="real client, worst shape: CPU per record",
        loads=_SHAPES,
        figure="cpu_us",
        limit=0.5,
        at_most=True,
    )
    for figure, title in (("p50_ms", "p50"), ("p99_ms", "p99")):
        yield Goal(
            text=f"end to end, worst rate: {title}", loads=_RATES, figure=figure, limit=0.7, at_most=True
        )


def _server_goals() -> Iterator[Goal]:
    yield Goal(
        text="memory idle",
        figure="idle_rss_mb",
        limit=60,
        at_most=True,
        ours="tailrace",
        theirs=None,
        unit="MB",
    )
    yield Goal(text="memory loaded", figure="loaded_rss_mb", limit=0.15, at_most=True)
    yield Goal(text="time to ready", figure="ready_s", limit=0.15, at_most=True, ours="tailrace")
    yield Goal(
        text="fairness: one record beside 4 x 1 MB: p99",
        loads=("fairness",),
        figure="p99_ms",
        limit=20,
        at_most=True,
        theirs=None,
        unit="ms",
    )


GOALS = (*_durable_goals(), *_mixed_goals(), *_relaxed_goals(), *_client_goals(), *_server_goals())


def judge(report: Report, goals: Sequence[Goal] = GOALS) -> list[Row]:
    """Every goal with what was reached; None where it was not measured."""
    rows: list[Row] = []
    for goal in goals:
        value = goal.value(report)
        met = None if value is None else goal.is_met(value)
        rows.append({"text": goal.text, "value": value, "unit": goal.unit, "bound": goal.bound, "met": met})
    return rows
