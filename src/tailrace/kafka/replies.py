"""Replies of one connection: in request order, and only as fast as the client reads them.

A queue holds one entry per request that is to be answered. An entry is

    bytes      a whole reply
    Pieces     a reply in pieces, some of them extents of a log that are not in memory yet
    Pending    a reply that is not known yet; `take` gives one of the others when it is

Everything ready at the head of the queue leaves in one write. Extents are loaded about `piece_bytes` at a
time, when the previous piece has left, so that a reply of 50 MiB never sits in memory whole.

The transport's high-water mark is 0, for one reason: after a write, "not paused" then means that every byte
was handed to the kernel, and `resume` means the same later. A transport may keep a view of what it was given
until then (uvloop does), and a pooled buffer must not be reused before: `Extent.release` is called at those
two moments and at no other.

A TLS transport compares the other way: it pauses with as many bytes as its high-water mark, so that 0 would
pause it after every write, and for ever. Its mark is 1. It counts plaintext that is not encrypted and what is
encrypted and not given to the socket, so "not paused" means that it has kept no view: pooled buffers are free
once they are encrypted. Up to a piece and 64 KiB, encrypted, may lie in the socket's own buffer beside that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from tailrace.net import Transport
from tailrace.net.transport import is_encrypted
from tailrace.storage.api import Extent

_JOIN_BYTES_MAX = 64 * 1024
"""Up to here one copy is cheaper than handing the kernel a list."""
_BUFFERS_MAX = 256
"""Of one vectored write; the kernel takes 1024."""


class LazyRecords(Protocol):
    """The records of one partition in a fetch reply: their size is known, their bytes come later."""

    @property
    def size(self) -> int:
        """Exactly how many bytes the extents will give."""

    @property
    def extents(self) -> Sequence[Extent]:
        """Where they come from, in order."""

    def sending(self, data: memoryview) -> None:
        """The bytes of an extent are in memory, and are sent now."""

    def failed(self, error: Exception) -> None:
        """They cannot be had after all, and the reply is cut off."""


Piece: TypeAlias = "bytes | LazyRecords"
Pieces: TypeAlias = "list[Piece]"


class Pending(Protocol):
    """A reply that is not known yet."""

    request_bytes: int  # of the node's budget, given back when the reply is known
    holds: bool  # whether the connection's next request waits for it
    waits_for_others: bool  # whether it may become known only by what other clients do

    def is_known(self) -> bool:
        """Whether there is nothing left to wait for."""

    def take(self) -> bytes | Pieces | None:
        """The reply, once it is known; empty if the client expects none."""

    def expire(self, now: float) -> float | None:
        """Stop waiting for what should have come by `now`; until when the rest may take, if there is any."""

    def finish(self) -> None:
        """Be known soon, with what there is: the node is closing, or nobody listens any more."""


Reply: TypeAlias = "bytes | Pieces | Pending"


class VectoredTransport(Transport, Protocol):
    """A transport that takes several buffers in one call: every socket, and TLS."""

    def writelines(self, parts: Iterable[bytes | memoryview], /) -> None:
        """Write all of them, in order."""


class Outbox:
    """The sending side of one connection."""

    __slots__ = (
        "_answered",
        "_broken",
        "_go_on",
        "_lent",
        "_loading",
        "_loop",
        "_paused",
        "_piece_bytes",
        "_pieces",
        "_transport",
        "_turn_bytes",
        "_vectored",
        "closed",
        "queue",
        "ready_bytes",
    )

    def __init__(
        self,
        transport: VectoredTransport,
        loop: asyncio.AbstractEventLoop,
        *,
        piece_bytes: int,
        turn_bytes: int,
        answered: Callable[[Pending], None],
        broken: Callable[[Exception], None],
        go_on: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._piece_bytes = piece_bytes
        self._turn_bytes = turn_bytes
        self._answered = answered
        self._broken = broken
        self._go_on = go_on  # flushes, and takes the requests for which there is room then
        self.queue: deque[Reply] = deque()  # one entry per request that is not answered yet
        self.ready_bytes = 0  # of replies in the queue that are whole and wait for one before them
        self._pieces: deque[bytes | tuple[Extent, LazyRecords]] = deque()  # of the reply that is leaving
        self._lent: list[Extent] = []  # the transport may still hold views of them
        self._loading: asyncio.Task[None] | None = None
        self._paused = False  # the transport has not yet handed everything to the kernel
        self.closed = False
        # asyncio's own writelines forgot to pause the protocol in some releases (CVE-2024-12254).
        self._vectored = "uvloop" in type(transport).__module__

    def watch_transport(self) -> None:
        """Have the transport tell of every byte that it keeps. It may call `pause` at once."""
        high = 1 if is_encrypted(self._transport) else 0
        self._transport.set_write_buffer_limits(high=high, low=0)

    @property
    def idle(self) -> bool:
        """Whether everything has left."""
        return not self.queue and not self._pieces and not self._paused and self._loading is None

    @property
    def paused(self) -> bool:
        """Whether the client does not take what was written."""
        return self._paused

    def pending(self) -> list[Pending]:
        """The replies that are not known yet, or were not when somebody looked last."""
        return [reply for reply in self.queue if not isinstance(reply, bytes | list)]

    def put(self, reply: Reply) -> None:
        """The next request's reply; `flush` sends it when its turn has come."""
        if isinstance(reply, bytes):
            self.ready_bytes += len(reply)
        self.queue.append(reply)

    def flush(self) -> None:
        """Send everything that is ready, in order, as far as the client takes it."""
        if self._paused or self.closed or self._loading is not None:
            return
        sent = 0
        while True:
            out: list[bytes | memoryview] = []
            size = self._gather(out)
            if not size or self._is_over():
                return
            self._write(out, size)
            if self._paused or self._is_over():
                return
            if self._lent:
                self._release()
            if not self._pieces and not self.queue:
                return
            sent += size
            if sent >= self._turn_bytes:
                self._loop.call_soon(self._go_on)
                return

    def pause(self) -> None:
        """The transport could not hand everything to the kernel."""
        self._paused = True

    def resume(self) -> None:
        """It has, now."""
        self._paused = False
        self._release()
        self.flush()

    def close(self) -> list[Pending]:
        """The connection is over; returns the replies that will not be known any more."""
        self.closed = True
        self._release()
        self._pieces.clear()
        lost = self.pending()
        self.queue.clear()
        self.ready_bytes = 0
        return lost

    # ---- inside

    def _is_over(self) -> bool:
        return self.closed

    def _gather(self, out: list[bytes | memoryview]) -> int:
        """Collect about a piece's worth of what may leave now; returns its size."""
        size = 0
        pieces, queue = self._pieces, self.queue
        part: bytes | memoryview | None
        while size < self._piece_bytes and len(out) < _BUFFERS_MAX:
            if pieces:
                part = self._next_piece(may_wait=not out)
                if part is None:
                    break
            elif queue:
                reply = queue[0]
                if isinstance(reply, bytes):
                    queue.popleft()
                    self.ready_bytes -= len(reply)
                    part = reply
                else:
                    known = self._next_known(reply)
                    if known is None:
                        break
                    if isinstance(known, list):
                        self._unfold(known)
                        continue
                    part = known
            else:
                break
            if part:  # a silent reply is no buffer: else a crowd of them would be taken for a full piece
                out.append(part)
                size += len(part)
        return size

    def _next_piece(self, *, may_wait: bool) -> bytes | memoryview | None:
        """The next piece of the reply that is leaving, if it can be had now."""
        piece = self._pieces[0]
        part = piece if isinstance(piece, bytes) else self._load_nowait(*piece, may_wait=may_wait)
        if part is not None:
            self._pieces.popleft()
        return part

    def _next_known(self, reply: Pieces | Pending) -> bytes | Pieces | None:
        """The reply at the head of the queue, taken off it, if it is known."""
        known = reply if isinstance(reply, list) else reply.take()
        if known is not None:
            self.queue.popleft()
            if not isinstance(reply, list):
                self._answered(reply)
        return known

    def _unfold(self, reply: Pieces) -> None:
        for piece in reply:
            if isinstance(piece, bytes):
                self._pieces.append(piece)
            else:
                for extent in piece.extents:
                    self._pieces.append((extent, piece))

    def _load_nowait(self, extent: Extent, records: LazyRecords, *, may_wait: bool) -> memoryview | None:
        """The bytes of an extent; None if they come later, or never."""
        try:
            view = extent.load_nowait()
        except Exception as error:
            self._break(records, error)
            return None
        if view is not None:
            self._lent.append(extent)
            records.sending(view)
        elif may_wait:
            self._loading = self._loop.create_task(self._load(extent, records), name="fetch-load")
        return view

    async def _load(self, extent: Extent, records: LazyRecords) -> None:
        """Have an extent from the disk: it leaves by itself, and then things go on as usual."""
        try:
            view = await extent.load()
        except Exception as error:
            self._break(records, error)
            return
        finally:
            self._loading = None
        self._lent.append(extent)
        if self.closed:
            self._release()
            return
        self._pieces.popleft()
        records.sending(view)
        self._write([view], len(view))
        if not self._paused and not self.closed:
            self._release()
            self._go_on()

    def _break(self, records: LazyRecords, error: Exception) -> None:
        """The reply is cut off in its middle: nothing sensible can follow on this connection."""
        self.closed = True
        records.failed(error)
        self._broken(error)

    def _write(self, out: list[bytes | memoryview], size: int) -> None:
        if len(out) == 1:
            self._transport.write(out[0])
        elif size <= _JOIN_BYTES_MAX:
            self._transport.write(b"".join(out))
        elif self._vectored:
            self._transport.writelines(out)
        else:
            for part in out:
                self._transport.write(part)

    def _release(self) -> None:
        for extent in self._lent:
            extent.release()
        self._lent.clear()
