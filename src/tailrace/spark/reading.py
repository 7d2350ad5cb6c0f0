"""A range of one partition as Arrow rows, in bounded memory, with the next fetch always under way.

    link's thread      | fetch 2 ......| fetch 3 ......| fetch 4 ...
    caller's thread             | decode and use 1 | decode and use 2 | ...

Where fetch n+1 begins is told by the headers of fetch n alone, so it is asked for before n is decoded. Should
decoding find that the headers lied (a batch that fails its CRC), that fetch is thrown away and made again.

What is in the log is read; what is not is one of these:

    before the log's start   retention or a deletion took it: data loss
    beyond the log's end     the log is shorter than it was, or the topic was created again: data loss
    between records          compacted away, control markers, aborted transactions: nothing to tell

The end of a log is given END_PATIENCE_S to come back before it counts as lost: a broker that has just become
leader may know it a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pyarrow as pa

from tailrace.client.error import UnknownTopic, check
from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import EARLIEST, LATEST
from tailrace.client.pool import Channel
from tailrace.client.transfer import Fetched, fetch_from
from tailrace.model import ErrorCode, TopicPartition
from tailrace.records import BatchError, Walk, pass_over, read_batch
from tailrace.spark.codec import KAFKA_SCHEMA, BadSpan, Piece, decode_pieces
from tailrace.spark.codec.schema import plan_schema
from tailrace.spark.data_loss import DataLoss, lost
from tailrace.spark.link import BrokerLink
from tailrace.spark.offset_range import OffsetRange

FETCH_BYTES = 8 * 1024 * 1024
PIECE_BYTES_MAX = 64 * 1024 * 1024
END_PATIENCE_S = 5.0
_FETCH_WAIT_MS = 500

# Its own connections, so that a fetch that waits delays no other request.
_RANGES = Channel("ranges")


def read_range(
    link: BrokerLink,
    wanted: OffsetRange,
    *,
    headers: bool,
    schema: pa.Schema = KAFKA_SCHEMA,
    read_committed: bool = True,
    fail_on_data_loss: bool = True,
    keeps_bad: bool = False,
    fetch_bytes: int | None = None,
    piece_bytes_max: int = PIECE_BYTES_MAX,
) -> Iterator[Piece]:
    """Pieces in offset order until every record before `wanted.end` was seen.

    Missing records raise DataLoss, or are skipped without `fail_on_data_loss`. A broken batch raises
    BatchError, or is listed in its piece with `keeps_bad`. The last piece's `next_offset` is `wanted.end`.
    """
    reading = _Reading(
        link=link,
        wanted=wanted,
        headers=headers,
        schema=plan_schema(schema, headers=headers),
        read_committed=read_committed,
        fail_on_data_loss=fail_on_data_loss,
        keeps_bad=keeps_bad,
        fetch_bytes=fetch_bytes or FETCH_BYTES,
        piece_bytes_max=piece_bytes_max,
    )
    return reading.pieces()


@dataclass(slots=True)
class _Reply:
    """What a fetch from `position` found; without records it says where the log begins and ends."""

    position: int
    fetched: Fetched | None
    log_start: int = 0
    log_end: int = 0
    is_gone: bool = False
    """There is no such partition."""


@dataclass(slots=True, kw_only=True)
class _Reading:
    """One range on its way; `ahead` is the fetch that comes next."""

    link: BrokerLink
    wanted: OffsetRange
    headers: bool
    schema: pa.Schema
    read_committed: bool
    fail_on_data_loss: bool
    keeps_bad: bool
    fetch_bytes: int
    piece_bytes_max: int
    ahead: Future[_Reply] | None = None
    ahead_position: int = -1

    def pieces(self) -> Iterator[Piece]:
        position = self.wanted.start
        try:
            while position < self.wanted.end:
                reply = self._reply_at(position)
                if reply.fetched is None:
                    position = self._skip_lost(reply)
                    yield self._nothing(position)
                    continue
                self._fetch_ahead(self._end_of(reply.fetched, position))
                for piece in self._decode(reply.fetched, position):
                    position = piece.next_offset
                    yield piece
        finally:
            self._drop_ahead()

    # ---- fetching

    def _reply_at(self, position: int) -> _Reply:
        if self.ahead is None or self.ahead_position != position:
            self._fetch_ahead(position)
        future, self.ahead = self.ahead, None
        assert future is not None
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _fetch_ahead(self, position: int) -> None:
        self._drop_ahead()
        if position < self.wanted.end:
            self.ahead = self.link.start(lambda client: self._wait_records(client, position))
            self.ahead_position = position

    def _drop_ahead(self) -> None:
        if self.ahead is not None:
            self.ahead.cancel()
            self.ahead = None

    async def _wait_records(
        self, client: KafkaClient, position: int, *, bytes_max: int | None = None
    ) -> _Reply:
        """Fetch until there are records, or until it is clear that there will be none."""
        tp = self.wanted.topic_partition
        loop = asyncio.get_running_loop()
        deadline = loop.time() + END_PATIENCE_S
        try:
            while True:
                fetched = await self._fetch(client, position, bytes_max or self.fetch_bytes)
                if fetched is None:
                    start, end = await self._bounds(client, tp)
                    if position < start:
                        return _Reply(position, None, start, end)
                elif len(fetched.records):
                    return _Reply(position, fetched)
                if loop.time() >= deadline:
                    return _Reply(position, None, *await self._bounds(client, tp))
                if fetched is None:
                    await asyncio.sleep(_FETCH_WAIT_MS / 1000)
        except UnknownTopic:
            return _Reply(position, None, is_gone=True)

    async def _fetch(self, client: KafkaClient, position: int, bytes_max: int) -> Fetched | None:
        """One fetch that succeeds; None if the offset is out of the log's range."""
        tp = self.wanted.topic_partition

        async def attempt() -> Fetched | None:
            info = await client.leader(tp)
            replies = await fetch_from(
                client,
                info.leader,
                {tp: position},
                max_wait_ms=_FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=bytes_max,
                partition_max_bytes=bytes_max,
                read_committed=self.read_committed,
                channel=_RANGES,
            )
            fetched = replies[tp]
            if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            check(fetched.error_code, f"reading {tp} at offset {position}")
            return fetched

        return await client.retrying(f"reading {tp} at offset {position}", attempt)

    async def _bounds(self, client: KafkaClient, tp: TopicPartition) -> tuple[int, int]:
        start = await client.list_offsets({tp: EARLIEST})
        end = await client.list_offsets({tp: LATEST}, read_committed=self.read_committed)
        return start[tp].offset, end[tp].offset

    def _end_of(self, fetched: Fetched, position: int) -> int:
        """Where the next fetch begins if this one is sound. CRCs are checked later, with the rows."""
        walk = Walk(position)
        for _ in walk.over(fetched.records, end=self.wanted.end, may_be_cut=True, on_damage=pass_over):
            pass
        return walk.next_offset

    # ---- decoding

    def _decode(self, fetched: Fetched, position: int) -> Iterator[Piece]:
        pieces = decode_pieces(
            fetched.records,
            start=position,
            end=self.wanted.end,
            topic=self.wanted.topic,
            partition=self.wanted.partition,
            headers=self.headers,
            schema=self.schema,
            aborted=fetched.aborted,
            piece_bytes_max=self.piece_bytes_max,
            keeps_bad=self.keeps_bad,
        )
        for piece in pieces:
            bad, next_offset = self._settle(piece, fetched)
            yield Piece(rows=piece.rows, bad=bad, next_offset=next_offset)

    def _settle(self, piece: Piece, fetched: Fetched) -> tuple[list[BadSpan], int]:
        """What is bad in a piece and where to go on.

        A bad batch says itself where it ends, which is not to be believed. The batch behind it tells; where a
        fetch has none, the log is asked.
        """
        if not piece.bad or _first_base(fetched.records[_end(piece.bad[-1]) :]) is not None:
            return piece.bad, piece.next_offset
        *others, last = piece.bad
        base = self._find_sound(max(last.first_offset, self.wanted.start))
        return [*others, replace(last, next_offset=base)], base

    def _find_sound(self, bad_offset: int) -> int:
        """Where the first readable batch after a bad one begins: doubled steps there, halved steps back."""
        low, high, step = bad_offset, self.wanted.end, 1
        while low + step < high:
            base = self._base_at(low + step)
            if base is not None and base > bad_offset:
                high = base
                break
            low, step = low + step, step * 2
        while high - low > 1:
            middle = (low + high) // 2
            base = self._base_at(middle)
            if base is not None and base > bad_offset:
                high = base
            else:
                low = middle
        return high

    def _base_at(self, offset: int) -> int | None:
        """The base offset of the batch that a fetch finds there, if it can be read."""
        reply = self.link.run(lambda client: self._wait_records(client, offset, bytes_max=1))
        return _first_base(reply.fetched.records) if reply.fetched is not None else None

    # ---- loss

    def _skip_lost(self, reply: _Reply) -> int:
        """Where to go on after records that are not there; DataLoss if that is not wanted."""
        tp, position = self.wanted.topic_partition, reply.position
        if reply.is_gone:
            resume, cause = self.wanted.end, "the partition does not exist any more"
        elif position < reply.log_start:
            resume = min(reply.log_start, self.wanted.end)
            cause = f"the log begins at {reply.log_start} now (retention, or a deletion)"
        elif position >= reply.log_end:
            resume = self.wanted.end
            cause = f"the log ends at {reply.log_end} (was the topic created again?)"
        else:  # records came meanwhile
            return position
        if self.fail_on_data_loss:
            raise DataLoss(lost(tp, position, resume, cause))
        return resume

    def _nothing(self, next_offset: int) -> Piece:
        rows = pa.RecordBatch.from_pylist([], schema=self.schema)
        return Piece(rows=rows, bad=[], next_offset=next_offset)


def _end(span: BadSpan) -> int:
    return span.position + span.size


def _first_base(records: memoryview) -> int | None:
    """The base offset of the first batch of a fetch, if there is a whole one and it can be read."""
    if not len(records):
        return None
    try:
        batch = read_batch(records, 0)
    except BatchError:
        return None
    return batch.base_offset if batch.check_crc() else None
