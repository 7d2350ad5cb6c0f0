"""Requests that are built once and sent over and over.

    | request 0 | request 1 | ... | request n-1 |      all of one size, side by side in one buffer

Requests of one size lie side by side, so that any run of them is one slice and one system call. What differs
between them (a correlation id, an offset) has a fixed width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Prebuilt requests in the order in which they are sent."""

    data: bytes
    request_bytes: int
    payload_bytes: int  # of one request or of its reply: what MB/s counts

    @property
    def count(self) -> int:
        return len(self.data) // self.request_bytes


def ring_of(requests: Iterable[bytes], *, payload_bytes: int) -> Ring:
    """A ring of requests of one size; ValueError if their sizes differ or there is none."""
    built = list(requests)
    sizes = {len(each) for each in built}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"the requests of a ring have one size above 0, not {sorted(sizes)}")
    return Ring(data=b"".join(built), request_bytes=sizes.pop(), payload_bytes=payload_bytes)
