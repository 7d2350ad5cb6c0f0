"""What a worker of a replay does: it reads rows from the lake and produces those that the target lacks.

How many rows a target partition holds is asked anew by every attempt of every task, so an attempt that comes
after one that died goes on where that one got to. Before the first new row the last one that is there is
compared with the row it should be. Every reply must have the offset that follows: another writer is noticed
with the first batch. (A row that he wrote cannot be taken back: the topic is then to be deleted.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.client.offsets import LATEST
from tailrace.model import TailraceError, TopicPartition
from tailrace.records import Compression
from tailrace.spark.codec import partition_rows
from tailrace.spark.encryption import name_origin
from tailrace.spark.lake import scan_files
from tailrace.spark.link import BrokerLink, link_to
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.pipelines.replay_merge import Merged, Stretch, TimeMerge
from tailrace.spark.pipelines.replay_pace import plan_step
from tailrace.spark.pipelines.replay_plan import Epoch, Lane, LaneAt, Share, ShareDone
from tailrace.spark.producing import BatchProducer, ForeignWriter
from tailrace.spark.reading import read_range

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

SCAN_ROWS = 8192
_COLUMNS = ("key", "value", "offset", "timestamp", "headers")
_COMPARED = ("key", "value", "timestamp", "headers")
_ROW_BYTES_MAX = 64 * 1024 * 1024  # a row that was in a topic may be in one again, if that takes it


class OtherRecords(TailraceError):
    """The target holds something else than the beginning of this replay."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(
            f"topic {topic} has other records than this replay: {why}. Choose another with --to-topic"
        )


def apply_share(share: Share) -> ShareDone:
    """Produce what a share holds, until it is done or its time is over."""
    link = link_to(share.bootstrap)
    with BatchProducer(link, compression=Compression.LZ4, request_bytes_max=_ROW_BYTES_MAX) as producer:
        return Replaying(share, link=link, producer=producer).run()


@dataclass(slots=True, kw_only=True)
class _Target:
    """One partition of the target: its end, and how many rows of its sequence were gone through."""

    partition: int
    end: int
    count: int
    sent: int = 0
    skipped: int = 0


@dataclass(slots=True)
class Replaying:
    """One attempt at a share."""

    share: Share
    link: BrokerLink = field(kw_only=True)
    producer: BatchProducer = field(kw_only=True)
    now: Callable[[], float] = field(kw_only=True, default=time.time)
    wait: Callable[[float], None] = field(kw_only=True, default=time.sleep)
    _targets: dict[int, _Target] = field(init=False, default_factory=dict)
    _until_s: float = field(init=False, default=0.0)
    _epoch: Epoch | None = field(init=False, default=None)

    def run(self) -> ShareDone:
        """The whole attempt."""
        share = self.share
        self._until_s = self.now() + share.seconds_max
        self._epoch = share.epoch
        ends = self.link.run(lambda client: read_ends(client, share.topic, share.counts))
        for partition, count in share.counts.items():
            if ends[partition] < count:
                raise OtherRecords(share.topic, f"partition {partition} lost some while it ran")
            self._targets[partition] = _Target(partition=partition, end=ends[partition], count=count)
            self.producer.expect(TopicPartition(share.topic, partition), ends[partition])
        lanes = self._merged() if share.merges else [self._alone(lane) for lane in share.lanes]
        self._flush()
        if share.merges and all(lane.is_done for lane in lanes):
            for target in self._targets.values():
                self._check_nothing_else(target)
        return ShareDone(
            lanes=lanes,
            counts={each.partition: each.count for each in self._targets.values()},
            sent={each.partition: each.sent for each in self._targets.values()},
            skipped={each.partition: each.skipped for each in self._targets.values()},
            epoch=self._epoch,
        )

    def _is_late(self) -> bool:
        return self.now() >= self._until_s

    # ---- lanes one after the other

    def _alone(self, lane: Lane) -> LaneAt:
        at = LaneAt(partition=lane.partition, start=lane.start, floor_us=lane.floor_us, is_done=False)
        target = self._targets[lane.partition]
        if self._is_late() and lane is not self.share.lanes[0]:
            return at
        for stretch in read_lane(self.share, lane):
            self._pass(target, stretch.rows)
            at = replace(at, start=stretch.next_offset)
            if self._is_late():  # not before: however slow this is, the first lane gets on
                return at
        self._check_nothing_else(target)
        return replace(at, is_done=True)

    # ---- lanes side by side

    def _merged(self) -> list[LaneAt]:
        lanes = self.share.lanes
        at = [LaneAt(partition=x.partition, start=x.start, floor_us=x.floor_us, is_done=False) for x in lanes]
        merge = TimeMerge(
            [read_lane(self.share, lane) for lane in lanes],
            floors_us=[lane.floor_us for lane in lanes],
            starts=[lane.start for lane in lanes],
            is_late=self._is_late,
        )
        for merged in merge:
            done = self._pass_merged(merged)
            _move_on(at, merged, done)
            if done < merged.rows.num_rows:
                return at
        for lane, (start, is_over) in merge.looked_through().items():
            at[lane] = replace(at[lane], start=max(start, at[lane].start), is_done=is_over)
        return at

    def _pass_merged(self, merged: Merged) -> int:
        """Let rows leave when they are due; how many did before the time was over."""
        targets = self._target_of_rows(merged)
        if self.share.speed is None:
            self._pass_all(merged.rows, targets)
            return len(merged.due_us)
        at = self._pass_known(merged.rows, targets)
        while at < merged.rows.num_rows:
            if self._epoch is None:
                self._epoch = Epoch(wall_s=self.now(), event_us=int(merged.due_us[at]))
            step = plan_step(
                merged.due_us[at:],
                epoch=self._epoch,
                speed=self.share.speed,
                now_s=self.now(),
                until_s=self._until_s,
            )
            if step.count:
                self._pass_all(merged.rows.slice(at, step.count), targets[at : at + step.count])
                self._flush()  # now, and not when a batch is full
                at += step.count
            elif step.wait_s > 0:
                self.wait(step.wait_s)
            if self._is_late():
                break
        return at

    def _pass_known(self, rows: pa.RecordBatch, targets: Any) -> int:
        """Go through the rows at the beginning that the target has: nobody waits for those."""
        known = np.zeros(len(targets), bool)
        for target in self._targets.values():
            mine = np.flatnonzero(targets == target.partition)
            known[mine[: max(target.end - target.count, 0)]] = True
        unknown = np.flatnonzero(~known)
        count = int(unknown[0]) if len(unknown) else len(targets)
        self._pass_all(rows.slice(0, count), targets[:count])
        return count

    def _target_of_rows(self, merged: Merged) -> Any:
        """The partition each row goes to. One without a key stays with those it came with."""
        came_from = np.array([lane.partition for lane in self.share.lanes])[merged.lanes]
        if self.share.fan is None:
            return came_from
        keys = merged.rows.column("key")
        by_key = partition_rows(keys, self.share.fan)
        is_null = keys.is_null().to_numpy(zero_copy_only=False)
        return np.where(is_null, came_from % self.share.fan, by_key)

    # ---- to the target

    def _pass_all(self, rows: pa.RecordBatch, targets: Any) -> None:
        for partition in np.unique(targets).tolist():
            mine = np.flatnonzero(targets == partition)
            chosen = rows if len(mine) == rows.num_rows else rows.take(pa.array(mine))
            self._pass(self._targets[partition], chosen)

    def _pass(self, target: _Target, rows: pa.RecordBatch) -> None:
        """Go through the next rows of a partition: those that it has are skipped, the others produced."""
        skip = min(max(target.end - target.count, 0), rows.num_rows)
        target.count += rows.num_rows
        if skip:
            target.skipped += skip
            if target.count - rows.num_rows + skip == target.end:
                self._compare(target, rows.slice(skip - 1, 1))
        if skip < rows.num_rows:
            target.sent += rows.num_rows - skip
            self._send(target, rows.slice(skip))

    def _send(self, target: _Target, rows: pa.RecordBatch) -> None:
        try:
            self.producer.send(self.share.topic, target.partition, rows)
        except ForeignWriter as error:
            raise _spoilt(error, self.share.topic) from error

    def _flush(self) -> None:
        try:
            self.producer.flush()
        except ForeignWriter as error:
            raise _spoilt(error, self.share.topic) from error

    def _compare(self, target: _Target, expected: pa.RecordBatch) -> None:
        """The last record that is there is the row that should be there."""
        last = OffsetRange(
            topic=self.share.topic, partition=target.partition, start=target.end - 1, end=target.end
        )
        there = [piece.rows for piece in read_range(self.link, last, headers=True) if piece.rows.num_rows]
        row = _as_row(there[0]) if there else None
        if row != _as_row(expected):
            raise OtherRecords(
                self.share.topic, f"the one at {target.partition}:{target.end - 1} is not of this replay"
            )

    def _check_nothing_else(self, target: _Target) -> None:
        """To be called when a sequence is over: there is no more in the target than it has."""
        if target.count < target.end:
            raise OtherRecords(
                self.share.topic,
                f"partition {target.partition} has {target.end}, this replay only {target.count}",
            )


def read_lane(share: Share, lane: Lane) -> Iterator[Stretch]:
    """The rows of a lane that are selected, in offset order."""
    selection = share.selection
    for batch in scan_files(
        share.root,
        lane.files,
        columns=_COLUMNS,
        since_us=selection.since_us,
        until_us=selection.until_us,
        since_offset=lane.start,
        until_offset=selection.until_offset,
        batch_rows=SCAN_ROWS,
    ):
        rows = batch if selection.key is None else _with_key(batch, selection.key)
        if share.from_topic and share.from_topic != share.topic:
            rows = name_origin(rows, share.from_topic)
        yield Stretch(rows=rows, next_offset=batch.column("offset")[-1].as_py() + 1)


def _with_key(batch: pa.RecordBatch, key: bytes) -> pa.RecordBatch:
    return batch.filter(pc.fill_null(pc.equal(batch.column("key"), key), False))


async def read_ends(client: KafkaClient, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Where the partitions of the target end."""
    wanted = {TopicPartition(topic, partition): LATEST for partition in partitions}
    found = await client.list_offsets(wanted)
    return {each.partition: found[each].offset for each in wanted}


def _move_on(at: list[LaneAt], merged: Merged, done: int) -> None:
    """Note how far the first `done` merged rows reach in each lane."""
    offsets = merged.rows.column("offset").to_numpy(zero_copy_only=False)
    for lane in np.unique(merged.lanes[:done]).tolist():
        last = int(np.flatnonzero(merged.lanes[:done] == lane)[-1])
        at[lane] = replace(at[lane], start=int(offsets[last]) + 1, floor_us=int(merged.due_us[last]))


def _as_row(rows: pa.RecordBatch) -> dict[str, object]:
    row = {name: rows.column(name)[0] for name in _COMPARED if name != "timestamp"}
    told: dict[str, object] = {name: value.as_py() for name, value in row.items()}
    # A number, since a timestamp may lie outside of what Python's years reach.
    told["timestamp"] = rows.column("timestamp").cast(pa.int64())[0].as_py()
    return told


def _spoilt(error: ForeignWriter, topic: str) -> TailraceError:
    return TailraceError(
        f"{error}. A replay must be alone in its topic: delete {topic} and run it again, or choose another"
        " with --to-topic"
    )
