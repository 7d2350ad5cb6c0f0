"""A lane: the messages on their way to one partition, in order and each at most once.

    open ----> queue ----> flights ----> answered
    (last of the queue)      sent, with sequences

Messages are put into the open flight, which is the last of the queue, and leave when there is a place among
`flights`. The broker takes the sequences of one producer without holes, so what is behind a flight that was
refused is refused too (OUT_OF_ORDER_SEQUENCE_NUMBER), and can be sent again without being stored twice.

Rules:
- A lane is proven once the broker took a flight of it on this connection. Until then one flight is out at a
  time: a broker that does not know the producer takes any sequence, and would take the second flight for the
  first one and then the first, sent again, for a duplicate.
- After a refusal the lane is stalled: nothing leaves until everything that is out was answered. Then
  `plan_recovery` decides what is refused for good and what is sent again, with the same sequences, or with
  new ones of a new producer if a hole would be left.
- After a lost connection everything unanswered goes back to the front of the queue with its sequences.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tailrace.client.native.connection import Connection
from tailrace.client.native.error import error_of
from tailrace.client.native.flight import Flight
from tailrace.client.native.published import Published
from tailrace.model import ErrorCode, TailraceError
from tailrace.wire.native import Frame, MessageType, write_properties

FLIGHTS_MAX = 5  # as many of a producer's batches as a log remembers
MESSAGES_MAX = 1_000  # in one frame
BYTES_MAX = 256 * 1024  # of one frame; a larger message has a frame for itself
MESSAGES_EAGER = 64  # so many leave at once, while the others of this turn are still being put

_ERROR = int(MessageType.ERROR)
_SEQUENCE_MASK = 0x7FFF_FFFF  # sequences wrap from 2^31-1 to 0, as Kafka's do

_OUT_OF_ORDER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
# One message can be the cause of these, and the others of its flight need not suffer from it.
_OF_CONTENT = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.POLICY_VIOLATION,
    }
)


class Owner(Protocol):
    """The publisher, as a lane knows it."""

    def released(self, messages: int, size: int) -> None:
        """So much less is unanswered."""

    def recover(self, lane: Lane) -> None:
        """The lane is stalled, and everything that was out is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What is to be done with the flights that a broker refused."""

    again: list[Flight] = field(default_factory=list)
    refused: list[Flight] = field(default_factory=list)
    renumber: bool = False


def plan_recovery(failed: Sequence[Flight]) -> Recovery:
    """Decide about flights in their order, each of which has a failure.

    What was refused for now may have been stored all the same, as one that was not durable in time is. Under
    another producer it would be stored twice, so nothing is renumbered before its fate is known.
    """
    first = failed[0].failure
    assert first is not None
    if first.retriable and first.code not in _OUT_OF_ORDER:
        return Recovery(again=list(failed))
    again: list[Flight] = []
    refused: list[Flight] = []
    renumber = False
    for at, flight in enumerate(failed):
        error = flight.failure
        assert error is not None
        if error.code in _OUT_OF_ORDER:
            again.append(flight)
            renumber = renumber or at == 0
        elif error.retriable:
            again.append(flight)
        elif error.code in _OF_CONTENT and len(flight.futures) > 1:
            again.extend(flight.split())
            renumber = True
        else:
            refused.append(flight)
            renumber = True
    return Recovery(again=again, refused=refused, renumber=renumber)


class Lane:
    """The way to one partition."""

    __slots__ = (
        "_owner",
        "connection",
        "flights",
        "head",
        "is_proven",
        "is_recovering",
        "is_stalled",
        "open",
        "partition",
        "producer_id",
        "queue",
        "recoveries",
        "sequence",
        "topic",
    )

    def __init__(self, owner: Owner, *, topic: str, partition: int, producer_id: int) -> None:
        self.topic = topic
        self.partition = partition
        self.connection: Connection | None = None
        self.open: Flight | None = None
        self.queue: deque[Flight] = deque()
        self.flights: deque[Flight] = deque()  # in the order of their sequences
        self.is_proven = False
        self.is_stalled = False
        self.is_recovering = False  # the owner is at it
        self.recoveries = 0  # since a flight was last taken
        self._owner = owner
        self.number(producer_id)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __repr__(self) -> str:
        return f"<Lane {self}, {len(self.queue)} queued, {len(self.flights)} out>"

    def number(self, producer_id: int) -> None:
        """Begin with the sequences of a producer, which has published nothing here yet."""
        names = {"_topic": self.topic, "_partition": str(self.partition)}
        if producer_id >= 0:
            names["_producer"] = str(producer_id)
        self.head = write_properties(names)
        self.producer_id = producer_id
        self.sequence = 0
        self.is_proven = False

    # ---- out

    def put(
        self, properties: bytes, body: bytes, future: asyncio.Future[Published], size: int, now_s: float
    ) -> None:
        """Add a message; `size` is what it counts for."""
        flight = self.open
        if flight is None or len(flight.futures) >= MESSAGES_MAX or flight.bytes + size > BYTES_MAX:
            flight = self.open = Flight(self, created_s=now_s)
            self.queue.append(flight)
        flight.entries.append((properties, body))
        flight.futures.append(future)
        flight.bytes += size
        if len(flight.futures) == MESSAGES_EAGER:
            self.send()

    def send(self) -> None:
        """Let go as many flights as may be out."""
        connection, queue = self.connection, self.queue
        while (
            queue
            and connection is not None
            and connection.is_writable
            and not self.is_stalled
            and len(self.flights) < (FLIGHTS_MAX if self.is_proven else 1)
        ):
            flight = queue.popleft()
            if flight is self.open:
                self.open = None
            if flight.sequence < 0 and not self._seal(flight):
                continue
            self.flights.append(flight)
            flight.send(connection)

    def _seal(self, flight: Flight) -> bool:
        """Give a flight its sequences; False if nobody waits for any of it."""
        messages, size = len(flight.futures), flight.bytes
        if flight.drop_cancelled():
            self._owner.released(messages - len(flight.futures), size - flight.bytes)
        if not flight.futures:
            return False
        flight.sequence = self.sequence
        self.sequence = (self.sequence + len(flight.futures)) & _SEQUENCE_MASK
        return True

    # ---- back

    def answered(self, flight: Flight, frame: Frame) -> None:
        """A reply. Called by the flight that it belongs to."""
        if flight not in self.flights:
            return  # it was given up meanwhile
        if frame.type == _ERROR:
            flight.failure = error_of(frame)
            self.is_stalled = True
        else:
            flight.arrived(frame)
            self.flights.remove(flight)
            self.is_proven = True
            self.recoveries = 0
            self._owner.released(len(flight.futures), flight.bytes)
        self.advance()

    def advance(self) -> None:
        """Go on, or begin to recover once everything that is out was answered."""
        if not self.is_stalled:
            self.send()
        elif not self.is_recovering and all(each.failure is not None for each in self.flights):
            self._owner.recover(self)

    def take_failed(self) -> list[Flight]:
        """Everything that is out, all of it refused."""
        failed, self.flights = list(self.flights), deque()
        return failed

    def put_back(self, flights: Sequence[Flight], *, renumber: bool) -> None:
        """To the front of the queue, in this order."""
        for flight in flights:
            flight.failure = None
            if renumber:
                flight.sequence = -1
        self.queue.extendleft(reversed(flights))

    def disconnected(self) -> None:
        """Nothing that is out will be answered any more: all of it is to be sent again."""
        self.connection = None
        self.is_proven = False
        self.is_stalled = self.is_recovering
        out, self.flights = list(self.flights), deque()
        self.put_back(out, renumber=False)

    def expire(self, *, created_before_s: float) -> list[Flight]:
        """Give up what has waited for too long."""
        self.open = None  # so that no flight collects messages for ever
        old = [each for each in (*self.flights, *self.queue) if each.created_s < created_before_s]
        for flight in old:
            (self.flights if flight in self.flights else self.queue).remove(flight)
        return old

    def fail(self, error: TailraceError) -> list[Flight]:
        """Give up everything."""
        everything = [*self.flights, *self.queue]
        self.flights.clear()
        self.queue.clear()
        self.open = None
        for flight in everything:
            flight.fail(error)
        return everything
