"""Publishing messages that wait for their time: by themselves, and each stored once.

Such a message has no partition yet, so it is in no lane. It is numbered all the same: each numbering has a
producer id of its own and one message out at a time, which is repeated under the same number after a lost
connection. Several numberings let several messages be out at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tailrace.client.native.link import Link
from tailrace.wire.native import Frame, MessageType

_NUMBERINGS_MAX = 64


class _Numbering:
    __slots__ = ("producer_id", "sequence")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sequence = 0


class DelayedPublisher:
    """The delayed messages of one client."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._free: list[_Numbering] = []
        self._places = asyncio.Semaphore(_NUMBERINGS_MAX)

    async def publish(self, head: Mapping[str, str], encoded: bytes, body: bytes) -> Frame:
        """The broker's reply, once it has the message safe.

        After an error it is not known whether a number was used: that numbering is not used again.
        """
        async with self._places:
            numbering = self._free.pop() if self._free else _Numbering(await self._link.new_producer_id())
            numbers = {"_producer": str(numbering.producer_id), "_sequence": str(numbering.sequence)}
            frame, _ = await self._link.request(
                MessageType.PUBLISH, {**head, **numbers}, encoded=encoded, body=body
            )
            numbering.sequence += 1
            self._free.append(numbering)
            return frame
