"""What clients of a node have not read: counted, and over the bound the longest stalled are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tailrace.net import ListenerUnread, NodeBudget, UnreadBytes


class Reader:
    """A connection whose client has left so much unread."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.buffered_bytes = 0
        self.is_aborted = False

    def close_unread(self) -> None:
        self.is_aborted = True

    def wait_for(self, size: int, unread: UnreadBytes) -> None:
        self.buffered_bytes = size
        unread.note(self, size, ListenerUnread(unread))


def play(scenario: Callable[[], None]) -> None:
    async def main() -> None:
        scenario()

    asyncio.run(main())


async def aborted(readers: list[Reader]) -> list[str]:
    await asyncio.sleep(0)
    return [each.name for each in readers if each.is_aborted]


def test_the_connection_that_read_nothing_for_longest_is_closed_first() -> None:
    async def scenario() -> None:
        unread = UnreadBytes(100)
        readers = [Reader(name) for name in "abcd"]
        for each in readers[:3]:
            each.wait_for(30, unread)
        readers[0].wait_for(20, unread)  # it has read some
        readers[3].wait_for(60, unread)
        assert await aborted(readers) == ["b", "c"]
        assert unread.bytes == 80 and unread.closed == 2

    asyncio.run(scenario())


def test_a_connection_that_read_since_it_was_counted_is_spared() -> None:
    async def scenario() -> None:
        unread = UnreadBytes(100)
        readers = [Reader(name) for name in "ab"]
        for each in readers:
            each.wait_for(50, unread)
        readers[0].buffered_bytes = 45
        late = Reader("late")
        late.wait_for(10, unread)
        assert await aborted([*readers, late]) == ["b"]
        assert unread.bytes == 55

    asyncio.run(scenario())


def test_one_connection_over_the_bound_is_closed() -> None:
    async def scenario() -> None:
        unread, reader = UnreadBytes(100), Reader("only")
        reader.wait_for(101, unread)
        assert await aborted([reader]) == ["only"] and unread.bytes == 0
        unread.forget(reader)  # when its socket is gone: harmless
        assert unread.bytes == 0

    asyncio.run(scenario())


def test_what_is_read_counts_no_more() -> None:
    def scenario() -> None:
        unread, reader = UnreadBytes(100), Reader()
        reader.wait_for(70, unread)
        reader.wait_for(90, unread)
        assert unread.bytes == 90
        reader.wait_for(0, unread)
        assert unread.bytes == 0
        reader.wait_for(5, unread)
        unread.forget(reader)
        assert unread.bytes == 0 and not reader.is_aborted

    play(scenario)


def test_the_listeners_of_a_node_share_one_bound() -> None:
    node = NodeBudget()
    assert {id(share.unread.node) for share in node.shares.values()} == {id(node.unread)}
