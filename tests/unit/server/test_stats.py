"""Figures for people: rates between two looks at a broker made up here, percentiles, short numbers, bars."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tailrace.broker import Broker, TopicCounters
from tailrace.broker.health import short_number, short_rate
from tailrace.metrics.lag import count_lag
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.server.stats import Observer, percentile, sparkline

NOT_LOADED = BrokerError("loading", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Groups:
    """Committed offsets by group; an error stands for a group that cannot tell."""

    def __init__(self, committed: dict[str, dict[TopicPartition, int] | BrokerError]) -> None:
        self.committed = committed
        self.loading = False

    def list_groups(self) -> list[SimpleNamespace]:
        if self.loading:
            raise NOT_LOADED
        return [SimpleNamespace(group_id=name) for name in self.committed]

    def fetch_offsets(self, group: str, partitions: None) -> dict[TopicPartition, SimpleNamespace]:
        offsets = self.committed[group]
        if isinstance(offsets, BrokerError):
            raise offsets
        return {name: SimpleNamespace(offset=offset) for name, offset in offsets.items()}


class FakeBroker:
    def __init__(
        self,
        ends: dict[tuple[str, int], int] | None = None,
        committed: dict[str, dict[TopicPartition, int] | BrokerError] | None = None,
    ) -> None:
        self.totals = TopicCounters()
        self.counters = SimpleNamespace(totals=lambda: self.totals, produce_ms=[])
        self.subscriptions: list[SimpleNamespace] = []
        self.groups = Groups(committed or {})
        self.ends = ends or {}

    @property
    def gate(self) -> SimpleNamespace:
        return SimpleNamespace(access=lambda _session: SimpleNamespace(readable=self._readable))

    def _readable(self, tp: TopicPartition) -> SimpleNamespace:
        if tp not in self.ends:
            raise BrokerError("gone", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return SimpleNamespace(start_offset=0, high_watermark=self.ends[tp])


def as_broker(fake: FakeBroker) -> Broker:
    return cast(Broker, fake)


def test_the_first_look_has_nothing_to_compare_with() -> None:
    assert Observer(as_broker(FakeBroker())).look(1.0) is None


def test_rates_are_what_was_added_per_second() -> None:
    fake = FakeBroker()
    observer = Observer(as_broker(fake))
    observer.look(10.0)
    fake.totals.records_in, fake.totals.bytes_in = 1000, 50_000
    fake.totals.records_out, fake.totals.bytes_out = 2000, 100_000
    fake.counters.produce_ms = [1.0, 2.0]
    stats = observer.look(12.0)
    assert stats is not None
    assert (stats.records_in, stats.bytes_in) == (500, 25_000)
    assert (stats.records_out, stats.bytes_out) == (1000, 50_000)
    assert stats.produce_p99_ms == 2.0
    quiet = observer.look(13.0)
    assert quiet is not None
    assert quiet.records_in == 0
    assert list(observer.history) == [500, 0]


def test_two_looks_at_one_moment_divide_by_nothing() -> None:
    observer = Observer(as_broker(FakeBroker()))
    observer.look(1.0)
    assert observer.look(1.0) is None


def test_lag_is_what_groups_have_not_committed() -> None:
    fake = FakeBroker(
        ends={("orders", 0): 10, ("orders", 1): 5},
        committed={
            "billing": {TopicPartition("orders", 0): 7, TopicPartition("orders", 1): 5},
            "analytics": {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): -1},
        },
    )
    assert count_lag(as_broker(fake)) == 3 + 10


def test_lag_is_also_what_subscriptions_are_not_done_with() -> None:
    fake = FakeBroker()
    own = SimpleNamespace(source=SimpleNamespace(topic="jobs"), lag=4)
    letters = SimpleNamespace(source=SimpleNamespace(topic="jobs.dead"), lag=9)
    fake.subscriptions = [SimpleNamespace(config=SimpleNamespace(topic="jobs"), partitions=[own, letters])]
    assert count_lag(as_broker(fake)) == 4


def test_groups_that_cannot_tell_and_topics_that_are_gone_do_not_count() -> None:
    fake = FakeBroker(
        ends={("orders", 0): 10},
        committed={
            "loading": NOT_LOADED,
            "late": {TopicPartition("gone", 0): 3, TopicPartition("orders", 0): 12},
        },
    )
    assert count_lag(as_broker(fake)) == 0


@pytest.mark.parametrize(
    ("values", "part", "expected"),
    [
        ([], 0.99, None),
        ([5.0], 0.5, 5.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        (list(range(1, 101)), 0.99, 99),
        ([1.0, 9.0], 1.0, 9.0),
    ],
)
def test_percentile(values: list[float], part: float, expected: float | None) -> None:
    assert percentile(values, part) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7.4, "7"), (512, "512"), (999, "999"), (999.9, "1.0k"), (1000, "1.0k"), (12_345, "12.3k"),
     (123_456, "123k"), (999_900, "1.0M"), (2_300_000, "2.3M"), (5e9, "5.0G")],
)  # fmt: skip
def test_short_numbers(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [(0, "0 KB/s"), (100, "0.1 KB/s"), (9_900, "9.9 KB/s"), (61_000, "61 KB/s"), (1_200_000, "1.2 MB/s"),
     (64e9, "64.0 GB/s")],
)  # fmt: skip
def test_short_rates(bytes_per_s: float, text: str) -> None:
    assert short_rate(bytes_per_s) == text


def test_sparkline_scales_to_its_highest() -> None:
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 50, 100]) == "▁▄█"


def test_while_groups_are_loading_nothing_lags() -> None:
    fake = FakeBroker(ends={("orders", 0): 10}, committed={"g": {TopicPartition("orders", 0): 7}})
    fake.groups.loading = True
    assert count_lag(as_broker(fake)) == 0
    fake.groups.loading = False
    assert count_lag(as_broker(fake)) == 3
