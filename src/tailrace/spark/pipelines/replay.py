"""Replay: the records of a lake back into a topic, with the keys, values, headers and timestamps they had.

    lake -> lanes -> [ slice: tasks read and produce for some seconds -> how far they came ] ... -> topic

The target is written by replays of one kind alone. Each of its partitions holds the beginning of a fixed
sequence of rows (replay_plan.py), so its end says how far the replay has come: a run that was killed goes on
there, and a run that is repeated adds nothing. What is there is compared before anything is added, and
another writer is an error (replay_task.py).

With `partitions="same"` rows go into the partitions they were in, and a lake that has grown since continues
the replay. With a number they are spread by their keys in one order made of all partitions: one task does
it, and going on needs the same rows as before, so give `until` where the lake still grows. With a `speed`
records keep their distances in time; there too one task has all partitions side by side.

The run ends at the end of a slice when it is asked to stop.
"""

from __future__ import annotations

import concurrent.futures
import difflib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.model import ConfigError, TailraceError
from tailrace.spark.lake import Snapshot, open_table
from tailrace.spark.link import link_to
from tailrace.spark.pipelines.progress import Observer, Pace, Progress, ignore
from tailrace.spark.pipelines.replay_plan import (
    Lane,
    Share,
    ShareDone,
    count_partitions,
    count_rows,
    parse_partitions,
    parse_speed,
    plan_lanes,
    plan_rest,
    plan_selection,
    plan_shares,
    plan_skip,
)
from tailrace.spark.pipelines.replay_target import Wanted, prepare_target
from tailrace.spark.pipelines.replay_task import OtherRecords, apply_share, read_ends
from tailrace.spark.pipelines.spread import count_cores, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICE_S = 10.0
"""How long tasks work before the driver hears of them, and may stop."""

_POLL_S = 1.0
_QUIET_S = 1.0  # for so long nothing must arrive in a target that is gone on with
_QUIET_TRIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayConfig:
    """What is replayed, and where to. Times are ISO 8601, UTC unless they say otherwise."""

    bootstrap: str = "127.0.0.1:9092"
    lake: str
    topic: str
    to_topic: str | None = None  # by default the topic's name with -replay
    since: str | None = None
    until: str | None = None  # a record of just this time is not replayed
    since_offset: int | None = None
    until_offset: int | None = None  # nor the one at this offset
    key: str | None = None
    speed: str = "max"  # or 1x, 10x: records keep their distances in time, so many times as fast
    partitions: int | str = "same"  # or a number: by key, as Kafka's clients do it


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPartition:
    """What became of one partition of the target."""

    partition: int
    rows: int  # that this run added
    skipped: int  # that were there before
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a run reached."""

    topic: str
    to_topic: str
    partitions: Sequence[ReplayedPartition]
    rows: int
    skipped: int
    seconds: float
    is_complete: bool  # not if it was stopped before


def replay(
    config: ReplayConfig,
    *,
    spark: SparkSession,
    observe: Observer = ignore,
    stop: threading.Event | None = None,
) -> Replayed:
    """Replay what the config selects, or what is left of it."""
    run = _Run(config, spark=spark, observe=observe, stop=stop or threading.Event())
    return run.run()


class _Run:
    """One run; what it knows of the target after each slice."""

    def __init__(
        self, config: ReplayConfig, *, spark: SparkSession, observe: Observer, stop: threading.Event
    ) -> None:
        self._config = config
        self._selection = plan_selection(
            since=config.since,
            until=config.until,
            since_offset=config.since_offset,
            until_offset=config.until_offset,
            key=config.key,
        )
        self._speed = parse_speed(config.speed)
        self._fan = parse_partitions(config.partitions)
        self._to_topic = config.to_topic or f"{config.topic}-replay"
        self._spark, self._observe, self._stop = spark, observe, stop
        self._link = link_to(config.bootstrap)
        self._pace = Pace()
        self._slices = 0
        self._total: int | None = None
        self._began: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def run(self) -> Replayed:
        began_s = time.monotonic()
        _check_attempts(self._spark)
        with closing(open_table(self._config.lake)) as table:
            snapshot, root = table.snapshot(), str(table.root)
        partitions = _check_topic(snapshot, self._config.topic, lake=self._config.lake)
        lanes = plan_lanes(snapshot, self._config.topic, self._selection)
        self._began = self._prepare(lanes, partitions)
        self._ends = dict(self._began)
        left = self._plan(lanes, root=root)
        self._total = count_rows(lanes, self._selection)
        while left.lanes and not self._stop.is_set():
            done = self._slice(left)
            left = plan_rest(left, done)
            self._slices += 1
            self._tell(self._read_ends(self._began))
        return self._result(is_complete=not left.lanes, seconds=time.monotonic() - began_s)

    # ---- before

    def _prepare(self, lanes: Sequence[Lane], partitions: int) -> dict[int, int]:
        """Have a target, and wait until what a killed run may still have had under way is there."""
        times = [file.min_timestamp_us for lane in lanes for file in lane.files]
        wanted = Wanted(
            topic=self._to_topic,
            partitions=self._fan or partitions,
            exactly=self._fan is not None,
            oldest_us=min(times, default=None),
        )
        now_ms = time.time_ns() // 1_000_000
        ends = self._link.run(lambda client: prepare_target(client, wanted, now_ms=now_ms))
        if any(ends.values()):
            ends = self._wait_quiet(ends)
        expected = {lane.partition for lane in lanes} if self._fan is None else set(range(self._fan))
        for partition, end in ends.items():
            if end and partition not in expected:
                raise OtherRecords(self._to_topic, f"none belong to partition {partition}, which has {end}")
        return {partition: ends[partition] for partition in sorted(expected)}

    def _wait_quiet(self, ends: dict[int, int]) -> dict[int, int]:
        for _ in range(_QUIET_TRIES):
            if self._stop.wait(_QUIET_S):
                return ends
            now = self._read_ends(ends)
            if now == ends:
                return ends
            ends = now
        raise TailraceError(
            f"somebody writes to topic {self._to_topic} right now: stop that run first, or choose another"
            " topic with --to-topic"
        )

    def _plan(self, lanes: Sequence[Lane], *, root: str) -> Share:
        """All of the work, without the files that are known to be in the target."""
        counts = dict.fromkeys(self._began, 0)
        if self._fan is None:
            skips = [plan_skip(lane, self._selection, self._began[lane.partition]) for lane in lanes]
            lanes = [lane for lane, _ in skips]
            counts = {lane.partition: passed for lane, passed in skips}
        return Share(
            bootstrap=self._config.bootstrap,
            root=root,
            topic=self._to_topic,
            from_topic=self._config.topic,
            selection=self._selection,
            lanes=tuple(lanes),
            counts=counts,
            fan=self._fan,
            speed=self._speed,
            seconds_max=SLICE_S,
        )

    # ---- slices

    def _slice(self, left: Share) -> list[ShareDone]:
        """Run a slice. Spark tells nothing of a job while it runs, so the target is asked meanwhile."""
        shares = plan_shares(left, tasks=count_cores(self._spark))
        jobs = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="tailrace-replay")
        try:
            job = jobs.submit(spread, self._spark, apply_share, shares, result=ShareDone)
            while not concurrent.futures.wait([job], timeout=_POLL_S).done:
                self._tell(self._read_ends(self._began))
            return job.result()
        finally:
            jobs.shutdown(wait=False)

    def _read_ends(self, partitions: Iterable[int]) -> dict[int, int]:
        return self._link.run(lambda client: read_ends(client, self._to_topic, partitions))

    def _tell(self, ends: Mapping[int, int]) -> None:
        added = sum(ends.values()) - sum(self._ends.values())
        self._ends = dict(ends)
        self._pace.add(added)
        lag = None if self._total is None else max(self._total - sum(ends.values()), 0)
        self._observe(
            Progress(
                pipeline="replay",
                batch=self._slices,
                rows=self._pace.rows,
                rows_per_s=self._pace.rows_per_s,
                lag=lag,
                offsets={self._to_topic: dict(ends)},
                eta_s=self._pace.eta_s(lag) if self._speed is None else None,
                note="" if self._speed is None else f"at {self._speed:g}x",
            )
        )

    def _result(self, *, is_complete: bool, seconds: float) -> Replayed:
        parts = [
            ReplayedPartition(
                partition=partition,
                rows=self._ends[partition] - there,
                skipped=there,
                end=self._ends[partition],
            )
            for partition, there in sorted(self._began.items())
        ]
        return Replayed(
            topic=self._config.topic,
            to_topic=self._to_topic,
            partitions=parts,
            rows=sum(part.rows for part in parts),
            skipped=sum(part.skipped for part in parts),
            seconds=seconds,
            is_complete=is_complete,
        )


def _check_attempts(spark: SparkSession) -> None:
    """Refuse a Spark that was set up elsewhere so that it runs a task twice at once: both would write."""
    if spark.conf.get("spark.speculation", "false") == "true":
        raise ConfigError(
            "replay: this Spark may run a task twice at once, and both would write to the topic."
            " Set spark.speculation=false there"
        )


def _check_topic(snapshot: Snapshot, topic: str, *, lake: str) -> int:
    """How many partitions the topic had; ConfigError with what is there, if it is not in the lake."""
    partitions = count_partitions(snapshot, topic)
    if partitions:
        return partitions
    there = sorted({each.topic for each in snapshot.ends} | {file.topic for file in snapshot.files})
    near = difflib.get_close_matches(topic, there, n=1)
    hint = (
        f"did you mean {near[0]}?" if near else "there is " + (", ".join(there[:20]) or "nothing in it yet")
    )
    raise ConfigError(f"replay: topic {topic} is not in the lake {lake}: {hint}")
