"""Topics for a load: made, waited for, filled, deleted; on one connection, one request at a time."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import TypeVar

from tailrace.bench.wire.kafka import CLIENT_ID, PRODUCE_VERSION
from tailrace.bench.wire.reader import LoadError
from tailrace.model import ErrorCode
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
from tailrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tailrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CREATE_TOPICS, DELETE_TOPICS, LIST_OFFSETS, METADATA = 19, 20, 2, 3
_VERSIONS = {CREATE_TOPICS: 5, DELETE_TOPICS: 4, LIST_OFFSETS: 1, METADATA: 5}
_TIMEOUT_S = 30.0
_LEADER_POLL_S = 0.02
_REPLY_BYTES_MAX = 1 << 24
_SIZE = struct.Struct(">i")

M = TypeVar("M", bound=Message)


class Admin:
    """A few requests to the one broker at an address."""

    def __init__(self, host: str, port: int) -> None:
        self.sock = connect(host, port)
        self._correlation_id = 0

    def close(self) -> None:
        self.sock.close()

    def ask(self, key: int, request: Message, answer: type[M]) -> M:
        """One request and its answer."""
        version = _VERSIONS[key]
        self._correlation_id += 1
        frame = write_request(key, version, self._correlation_id, CLIENT_ID, encode(request, version))
        self.sock.sendall(frame)
        return decode(answer, version, read_reply(self.sock, key, version))

    def create(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> None:
        """Make a topic, and wait until each partition has its leader."""
        settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        new = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        made = self.ask(
            CREATE_TOPICS, CreateTopicsRequest(topics=[new], timeout_ms=30_000), CreateTopicsResponse
        ).topics[0]
        if made.error_code:
            raise LoadError(f"topic {name}: {ErrorCode(made.error_code).name} {made.error_message or ''}")
        self._wait_led(name, partitions)

    def delete(self, name: str) -> None:
        """Delete a topic; one that is gone is no failure."""
        self.ask(
            DELETE_TOPICS, DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), DeleteTopicsResponse
        )

    def led(self, name: str, *, partitions: int) -> bool:
        """Whether the broker answers for each partition: metadata may name a leader before it leads."""
        asked = [ListOffsetsPartition(partition_index=each, timestamp=-1) for each in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)])
        (topic,) = self.ask(LIST_OFFSETS, request, ListOffsetsResponse).topics
        return not any(part.error_code for part in topic.partitions)

    def _wait_led(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            if self.led(name, partitions=partitions):
                return
            if time.monotonic() > deadline:
                raise LoadError(f"topic {name} has no leader after {_TIMEOUT_S:.0f} s")
            time.sleep(_LEADER_POLL_S)  # there is no request that waits for a leader


@contextlib.contextmanager
def admin(host: str, port: int) -> Iterator[Admin]:
    """An admin that is closed at the end."""
    opened = Admin(host, port)
    try:
        yield opened
    finally:
        opened.close()


def fill(host: str, port: int, *, topic: str, batch: bytes, batches: int) -> int:
    """Put so many copies of a batch into partition 0, each acknowledged; the offset of the first."""
    firsts = []
    with connect(host, port) as sock:
        for _ in range(batches):
            body = b"".join(
                write_produce_request(
                    PRODUCE_VERSION,
                    transactional_id=None,
                    acks=-1,
                    timeout_ms=30_000,
                    topics={topic: {0: batch}},
                )
            )
            sock.sendall(write_request(PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID, body))
            reply = read_reply(sock, PRODUCE, PRODUCE_VERSION)
            result = read_produce_response(reply, PRODUCE_VERSION).topics[0][1][0]
            if result.error_code:
                raise LoadError(f"topic {topic}: {ErrorCode(result.error_code).name}")
            firsts.append(result.base_offset)
    return firsts[0]


def read_reply(sock: socket.socket, key: int, version: int) -> memoryview:
    """The body of the next reply."""
    (size,) = _SIZE.unpack(read_exactly(sock, _SIZE.size))
    if not 0 < size <= _REPLY_BYTES_MAX:
        raise LoadError(f"a reply of {size} bytes")
    return read_response_head(key, version, memoryview(read_exactly(sock, size)))[1]


def connect(host: str, port: int) -> socket.socket:
    """A connection that sends at once what it is given."""
    try:
        sock = socket.create_connection((host, port), _TIMEOUT_S)
    except OSError as error:
        raise LoadError(f"{host}:{port} cannot be reached: {error}. Is the broker up?") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes; LoadError if the peer closes before."""
    data = bytearray()
    while len(data) < size:
        try:
            piece = sock.recv(size - len(data))
        except OSError as error:
            raise LoadError(f"no answer: {error}") from error
        if not piece:
            raise LoadError(f"the peer closed the connection after {len(data)} of {size} bytes")
        data += piece
    return bytes(data)
