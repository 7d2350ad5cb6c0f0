"""A reader that waits at the end of one partition: long-polling fetches, one at a time.

It checks that offsets follow each other without a gap; records themselves are not decoded. Of a batch it
reads the base offset, the length and the last offset delta:

    base_offset:8 | length:4 | leader_epoch:4 | magic:1 | crc:4 | attributes:2 | last_offset_delta:4 | ...
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from tailrace.bench.wire import LoadError
from tailrace.bench.wire.kafka import CLIENT_ID, FETCH_VERSION
from tailrace.model import ErrorCode, ProtocolError
from tailrace.wire.kafka import (
    FETCH,
    FetchPartition,
    read_fetch_response,
    read_response_head,
    write_fetch_request,
    write_request,
)

FETCH_BYTES_MAX = 1 << 20
_REPLY_BYTES_MAX = FETCH_BYTES_MAX + (1 << 16)  # a first batch is sent whole, and is smaller than the margin
_WAIT_MS = 500
_SIZE = struct.Struct(">i")
_BATCH = struct.Struct(">qi11xi")
_BATCH_HEAD_BYTES = 12  # what the length does not count


class Consumer(asyncio.Protocol):
    """One connection, one partition; `fail` is told why it cannot go on."""

    def __init__(self, *, topic: str, partition: int, position: int, fail: Callable[[str], None]) -> None:
        self._topic, self._partition, self._fail = topic, partition, fail
        self._buffer = bytearray()
        self._correlation_id = 0
        self._stopped = False
        self._wanted: int | None = None
        self._reached = asyncio.Event()
        self.position = position
        self.fetches = 0
        self.fetched_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._stopped:
            self._end(f"a consumer's connection ended: {error or 'the broker closed it'}")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            frame = self._frame()
            if frame is not None:
                self._take(frame)
        except (LoadError, ProtocolError) as error:
            self._end(f"a consumer of partition {self._partition}: {error}")

    async def wait_position(self, offset: int) -> None:
        """Until it has read everything below this offset, or cannot go on."""
        self._wanted = offset
        if self.position < offset and not self._stopped:
            await self._reached.wait()

    def close(self) -> None:
        self._stopped = True
        self._transport.close()

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer)
        if not 0 < size <= _REPLY_BYTES_MAX:
            raise LoadError(f"a reply of {size} bytes")
        if len(self._buffer) < _SIZE.size + size:
            return None
        frame = bytes(self._buffer[_SIZE.size : _SIZE.size + size])
        del self._buffer[: _SIZE.size + size]
        return frame

    def _take(self, frame: bytes) -> None:
        correlation_id, body = read_response_head(FETCH, FETCH_VERSION, memoryview(frame))
        if correlation_id != self._correlation_id:
            raise LoadError(f"correlation id {correlation_id} where {self._correlation_id} was due")
        reply = read_fetch_response(body, FETCH_VERSION)
        error = reply.error_code or reply.topics[0][1][0].error_code
        if error:
            raise LoadError(f"{ErrorCode(error).name} at offset {self.position}")
        records = reply.topics[0][1][0].records
        if records:
            self.position = position_after(records, self.position)
            self.fetched_bytes += len(records)
        self.fetches += 1
        if self._wanted is not None and self.position >= self._wanted:
            self._reached.set()
        if not self._stopped:
            self._ask()

    def _ask(self) -> None:
        self._correlation_id += 1
        where = FetchPartition(self._partition, -1, self.position, -1, -1, FETCH_BYTES_MAX)
        body = write_fetch_request(
            FETCH_VERSION, topics={self._topic: [where]}, max_wait_ms=_WAIT_MS, max_bytes=FETCH_BYTES_MAX
        )
        self._transport.write(write_request(FETCH, FETCH_VERSION, self._correlation_id, CLIENT_ID, body))

    def _end(self, why: str) -> None:
        self._stopped = True
        self._reached.set()
        self._transport.abort()
        self._fail(why)


def position_after(records: memoryview, position: int) -> int:
    """Where the next fetch goes on; LoadError if the batches do not follow each other from `position` on."""
    at, end = 0, len(records)
    while end - at >= _BATCH.size:
        base, length, last_delta = _BATCH.unpack_from(records, at)
        if base != position or last_delta < 0 or length <= 0:
            raise LoadError(
                f"a batch at offset {base} with {last_delta + 1} records, where {position} was due"
            )
        if at + _BATCH_HEAD_BYTES + length > end:
            break  # the last batch may be cut off
        position += last_delta + 1
        at += _BATCH_HEAD_BYTES + length
    return position
