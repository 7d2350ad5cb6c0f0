"""How far a subscription has come in a partition.

    0 ........ position ........ [beyond] .... [beyond] ..........
      all done          not done   done   not     done    not done

Rule: the offset at `position` is not done, so `beyond` lies above it and does not touch it. Whatever is
marked done, in whatever order and however often, keeps that rule; so does whatever is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.model.ranges import Ranges


class Cursor:
    """A done prefix, and what is done beyond it."""

    __slots__ = ("beyond", "position")

    def __init__(self, position: int = 0, beyond: Iterable[tuple[int, int]] = ()) -> None:
        self.position = position  # everything below is done, the offset here is not
        self.beyond = Ranges(beyond)
        self._absorb(position)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cursor):
            return NotImplemented
        return self.position == other.position and self.beyond == other.beyond

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"<Cursor {self.position}{f' and {self.beyond.count} beyond' if self.beyond else ''}>"

    def is_done(self, offset: int) -> bool:
        return offset < self.position or offset in self.beyond

    def done_from(self, offset: int) -> int:
        """How many offsets at or after `offset` are done."""
        return max(self.position - offset, 0) + self.beyond.count_from(offset)

    def done(self, start: int, end: int) -> int:
        """Mark `start` up to `end` as done; how many of them were not."""
        position, beyond = self.position, self.beyond
        if start > position:
            before = beyond.count
            beyond.add(start, end)
            return beyond.count - before
        if end <= position:
            return 0
        first = beyond.first
        if first is None or end < first:  # the common case: one after the other
            self.position = end
            return end - position
        before = beyond.count
        beyond.add(position, end)
        newly = beyond.count - before
        self._absorb(position)
        return newly

    def move_to(self, offset: int) -> None:
        """Begin again at `offset`: all below is done, nothing beyond it is."""
        self.position = offset
        self.beyond.clear()

    def _absorb(self, position: int) -> None:
        """Let the prefix swallow what lies below `position` or touches it."""
        self.position = self.beyond.first_gap(position)
        self.beyond.drop_below(self.position)
