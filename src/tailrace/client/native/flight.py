"""A flight: messages that leave together for one partition, as one frame with one reply.

    | _topic | _partition | _producer | _sequence | _count |   PUBLISH_BATCH, body: an entry per message
    | _topic | _partition | _producer | _sequence | ...    |   PUBLISH, where there is only one

A flight is open while messages are put into it, and sealed once it has a sequence. Its messages keep their
sequences however often it is sent, so that the broker recognises what it has already.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tailrace.client.native.connection import Connection, Failure
from tailrace.client.native.error import number_of
from tailrace.client.native.published import Published
from tailrace.model import BrokerError, TailraceError
from tailrace.wire.native import Frame, MessageType, write_entries

if TYPE_CHECKING:
    from tailrace.client.native.lane import Lane

_PUBLISH = int(MessageType.PUBLISH)
_PUBLISH_BATCH = int(MessageType.PUBLISH_BATCH)


class Flight:
    """Messages of one lane that share their fate."""

    __slots__ = ("bytes", "created_s", "entries", "failure", "futures", "lane", "sequence")

    def __init__(self, lane: Lane, *, created_s: float) -> None:
        self.lane = lane
        self.created_s = created_s
        self.entries: list[tuple[bytes, bytes]] = []  # encoded properties, body
        self.futures: list[asyncio.Future[Published]] = []
        self.bytes = 0
        self.sequence = -1  # of the first message, once sealed
        self.failure: BrokerError | None = None  # what the broker answered, if it did not take them

    def __repr__(self) -> str:
        return f"<Flight of {len(self.futures)} to {self.lane} from {self.sequence}>"

    def drop_cancelled(self) -> bool:
        """Before it leaves: leave out what nobody waits for any more. Whether there was any."""
        if not any(future.done() for future in self.futures):
            return False
        kept = [
            (entry, future)
            for entry, future in zip(self.entries, self.futures, strict=True)
            if not future.done()
        ]
        self.entries = [entry for entry, _ in kept]
        self.futures = [future for _, future in kept]
        self.bytes = sum(message_bytes(*entry) for entry in self.entries)
        return True

    def send(self, connection: Connection) -> None:
        """Write it; the reply comes to `answered`."""
        head = self.lane.head
        if self.lane.producer_id >= 0:
            head = b"%b_sequence=%d\0" % (head, self.sequence)
        if len(self.entries) == 1:
            properties, body = self.entries[0]
            connection.send(_PUBLISH, head + properties, body, awaiting=self)
        else:
            head = b"%b_count=%d\0" % (head, len(self.entries))
            connection.send(_PUBLISH_BATCH, head, write_entries(self.entries), awaiting=self)

    def arrived(self, frame: Frame) -> None:
        """Tell everybody where the messages are."""
        base = number_of(frame, "_offset")
        partition = number_of(frame, "_partition", self.lane.partition)
        prefix = frame.properties.get("_id", "")
        topic, timestamp = self.lane.topic, frame.timestamp
        futures = self.futures
        new = number_of(frame, "_count", len(futures))
        unknown = len(futures) if base < 0 else len(futures) - new if 0 < new < len(futures) else 0
        for future in futures[:unknown]:  # sent before and stored then, but the broker no longer knows where
            if not future.done():
                future.set_result(Published(topic, partition, -1, "", timestamp))
        prefix = prefix[: prefix.rfind("-") + 1]
        for offset, future in enumerate(futures[unknown:] if unknown else futures, base):
            if not future.done():
                future.set_result(Published(topic, partition, offset, prefix, timestamp))

    def fail(self, error: TailraceError) -> None:
        """Tell everybody that the messages were not taken."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error)

    def split(self) -> list[Flight]:
        """A flight for every message, in the same order."""
        singles = []
        for entry, future in zip(self.entries, self.futures, strict=True):
            single = Flight(self.lane, created_s=self.created_s)
            single.entries, single.futures, single.bytes = [entry], [future], message_bytes(*entry)
            singles.append(single)
        return singles

    # ---- what the connection tells

    def answered(self, frame: Frame) -> None:
        self.lane.answered(self, frame)

    def delivered(self, frame: Frame) -> None:
        """Nothing is delivered for a publish."""

    def lost(self, error: Failure) -> None:
        """The lane learns of it from the link, and sends again what was not answered."""


def message_bytes(properties: bytes, body: bytes) -> int:
    """What one message counts for; the constant stands for what the lists around it hold."""
    return len(properties) + len(body) + 64
