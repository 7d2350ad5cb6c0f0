"""Quotas of Kafka clients (KIP-13, KIP-124), where any are set: requests are charged, and clients wait.

A request is answered at once, with `throttle_time_ms` where its response has that, and the connection is not
read for that time (KIP-219): clients that ignore the field are slowed all the same. Produce is charged by the
size of the request, Fetch by the size of the answer, and each request by the time that it kept the broker's
thread. The messages of a login are not charged: the client is not known yet.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from tailrace.wire.kafka import APIS, FETCH, PRODUCE, response_type, write_response_head
from tailrace.wire.kafka.schema import fields_of

if TYPE_CHECKING:
    from tailrace.kafka.connection import Connection
    from tailrace.kafka.replies import Pending, Pieces, Reply
    from tailrace.net.metering import Meter

_HEAD: Final = struct.Struct(">hhih")
_CLIENT_ID_AT: Final = 10
_INT32: Final = struct.Struct(">i")
_LOGIN: Final = frozenset({17, 36})  # SaslHandshake, SaslAuthenticate


def serve_metered(
    connection: Connection, frame: memoryview, serve: Callable[..., Reply | None], *, owned: bool
) -> Reply | None:
    """Serve one request and charge it; the connection is held if its client has used its quota up."""
    size = len(frame)
    key, version, meter = _meter_of(connection, frame)
    if meter is None:
        return serve(connection, frame, owned=owned)
    monotonic = connection.service.clock.monotonic
    started = monotonic()
    usual, connection.fetch_bytes_max = (
        connection.fetch_bytes_max,
        min(connection.fetch_bytes_max, meter.fetch_bytes_max),
    )
    try:
        reply = serve(connection, frame, owned=owned)
    finally:
        connection.fetch_bytes_max = usual
    wait_s = meter.served(monotonic() - started)
    if key == PRODUCE:
        wait_s = max(wait_s, meter.produced(size))
    if wait_s:
        connection.throttle(wait_s)
    if reply is None or (not wait_s and key != FETCH):
        return reply
    charge = meter.fetched if key == FETCH else None
    if isinstance(reply, bytes | list):
        return _throttled(connection, reply, key, version, wait_s, charge)
    return ThrottledReply(connection, reply, key, version, wait_s, charge)


class ThrottledReply:
    """A reply that is not known yet, of a client with a quota."""

    __slots__ = (
        "_charge",
        "_connection",
        "_key",
        "_reply",
        "_version",
        "_wait_s",
        "holds",
        "request_bytes",
        "waits_for_others",
    )

    def __init__(
        self,
        connection: Connection,
        reply: Pending,
        key: int,
        version: int,
        wait_s: float,
        charge: Callable[[int], float] | None,
    ) -> None:
        self._connection = connection
        self._reply = reply
        self._key = key
        self._version = version
        self._wait_s = wait_s
        self._charge = charge
        self.request_bytes = 0
        self.holds = reply.holds
        self.waits_for_others = reply.waits_for_others

    def is_known(self) -> bool:
        return self._reply.is_known()

    def take(self) -> bytes | Pieces | None:
        reply = self._reply.take()
        if not reply:
            return reply
        return _throttled(self._connection, reply, self._key, self._version, self._wait_s, self._charge)

    def expire(self, now: float) -> float | None:
        return self._reply.expire(now)

    def finish(self) -> None:
        self._reply.finish()


def _meter_of(connection: Connection, frame: memoryview) -> tuple[int, int, Meter | None]:
    """API, version and meter of a request; none for what is no request that we know."""
    metering = connection.service.metering
    if metering is None or len(frame) < _CLIENT_ID_AT:
        return -1, 0, None
    key, version, _, length = _HEAD.unpack_from(frame)
    if key in _LOGIN or key not in APIS:
        return -1, 0, None
    given = bytes(frame[_CLIENT_ID_AT : _CLIENT_ID_AT + length]) if length > 0 else b""
    user = connection.access.session.principal.name
    return key, version, metering.meter(user, given.decode(errors="replace"))


def _throttled(
    connection: Connection,
    reply: bytes | Pieces,
    key: int,
    version: int,
    wait_s: float,
    charge: Callable[[int], float] | None,
) -> bytes | Pieces:
    """The reply, telling the client how long it is not read; an answer to Fetch is charged now."""
    if charge is not None and (owed_s := charge(_size(reply))) > wait_s:
        wait_s = owed_s
        connection.throttle(wait_s)
    at = _throttle_time_at(key, version) if wait_s else None
    if at is None:
        return reply
    told = _INT32.pack(math.ceil(wait_s * 1000))
    if isinstance(reply, bytes):
        return _patched(reply, at, told)
    first = reply[0]
    assert isinstance(first, bytes), "a reply in pieces begins with its head"
    return [_patched(first, at, told), *reply[1:]]


def _patched(data: bytes, at: int, told: bytes) -> bytes:
    place = at if at >= 0 else len(data) + at
    return data[:place] + told + data[place + len(told) :]


def _size(reply: bytes | Pieces) -> int:
    if isinstance(reply, bytes):
        return len(reply)
    return sum(len(each) if isinstance(each, bytes) else each.size for each in reply)


@cache
def _throttle_time_at(key: int, version: int) -> int | None:
    """Where a whole reply has `throttle_time_ms`, from its end if negative; None if it has none to patch."""
    if not APIS[key].serves(version):
        return None
    if key == PRODUCE:  # the last field, and behind it the count of tags
        return -_INT32.size - (1 if APIS[key].flexible(version) else 0)
    head = len(write_response_head(key, version, 0, 0))
    if key == FETCH:
        return head
    plain, _ = fields_of(response_type(key), version)
    return head if plain and plain[0].name == "throttle_time_ms" else None
