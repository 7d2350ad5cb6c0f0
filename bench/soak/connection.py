"""One request at a time on its own connection, for guests that come and go. Every wait has a deadline."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from tailrace.bench.wire import LoadError
from tailrace.bench.wire.kafka import CLIENT_ID, PRODUCE_VERSION
from tailrace.model import ErrorCode, ProtocolError
from tailrace.wire.kafka import (
    PRODUCE,
    Message,
    decode,
    encode,
    read_produce_response,
    read_response_head,
    write_produce_request,
    write_request,
)

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, API_VERSIONS = 11, 12, 13, 14, 18
CREATE_TOPICS, DELETE_TOPICS = 19, 20

# JoinGroup 2 is the newest that needs no second try with the member id of the first.
VERSIONS = {
    **{LIST_OFFSETS: 1, METADATA: 5, OFFSET_COMMIT: 3, OFFSET_FETCH: 3, FIND_COORDINATOR: 1},
    **{JOIN_GROUP: 2, HEARTBEAT: 1, LEAVE_GROUP: 1, SYNC_GROUP: 1, API_VERSIONS: 0},
    **{CREATE_TOPICS: 5, DELETE_TOPICS: 4},
}
_DEADLINE_S = 30.0
_REPLY_BYTES_MAX = 1 << 24
_SIZE = struct.Struct(">i")

M = TypeVar("M", bound=Message)


class Connection:
    """A connection to the broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._correlation_id = 0

    async def ask(self, key: int, request: Message, answer: type[M]) -> M:
        """One request and its answer."""
        version = VERSIONS[key]
        return decode(answer, version, await self._exchange(key, version, encode(request, version)))

    async def produce(self, batch: bytes, *, topic: str, partition: int) -> int:
        """Append one batch, acknowledged by all replicas; its offset."""
        body = b"".join(
            write_produce_request(
                PRODUCE_VERSION,
                transactional_id=None,
                acks=-1,
                timeout_ms=int(_DEADLINE_S * 1000),
                topics={topic: {partition: batch}},
            )
        )
        reply = read_produce_response(await self._exchange(PRODUCE, PRODUCE_VERSION, body), PRODUCE_VERSION)
        result = reply.topics[0][1][0]
        check(result.error_code, f"produce to {topic}")
        return result.base_offset

    def request(self, key: int, version: int, body: bytes) -> bytes:
        """The next request as bytes, for guests that do not wait for the answer."""
        self._correlation_id += 1
        return write_request(key, version, self._correlation_id, CLIENT_ID, body)

    async def _exchange(self, key: int, version: int, body: bytes) -> memoryview:
        self.writer.write(self.request(key, version, body))
        try:
            async with asyncio.timeout(_DEADLINE_S):
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not 0 < size <= _REPLY_BYTES_MAX:
                    raise LoadError(f"a reply of {size} bytes")
                frame = await self._reader.readexactly(size)
        except TimeoutError:
            raise LoadError(f"API {key} was not answered within {_DEADLINE_S:.0f} s") from None
        except asyncio.IncompleteReadError as error:
            raise LoadError(f"the broker closed the connection in the answer to API {key}") from error
        try:
            correlation_id, rest = read_response_head(key, version, memoryview(frame))
        except ProtocolError as error:
            raise LoadError(f"the answer to API {key}: {error}") from error
        if correlation_id != self._correlation_id:
            raise LoadError(f"correlation id {correlation_id} where {self._correlation_id} was due")
        return rest


@asynccontextmanager
async def connect(host: str, port: int) -> AsyncIterator[Connection]:
    """A connection that is closed at the end."""
    try:
        async with asyncio.timeout(_DEADLINE_S):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        raise LoadError(f"no connection to {host}:{port} within {_DEADLINE_S:.0f} s") from None
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


def check(error_code: int, what: str) -> None:
    """LoadError unless the broker said yes."""
    if error_code:
        known = error_code in ErrorCode._value2member_map_
        raise LoadError(f"{what}: {ErrorCode(error_code).name if known else error_code}")
