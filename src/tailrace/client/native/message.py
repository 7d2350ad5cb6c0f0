"""A message as a subscriber gets it.

`Delivered` is what arrived. Its two kinds differ in how they are settled: `AsyncMessage` with await,
`Message` (tailrace.client.native.blocking) by blocking a thread. Properties and headers are taken apart when
somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tailrace.client.native.error import number_of
from tailrace.model import BrokerError, ProtocolError
from tailrace.wire.native import Frame, Header, record_of_properties


class Delivered:
    """What the broker delivered, and where it came from."""

    __slots__ = (
        "_frame_properties",
        "_headers",
        "_properties",
        "body",
        "delivery_count",
        "epoch",
        "failed_transactions",
        "is_in_transaction",
        "is_lease_due",
        "is_settled",
        "offset",
        "partition",
        "subscription",
        "timestamp",
        "topic",
    )

    def __init__(self, frame: Frame) -> None:
        properties = frame.properties
        self.body = bytes(frame.body)
        self.offset = frame.sequence
        self.timestamp = frame.timestamp
        """When the broker took it, in milliseconds since 1970."""
        try:
            self.subscription = properties["_subscription"]
            self.topic = properties["_topic"]
            self.partition = int(properties["_partition"])
            self.epoch = int(properties["_epoch"])
        except (KeyError, ValueError):
            raise ProtocolError(f"a delivery does not say where it comes from: {frame}") from None
        self.delivery_count = number_of(frame, "_delivery", 1)
        """How often it was delivered, this time included."""
        self.is_settled = False
        self.is_in_transaction = False  # a transaction was to acknowledge it, and perhaps has
        self.failed_transactions = 0  # of its client, when a worker was given it
        self.is_lease_due = False  # it was held when leases were last looked at
        self._frame_properties = properties
        self._properties: dict[str, str] | None = None
        self._headers: list[Header] | None = None  # those of a message that was decrypted

    def become(self, body: bytes, headers: Sequence[Header]) -> None:
        """Have the body and the headers that the message had before it was encrypted."""
        names = {name for name, _ in headers}
        self.body = body
        self._headers = list(headers)
        self._properties = {name: value for name, value in self.properties.items() if name in names}

    def take_from(self, other: Delivered) -> None:
        """Become the same delivery as another kind of message."""
        for name in Delivered.__slots__:
            setattr(self, name, getattr(other, name))

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic}-{self.partition} offset {self.offset},"
            f" {len(self.body)} bytes, delivery {self.delivery_count}>"
        )

    @property
    def id(self) -> str:
        """The message's id, the same for every subscriber."""
        return self._frame_properties.get("_id", "")

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    @property
    def properties(self) -> dict[str, str]:
        """The message's own properties."""
        if self._properties is None:
            items = self._frame_properties.items()
            self._properties = {name: value for name, value in items if name[:1] != "_"}
        return self._properties

    @property
    def key(self) -> bytes | None:
        """The message's key."""
        if "_key" in self._frame_properties:
            return self._frame_properties["_key"].encode()
        return self._record()[0] if "_key64" in self._frame_properties else None

    @property
    def headers(self) -> list[Header]:
        """The record's headers exactly as they are stored: repeated, binary and null ones too."""
        return self._record()[2] if self._headers is None else list(self._headers)

    @property
    def is_tombstone(self) -> bool:
        """Whether the record has no value at all, which deletes its key in a compacted topic."""
        return "_null" in self._frame_properties

    @property
    def created_at(self) -> int | None:
        """When its publisher says it was made, in milliseconds since 1970."""
        text = self._frame_properties.get("created_at", "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def place(self) -> tuple[str, str, int, int]:
        """What an acknowledgement names beside the offset: subscription, topic, partition, epoch."""
        return self.subscription, self.topic, self.partition, self.epoch

    def _record(self) -> tuple[bytes | None, bytes | None, list[Header]]:
        try:
            return record_of_properties(self._frame_properties, self.body)
        except BrokerError as error:
            raise ProtocolError(f"the broker sent a message that makes no sense: {error}") from error


class Settles(Protocol):
    """Where a message is acknowledged, refused or kept."""

    async def ack(self, message: Delivered) -> None:
        """It was processed."""

    async def nack(self, message: Delivered, *, delay_ms: int | None, reason: str) -> None:
        """It was not."""

    async def extend(self, message: Delivered, *, extend_ms: int) -> None:
        """It needs more time."""


class AsyncMessage(Delivered):
    """A message of an `AsyncClient`."""

    __slots__ = ("_settles",)

    def __init__(self, frame: Frame, settles: Settles) -> None:
        super().__init__(frame)
        self._settles = settles

    async def ack(self) -> None:
        """Acknowledge it; returns once the broker has that safe. A second time does nothing."""
        await self._settles.ack(self)

    async def nack(self, *, delay_ms: int | None = None, reason: str = "") -> None:
        """Give it back, to be delivered again after `delay_ms`, or after the subscription's own back-off."""
        await self._settles.nack(self, delay_ms=delay_ms, reason=reason)

    async def extend(self, extend_ms: int) -> None:
        """Keep it for so long from now before the broker takes it for lost."""
        await self._settles.extend(self, extend_ms=extend_ms)
