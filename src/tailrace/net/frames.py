"""Size-prefixed frames out of a byte stream, without I/O.

    size: int32 | size bytes, of which the first two are the API's key

Bytes are received into one buffer that all connections of a loop share, because what arrives is dealt with
before anybody receives again. A frame that lies in it whole is handed out as a view, and is gone with the
next read: who keeps any of it copies it. A frame of which only a part has arrived gets a buffer of its own,
the rest is received straight into that, and whoever gets the frame may keep it. The buffer of a large frame
grows with what has arrived, from STEP_BYTES on fourfold: what a client announces costs nothing.

A size that is not positive or over the limit is refused before anything is buffered, one over the limit of
its API as soon as its key is seen, and bytes are taken from the node's budget before they are buffered: one
client cannot make us hold gigabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tailrace.model import ProtocolError
from tailrace.net.budget import SMALL_REQUEST_BYTES, Arrival, RequestBudget
from tailrace.net.stranger import size_refused

_SIZE = struct.Struct(">i")
_read_size = _SIZE.unpack_from
_KEY = struct.Struct(">h")
SIZE_BYTES = 4
_SIZE_AND_KEY_BYTES = SIZE_BYTES + _KEY.size
STEP_BYTES = SMALL_REQUEST_BYTES
"""What a larger frame gets at first."""
_GROWTH = 4
_FRUGAL_BYTES = 1024
"""What is read at most while the budget is exhausted: enough to see the next frame's size."""


class FrameSplitter:
    """The receiving side of one connection."""

    __slots__ = (
        "_begin",
        "_budget",
        "_bytes_max_of",
        "_end",
        "_filled",
        "_frame",
        "_frame_size",
        "_granted",
        "_read_bytes",
        "_shared",
        "_small_bytes_max",
        "_view",
        "frame_bytes_max",
        "is_growing",
        "owned",
        "wanted",
    )

    def __init__(
        self,
        shared: memoryview,
        budget: RequestBudget,
        *,
        frame_bytes_max: int,
        small_bytes_max: int,
        bytes_max_of: Callable[[int], int],
        read_bytes: int,
    ) -> None:
        self._shared = shared
        self._budget = budget
        self.frame_bytes_max = frame_bytes_max
        self._small_bytes_max = small_bytes_max  # allowed whatever it asks for; above it the key decides
        self._bytes_max_of = bytes_max_of
        self._read_bytes = read_bytes  # into a frame's own buffer, at a time
        self._view = shared  # what _begin and _end are places in: the shared buffer, or bytes that were kept
        self._begin = 0
        self._end = 0
        self._frame: memoryview | None = None  # a frame under way, in its own buffer, as far as that goes
        self._frame_size = 0  # of all of it
        self._filled = 0
        self._granted = 0  # bytes of the budget that were waited for and are there
        self.owned = False  # whether the frame handed out last has a buffer of its own
        self.wanted = 0  # bytes that the next frame, or more of it, needs of an exhausted budget
        self.is_growing = False  # they are for more of a frame that has begun

    @property
    def frame_bytes(self) -> int:
        """Size of the frame that is under way in a buffer of its own, else 0."""
        return 0 if self._frame is None else self._frame_size

    @property
    def frame_filled(self) -> int:
        """How much of that frame is here."""
        return self._filled

    @property
    def frame_held(self) -> int:
        """What that frame has taken of the budget: its buffer."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def has_rest(self) -> bool:
        """Whether bytes have arrived that `next_frame` has not looked at, or has not handed out."""
        return self._begin < self._end or (self._frame is not None and self._filled == len(self._frame))

    def get_buffer(self) -> memoryview:
        """Where to receive next; never empty."""
        frame = self._frame
        if frame is not None and self._filled < len(frame):
            return frame[self._filled : self._filled + self._read_bytes]
        left = self._end - self._begin
        if left:
            # The first bytes of a size, mostly: they go before what comes.
            self._shared[:left] = self._view[self._begin : self._end]
            self._view = self._shared
        self._begin, self._end = 0, left
        if self._budget.exhausted:
            return self._shared[left : left + _FRUGAL_BYTES]
        return self._shared[left:] if left else self._shared

    def received(self, count: int) -> None:
        """So many bytes were put into the buffer that `get_buffer` gave."""
        frame = self._frame
        if frame is not None and self._filled < len(frame):
            self._filled += count
        else:
            self._end += count

    def next_frame(self, arrival: Arrival) -> memoryview | None:
        """The next whole frame; None if it has not arrived yet, or if `wanted` bytes of budget are missing.

        The frame's size stays taken from the budget until the caller gives it back. `arrival` is the caller.
        """
        frame = self._frame
        if frame is not None:
            if self._filled < len(frame):
                return None
            if self._filled < self._frame_size:
                self._grow(frame, arrival)
                return None
            self._frame = None
            self._budget.finish(arrival)
            self.owned = True
            return frame
        begin, end, view = self._begin, self._end, self._view
        if end - begin < SIZE_BYTES:
            return None
        size: int = _read_size(view, begin)[0]
        if not 0 < size <= self.frame_bytes_max:
            raise size_refused(size, self.frame_bytes_max)
        if size > self._small_bytes_max:
            if end - begin < _SIZE_AND_KEY_BYTES:
                return None
            self._check_size(size, _KEY.unpack_from(view, begin + SIZE_BYTES)[0])
        begin += SIZE_BYTES
        stop = begin + size
        taken = size if stop <= end or size <= STEP_BYTES else STEP_BYTES
        if self._granted:
            taken, self._granted = self._granted, 0
        elif not (
            self._budget.take_nowait(size)
            if taken == size
            else self._budget.begin_nowait(arrival.address, taken)
        ):
            self.wanted = taken
            return None
        if stop <= end:
            self._begin = stop
            self.owned = False
            return view[begin:stop]
        frame = self._frame = memoryview(bytearray(taken))
        self._frame_size = size
        self._filled = end - begin
        frame[: self._filled] = view[begin:end]
        self._begin = self._end = 0
        self._budget.begin(arrival)
        return None

    def _grow(self, frame: memoryview, arrival: Arrival) -> None:
        """All of the buffer is used, and more is to come: have a larger one, or say what is `wanted`."""
        held = len(frame)
        more = min(held * _GROWTH, self._frame_size) - held
        if self._granted:
            more, self._granted = self._granted, 0
        elif not self._budget.grow_nowait(arrival, more):
            self.wanted, self.is_growing = more, True
            return
        larger = memoryview(bytearray(held + more))
        larger[:held] = frame
        self._frame = larger

    def _check_size(self, size: int, key: int) -> None:
        most = self._bytes_max_of(key)
        if size > most:
            raise ProtocolError(f"a request of {size} bytes to API {key} is over {most}")

    def grant(self) -> None:
        """The bytes that were wanted are taken from the budget for us."""
        self._granted, self.wanted, self.is_growing = self.wanted, 0, False

    def keep(self) -> None:
        """Others will receive into the shared buffer: save what has not been handed out yet."""
        if self._begin < self._end:
            if self._view is self._shared:
                self._view = memoryview(bytes(self._shared[self._begin : self._end]))
                self._begin, self._end = 0, len(self._view)
        else:
            self._view = self._shared  # what was kept is used up, and is let go

    def abandon(self) -> int:
        """The connection is over; how many bytes of the budget this still holds."""
        held = self._granted + self.frame_held
        self._granted, self._frame, self._begin, self._end = 0, None, 0, 0
        return held
