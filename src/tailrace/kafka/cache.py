"""Encoded replies that stay true until the topics change.

Clients ask for the same metadata again and again, and encoding it for thousands of partitions costs
milliseconds. A reply is kept under the bytes of its request, so nothing is decoded to find it, and under what
decides what its client may see (`Access.audience`).
"""

from __future__ import annotations

from collections.abc import Hashable

_BYTES_MAX = 8 * 1024 * 1024
_REQUEST_BYTES_MAX = 4 * 1024
_REPLIES_MAX = 4096  # a key costs memory too, and there is one for each user and address


class ReplyCache:
    """Replies of one generation; the next one empties it."""

    __slots__ = ("_bytes", "_generation", "_replies")

    def __init__(self) -> None:
        self._generation: Hashable = None
        self._replies: dict[Hashable, bytes] = {}
        self._bytes = 0

    def get(self, generation: Hashable, key: Hashable) -> bytes | None:
        """The reply that was kept, if it is of this generation."""
        return self._replies.get(key) if generation == self._generation else None

    def put(self, generation: Hashable, key: Hashable, reply: bytes, *, request_bytes: int) -> None:
        """Keep a reply, unless it or its request is too large for that."""
        if generation != self._generation or self._is_full(len(reply) + request_bytes):
            self._replies.clear()
            self._generation, self._bytes = generation, 0
        if request_bytes <= _REQUEST_BYTES_MAX and len(reply) <= _BYTES_MAX // 2:
            self._replies[key] = reply
            self._bytes += len(reply) + request_bytes

    def _is_full(self, size: int) -> bool:
        return self._bytes + size > _BYTES_MAX or len(self._replies) >= _REPLIES_MAX
