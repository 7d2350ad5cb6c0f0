"""Decrypts what a native client is delivered, and settles what is refused.

fail           the subscription ends with the error, and the broker has its messages back; `pull` raises it
skip           the message is acknowledged, so that nobody gets it
dead-letter    it is refused: the broker delivers it again, as often as the subscription says, and then
               writes its dead letter, as for every handler that fails
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tailrace.client.native.message import AsyncMessage, Delivered
from tailrace.security.decryption import DecryptionFailed

if TYPE_CHECKING:
    from tailrace.client.native.settlement import Settlements
    from tailrace.security.messages import Opener, ReadCounts

_ADVICE = "Set on_failure to dead-letter or skip to go on without it"


class Opening:
    """Of one client."""

    def __init__(self, opener: Opener, settlements: Settlements) -> None:
        self._opener = opener
        self._settlements = settlements
        self._pulled: dict[str, deque[AsyncMessage | DecryptionFailed]] = {}  # by subscription

    @property
    def counts(self) -> ReadCounts:
        return self._opener.counts

    def take(self, message: Delivered) -> bool:
        """Decrypt a message; False if it was refused and settled. DecryptionFailed if that is the policy."""
        value = None if message.is_tombstone else message.body
        try:
            opened, headers = self._opener.open(message.topic, message.key, value, message.headers)
        except DecryptionFailed as error:
            self._settle(message, error)
            return False
        message.become(opened or b"", headers)
        return True

    def has_pulled(self, name: str) -> bool:
        """Whether an earlier pull of a subscription left something to hand out."""
        return name in self._pulled

    def add_pulled(self, name: str, messages: Iterable[AsyncMessage]) -> None:
        """Have what was pulled handed out by `next_pulled`."""
        self._pulled.setdefault(name, deque()).extend(messages)

    def next_pulled(self, name: str, count: int) -> list[AsyncMessage]:
        """Up to `count` messages, and none behind one that fails: that is raised by the call after it."""
        left = self._pulled[name]
        taken: list[AsyncMessage] = []
        try:
            while left and len(taken) < count:
                message = left.popleft()
                if isinstance(message, DecryptionFailed):
                    raise message
                if self._take_pulled(message, left):
                    taken.append(message)
                elif taken and left and isinstance(left[0], DecryptionFailed):
                    break
        finally:
            if not left:
                del self._pulled[name]
        return taken

    def _take_pulled(self, message: AsyncMessage, left: deque[AsyncMessage | DecryptionFailed]) -> bool:
        try:
            return self.take(message)
        except DecryptionFailed as error:
            self._settlements.nack_nowait(message, reason=str(error))
            left.appendleft(error)
            return False

    def _settle(self, message: Delivered, error: DecryptionFailed) -> None:
        policy = self._opener.encryption.on_failure
        if policy == "fail":
            place = f"{message.topic}-{message.partition} offset {message.offset}"
            raise error.at(place, advice=_ADVICE) from None
        if policy == "skip":
            self.counts.skipped += 1
            self._settlements.ack_nowait(message)
        else:
            self.counts.dead_letters += 1
            self._settlements.nack_nowait(message, reason=f"message encryption: {error}")
