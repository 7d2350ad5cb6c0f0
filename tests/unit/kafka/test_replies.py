"""The sending side: order, one write for what is ready, pieces as the socket drains, safe reuse of buffers.

Most of it against a transport that is a list; the reuse of buffers over real sockets, on both event loops,
because it is the transports' habits that it is about.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest
from tests.certificates import Certificates, certificates, client_context

from tailrace.kafka.replies import Outbox, Pending, Pieces
from tailrace.model import LogDamaged
from tailrace.net.tls import make_context
from tailrace.storage.api import Extent

PIECE_BYTES = 100


class FakeTransport:
    """Takes `room` bytes at once, and the rest when it is told to."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.room = 1 << 30
        self.outbox: Outbox | None = None

    def get_extra_info(self, name: str) -> None:
        """It is not encrypted."""

    def set_write_buffer_limits(self, *, high: int, low: int) -> None:
        assert (high, low) == (0, 0)

    def write(self, data: bytes | memoryview) -> None:
        self.written.append(bytes(data))
        self.room -= len(data)
        if self.room < 0:
            assert self.outbox is not None
            self.outbox.pause()

    @property
    def sent(self) -> bytes:
        return b"".join(self.written)


class Later:
    """A reply that is not known until the test says so."""

    holds = False
    waits_for_others = False

    def __init__(self) -> None:
        self.request_bytes = 1
        self.reply: bytes | Pieces | None = None

    def is_known(self) -> bool:
        return self.reply is not None

    def take(self) -> bytes | Pieces | None:
        return self.reply

    def expire(self, now: float) -> float | None:
        return None

    def finish(self) -> None: ...


class Stock:
    """Records whose extents live in one buffer each, which is scribbled over when it is given back."""

    def __init__(self, *parts: bytes, cold: bool = False) -> None:
        self.extents: Sequence[Extent] = [StockExtent(part, self, cold=cold) for part in parts]
        self.size = sum(map(len, parts))
        self.loaded = 0  # extents whose bytes are in memory
        self.loaded_most = 0
        self.error: Exception | None = None

    def sending(self, data: memoryview) -> None:
        """Nothing is done with it."""

    def failed(self, error: Exception) -> None:
        self.error = error


class StockExtent:
    def __init__(self, content: bytes, stock: Stock, *, cold: bool) -> None:
        self.size = len(content)
        self._content = content
        self._stock = stock
        self._buffer = bytearray()
        self._cold = cold

    def load_nowait(self) -> memoryview | None:
        return None if self._cold else self._load()

    async def load(self) -> memoryview:
        await asyncio.sleep(0)
        return self._load()

    def _load(self) -> memoryview:
        assert not self._buffer, "loaded twice"
        self._buffer = bytearray(self._content)
        self._stock.loaded += 1
        self._stock.loaded_most = max(self._stock.loaded_most, self._stock.loaded)
        return memoryview(self._buffer)

    def release(self) -> None:
        self._buffer[:] = b"#" * len(self._buffer)  # the next reader's bytes
        self._stock.loaded -= 1


class Bench:
    """An outbox over a fake transport."""

    def __init__(self) -> None:
        self.transport = FakeTransport()
        self.answered: list[Pending] = []
        self.broken: list[Exception] = []
        self.outbox = Outbox(
            cast(asyncio.Transport, self.transport),
            asyncio.get_running_loop(),
            piece_bytes=PIECE_BYTES,
            turn_bytes=10 * PIECE_BYTES,
            answered=self.answered.append,
            broken=self.broken.append,
            go_on=lambda: self.outbox.flush(),
        )
        self.transport.outbox = self.outbox
        self.outbox.watch_transport()


def test_everything_ready_leaves_in_one_write() -> None:
    async def main() -> None:
        bench = Bench()
        for reply in (b"one", b"two", b"three"):
            bench.outbox.put(reply)
        assert bench.outbox.ready_bytes == 11
        bench.outbox.flush()
        assert bench.transport.written == [b"onetwothree"]
        assert bench.outbox.idle and bench.outbox.ready_bytes == 0

    asyncio.run(main())


def test_a_reply_waits_for_those_before_it() -> None:
    async def main() -> None:
        bench, later = Bench(), Later()
        bench.outbox.put(b"first")
        bench.outbox.put(later)
        bench.outbox.put(b"third")
        bench.outbox.flush()
        assert bench.transport.sent == b"first" and bench.answered == []
        assert len(bench.outbox.queue) == 2 and bench.outbox.ready_bytes == 5
        later.reply = b"second"
        bench.outbox.flush()
        assert bench.transport.sent == b"firstsecondthird" and bench.answered == [later]

    asyncio.run(main())


def test_an_empty_reply_is_no_reply() -> None:
    async def main() -> None:
        bench, silent = Bench(), Later()
        silent.reply = b""
        bench.outbox.put(silent)
        bench.outbox.put(b"next")
        bench.outbox.flush()
        assert bench.transport.sent == b"next" and bench.answered == [silent]

    asyncio.run(main())


def test_pieces_are_loaded_as_the_client_takes_them() -> None:
    async def main() -> None:
        bench, stock = Bench(), Stock(*(bytes([65 + n]) * 60 for n in range(10)))
        bench.outbox.put([b"head", stock, b"tail"])
        bench.transport.room = 0
        bench.outbox.flush()
        assert bench.outbox.paused and stock.loaded == 2  # a piece's worth, and no more
        for _ in range(20):
            bench.transport.room = 0
            bench.outbox.resume()
        assert stock.loaded == 0 and stock.loaded_most <= 2
        expected = b"head" + b"".join(bytes([65 + n]) * 60 for n in range(10)) + b"tail"
        assert bench.transport.sent == expected
        bench.transport.room = 1000
        bench.outbox.resume()
        assert bench.outbox.idle

    asyncio.run(main())


def test_a_buffer_is_given_back_when_its_bytes_have_left_and_not_before() -> None:
    async def main() -> None:
        bench, stock = Bench(), Stock(b"A" * 60)
        bench.outbox.put([b"head", stock])
        bench.transport.room = 0
        bench.outbox.flush()
        assert stock.loaded == 1
        bench.transport.room = 1000
        bench.outbox.resume()
        assert stock.loaded == 0

    asyncio.run(main())


def test_what_follows_a_crowd_of_silent_replies_leaves_with_them() -> None:
    async def main() -> None:
        bench = Bench()
        silent = [Later() for _ in range(600)]  # more than one write may have buffers
        for reply in silent:
            reply.reply = b""
            bench.outbox.put(reply)
        bench.outbox.put(b"heard")
        bench.outbox.flush()
        assert bench.transport.written == [b"heard"]
        assert bench.answered == silent and bench.outbox.idle

    asyncio.run(main())


def test_cold_extents_are_waited_for() -> None:
    async def main() -> None:
        bench, stock = Bench(), Stock(b"A" * 60, b"B" * 60, cold=True)
        bench.outbox.put([b"head", stock, b"tail"])
        bench.outbox.put(b"next")
        bench.outbox.flush()
        assert bench.transport.sent == b"head"
        for _ in range(20):
            bench.outbox.flush()  # by somebody else, in between
            await asyncio.sleep(0)
        assert bench.outbox.idle
        assert bench.transport.sent == b"head" + b"A" * 60 + b"B" * 60 + b"tailnext"
        assert stock.loaded == 0

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("cold", [False, True])
def test_records_that_cannot_be_read_cut_the_reply_off(cold: bool) -> None:
    class Damaged(StockExtent):
        def _load(self) -> memoryview:
            raise LogDamaged("a bit flipped")

    async def main() -> None:
        bench, stock = Bench(), Stock(b"A" * 200)
        stock.extents = [*stock.extents, Damaged(b"B" * 200, stock, cold=cold)]
        bench.outbox.put([b"head", stock, b"tail"])
        bench.outbox.put(b"next")
        bench.outbox.flush()
        for _ in range(5):
            await asyncio.sleep(0)
        assert bench.transport.sent == b"head" + b"A" * 200
        assert [str(error) for error in bench.broken] == ["a bit flipped"] and stock.error is not None
        bench.outbox.flush()
        assert bench.transport.sent.endswith(b"A")

    asyncio.run(main())


def test_closing_gives_buffers_back_and_names_what_is_lost() -> None:
    async def main() -> None:
        bench, stock, later = Bench(), Stock(b"A" * 60), Later()
        bench.outbox.put([b"head", stock])
        bench.outbox.put(b"known")
        bench.outbox.put(later)
        bench.transport.room = 0
        bench.outbox.flush()
        assert bench.outbox.close() == [later]
        assert stock.loaded == 0 and bench.outbox.ready_bytes == 0
        bench.outbox.flush()
        assert len(bench.transport.written) == 1

    asyncio.run(main())


def test_closing_while_an_extent_is_being_loaded_gives_it_back_too() -> None:
    async def main() -> None:
        bench, stock = Bench(), Stock(b"A" * 60, cold=True)
        bench.outbox.put([stock])
        bench.outbox.flush()
        bench.outbox.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert stock.loaded == 0 and stock.loaded_most == 1 and bench.transport.sent == b""

    asyncio.run(main())


def test_a_large_reply_lets_others_have_their_turn() -> None:
    async def main() -> None:
        bench, stock = Bench(), Stock(*(b"x" * 100 for _ in range(100)))
        bench.outbox.put([stock])
        bench.outbox.flush()
        assert PIECE_BYTES * 10 <= len(bench.transport.sent) < PIECE_BYTES * 12
        for _ in range(20):
            await asyncio.sleep(0)
        assert bench.outbox.idle and len(bench.transport.sent) == 100 * 100

    asyncio.run(asyncio.wait_for(main(), 60))


class Sender(asyncio.Protocol):
    """A protocol whose transport feeds an outbox."""

    def __init__(self) -> None:
        self.outbox: Outbox | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outbox = Outbox(
            cast(asyncio.Transport, transport),
            asyncio.get_running_loop(),
            piece_bytes=64 * 1024,
            turn_bytes=512 * 1024,
            answered=lambda _: None,
            broken=lambda _: None,
            go_on=self.go_on,
        )
        self.outbox.watch_transport()

    def go_on(self) -> None:
        assert self.outbox is not None
        self.outbox.flush()

    def pause_writing(self) -> None:
        assert self.outbox is not None
        self.outbox.pause()

    def resume_writing(self) -> None:
        assert self.outbox is not None
        self.outbox.resume()


Pair = tuple[asyncio.BaseTransport, Sender, socket.socket, Callable[[int], Awaitable[bytes]]]


async def plain_pair() -> Pair:
    """Our transport, its sender, the other end, and how that reads some bytes."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, sender = await loop.create_connection(Sender, sock=ours)

    async def read(count: int) -> bytes:
        return await loop.sock_recv(theirs, count)

    return transport, sender, theirs, read


async def tls_pair(made: Certificates) -> Pair:
    """The same with TLS; the other end reads in a thread, by OpenSSL on the socket itself."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    theirs.settimeout(60)  # a thread that waits for ever would keep a failed test from ending
    context = client_context(made.ca)
    shaking = asyncio.create_task(asyncio.to_thread(context.wrap_socket, theirs, server_hostname="localhost"))
    sender = Sender()  # which uvloop does not return
    transport, _ = await loop.connect_accepted_socket(lambda: sender, ours, ssl=make_context(made.config()))
    client = await shaking

    async def read(count: int) -> bytes:
        return await asyncio.to_thread(client.recv, count)

    return transport, sender, client, read


@pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_a_slow_reader_never_gets_another_readers_bytes(uv: bool, encrypted: bool, tmp_path: Path) -> None:
    """Every buffer is scribbled over the moment it is given back: what arrives must be what was promised."""

    async def main() -> None:
        transport, sender, theirs, read = await (
            tls_pair(certificates(tmp_path)) if encrypted else plain_pair()
        )
        assert sender.outbox is not None
        paused_most = 0
        rng = random.Random(7)
        expected = bytearray()
        for _ in range(40):
            parts = [rng.randbytes(rng.choice((10, 3_000, 70_000, 300_000))) for _ in range(3)]
            sender.outbox.put([b"HEAD", Stock(*parts, cold=rng.random() < 0.3), b"TAIL"])
            expected += b"HEAD" + b"".join(parts) + b"TAIL"
        sender.outbox.flush()
        found = bytearray()
        while len(found) < len(expected):
            found += await read(rng.choice((100, 5_000, 100_000)))
            paused_most += sender.outbox.paused
        same = found == expected  # apart from the assert, which would explain megabytes
        cast(asyncio.Transport, transport).abort()
        theirs.close()
        assert same
        assert paused_most, "the reader was never slower than the sender"
        assert sender.outbox.idle

    factory = pytest.importorskip("uvloop").new_event_loop if uv else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main(), 60))
