"""What a report says of a lake: the figures of its partitions put together, topic by topic; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tailrace.model import TopicPartition
from tailrace.spark.lake import BadRange, DataFile, Snapshot
from tailrace.spark.pipelines.report_measure import KEYS_SHOWN, Figures, Span

SMALL_FILE_BYTES = 32 * 1024 * 1024
WINDOWS_MAX = 60
_S = 1_000_000
_DAY = 86_400 * _S
_LENGTHS_US = (
    *(each * _S for each in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(each * 3600 * _S for each in (1, 2, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14, 30, 91, 182, 365)),
)
_SKEW_US = _DAY  # a record from farther in the future than this has a wrong clock, and does not set the scale


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """One partition of a topic."""

    partition: int
    rows: int
    record_bytes: int
    end: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """One topic of a lake."""

    topic: str
    rows: int
    record_bytes: int  # of keys, values and headers
    record_bytes_max: int
    files: int
    files_small: int
    file_bytes: int
    days: Sequence[str]
    earliest_us: int | None
    latest_us: int | None
    null_keys: int
    tombstones: int
    with_headers: int
    header_names: Mapping[str, int]
    late: int
    late_us_max: int
    outside: int  # timestamps that the windows do not reach: none at all, or of a wrong clock
    sizes: Sequence[int]
    span: Span
    window_rows: Sequence[int]
    window_bytes: Sequence[int]
    partitions: Sequence[PartitionSummary]
    keys: Sequence[tuple[bytes, int]]
    keys_distinct: int | None
    bad: Sequence[BadRange]
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSummary:
    """A lake, or what was asked for of it."""

    root: str
    format: str
    version: int
    topics: Sequence[TopicSummary]
    bootstrap: str | None
    is_complete: bool = True

    @property
    def rows(self) -> int:
        return sum(topic.rows for topic in self.topics)


def plan_span(files: Sequence[DataFile], *, now_us: int) -> Span:
    """Windows over the times of some files: at most WINDOWS_MAX, of a length that people use."""
    latest = now_us + _SKEW_US
    sound = [file for file in files if file.max_timestamp_us >= 0 and file.min_timestamp_us <= latest]
    start = min((max(file.min_timestamp_us, _day_us(file)) for file in sound), default=0)
    end = max((min(file.max_timestamp_us, latest) for file in sound), default=start)
    length = next((each for each in _LENGTHS_US if (end - start) // each + 1 < WINDOWS_MAX), None)
    if length is None:
        length = ((end - start) // WINDOWS_MAX // _DAY + 1) * _DAY
    first = start // length * length
    return Span(start_us=first, window_us=length, windows=max((end - first) // length + 1, 1))


def _day_us(file: DataFile) -> int:
    """The beginning of a file's day: a record without a time is put into a day of long ago."""
    try:
        day = datetime.fromisoformat(file.day).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(day.timestamp()) * _S


def summarize(
    snapshot: Snapshot,
    topic: str,
    figures: Sequence[Figures],
    *,
    span: Span,
    latest: Mapping[TopicPartition, int] | None,
) -> TopicSummary:
    """All that is known of a topic; `latest` is where its partitions end at the broker."""
    files = [file for file in snapshot.files if file.topic == topic]
    times = [file.min_timestamp_us for file in files], [file.max_timestamp_us for file in files]
    partitions = _partitions(snapshot, topic, figures, latest)
    lags = [each.lag for each in partitions if each.lag is not None]
    return TopicSummary(
        topic=topic,
        rows=sum(each.rows for each in figures),
        record_bytes=sum(each.record_bytes for each in figures),
        record_bytes_max=max((each.record_bytes_max for each in figures), default=0),
        files=len(files),
        files_small=sum(file.bytes < SMALL_FILE_BYTES for file in files),
        file_bytes=sum(file.bytes for file in files),
        days=sorted({file.day for file in files}),
        earliest_us=min(times[0], default=None),
        latest_us=max(times[1], default=None),
        null_keys=sum(each.null_keys for each in figures),
        tombstones=sum(each.tombstones for each in figures),
        with_headers=sum(each.with_headers for each in figures),
        header_names=_sum_counts([each.header_names for each in figures]),
        late=sum(each.late for each in figures),
        late_us_max=max((each.late_us_max for each in figures), default=0),
        outside=sum(each.outside for each in figures),
        sizes=_sum_columns([each.sizes for each in figures]),
        span=span,
        window_rows=_sum_columns([each.window_rows for each in figures]),
        window_bytes=_sum_columns([each.window_bytes for each in figures]),
        partitions=partitions,
        keys=_top_keys(figures),
        keys_distinct=_distinct(figures),
        bad=[each for each in snapshot.bad if each.topic == topic],
        lag=sum(lags) if lags else None,
    )


def _partitions(
    snapshot: Snapshot,
    topic: str,
    figures: Sequence[Figures],
    latest: Mapping[TopicPartition, int] | None,
) -> list[PartitionSummary]:
    counted = {each.partition: each for each in figures}
    ends = {each.partition: end for each, end in snapshot.ends.items() if each.topic == topic}
    found = []
    for partition in sorted(counted.keys() | ends.keys()):
        there = None if latest is None else latest.get(TopicPartition(topic, partition))
        end = ends.get(partition, 0)
        mine = counted.get(partition)
        found.append(
            PartitionSummary(
                partition=partition,
                rows=0 if mine is None else mine.rows,
                record_bytes=0 if mine is None else mine.record_bytes,
                end=end,
                lag=None if there is None else max(there - end, 0),
            )
        )
    return found


def _top_keys(figures: Sequence[Figures]) -> list[tuple[bytes, int]]:
    counts: dict[bytes, int] = {}
    for each in figures:
        for key, count in each.keys:
            counts[key] = counts.get(key, 0) + count
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:KEYS_SHOWN]


def _distinct(figures: Sequence[Figures]) -> int | None:
    """Keys live in one partition each, as producers choose by them; elsewhere this counts some twice."""
    if any(each.keys_distinct is None for each in figures):
        return None
    return sum(each.keys_distinct or 0 for each in figures)


def _sum_counts(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0])))


def _sum_columns(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def size_quantile(sizes: Sequence[int], share: float, *, largest: int) -> int | None:
    """A size that this share of the records does not exceed, as exact as powers of two are; None of none.

    A bucket may reach beyond the largest record, and the answer does not.
    """
    total, seen = sum(sizes), 0
    for bucket, count in enumerate(sizes):
        seen += count
        if total and seen >= share * total:
            return min(1 << bucket, largest)
    return None
