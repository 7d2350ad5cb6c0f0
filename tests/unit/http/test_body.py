"""Request bodies: counted, by lines however they are cut, and given up where they do not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from tailrace.http import HttpConfig
from tailrace.http.body import pieces_of, read_lines, read_whole
from tailrace.http.error import Code, HttpError
from tailrace.net import Holding, RequestBudget

SMALL = HttpConfig(body_bytes_max=10, line_bytes_max=10)
IMPATIENT = HttpConfig(body_timeout_s=0.01)


def request(pieces: Iterable[bytes], *, length: str = "", then: str = "end") -> Request:
    """A body that comes in pieces, and then ends, is broken off ("disconnect") or goes silent ("silence")."""
    messages: list[Message] = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
    if then == "end":
        messages.append({"type": "http.request", "body": b"", "more_body": False})
    elif then == "disconnect":
        messages.append({"type": "http.disconnect"})
    waiting = iter(messages)

    async def receive() -> Message:
        for message in waiting:
            return message
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    headers = [(b"content-length", length.encode())] if length else []
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def whole(pieces: Iterable[bytes], config: HttpConfig = SMALL, **how: str) -> bytes:
    async def main() -> bytes:
        budget = RequestBudget(1000)
        held = Holding(budget)
        try:
            return await read_whole(request(pieces, **how), config, held)
        finally:
            held.release()
            assert budget.used == 0

    return asyncio.run(main())


def lines(pieces: Iterable[bytes], config: HttpConfig = SMALL, **how: str) -> list[bytes]:
    async def main() -> list[bytes]:
        return [
            line
            async for found in read_lines(request(pieces, **how), config, RequestBudget(1000))
            for line in found
        ]

    return asyncio.run(main())


def refused(work: Callable[[], object], code: Code, status: int) -> HttpError:
    with pytest.raises(HttpError) as refusal:
        work()
    assert (refusal.value.code, refusal.value.status) == (code, status)
    return refusal.value


def in_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


# ---- as a whole


@pytest.mark.parametrize("pieces", [[], [b""], [b"0123456789"], in_bytes(b"0123456789")])
def test_a_body_within_the_bound_is_read_however_it_comes(pieces: Sequence[bytes]) -> None:
    assert whole(pieces) == b"".join(pieces)


def test_an_announced_length_over_the_bound_is_refused_before_anything_is_read() -> None:
    error = refused(lambda: whole([], length="11", then="silence"), Code.MESSAGE_TOO_LARGE, 413)
    assert error.details == {"bytes_max": 10}


def test_a_length_of_thousands_of_digits_is_only_a_large_one() -> None:
    refused(lambda: whole([], length="9" * 5000, then="silence"), Code.MESSAGE_TOO_LARGE, 413)


@pytest.mark.parametrize("length", ["", "0", "5", "-1", "x"])
def test_what_arrives_is_counted_whatever_was_announced(length: str) -> None:
    refused(lambda: whole([b"012345", b"67890"], length=length, then="silence"), Code.MESSAGE_TOO_LARGE, 413)


def test_a_body_that_is_broken_off_is_an_error_of_the_client() -> None:
    refused(lambda: whole([b"01"], then="disconnect"), Code.INVALID_REQUEST, 400)


def test_a_body_that_does_not_go_on_is_given_up() -> None:
    error = refused(lambda: whole([b"01"], IMPATIENT, then="silence"), Code.INVALID_REQUEST, 408)
    assert "did not go on within 0.01 s" in str(error)


def test_a_body_that_trickles_has_a_deadline_for_all_of_it() -> None:
    config = HttpConfig(request_timeout_s=0.05)

    async def main() -> None:
        async def receive() -> Message:
            await asyncio.sleep(0.001)
            return {"type": "http.request", "body": b"x", "more_body": True}

        endless = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
        await asyncio.wait_for(read_whole(endless, config, Holding(RequestBudget(1 << 20))), 30)

    error = refused(lambda: asyncio.run(main()), Code.INVALID_REQUEST, 408)
    assert "was not complete within 0.05 s" in str(error)


# ---- by lines


@given(st.lists(st.binary(max_size=10).map(lambda each: each.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_are_the_same_however_the_body_is_cut(written: list[bytes], data: st.DataObject) -> None:
    body = b"\n".join(written)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)))) | {0, len(body)})
    pieces = [body[start:end] for start, end in pairwise(cuts)]
    wanted = [line for line in written if line.strip()]
    assert lines(pieces) == lines(in_bytes(body)) == lines([body]) == wanted


def test_the_last_line_needs_no_end() -> None:
    assert lines([b"a\nb"]) == lines([b"a\nb\n"]) == [b"a", b"b"]


def test_lines_come_as_they_become_complete() -> None:
    async def main() -> None:
        found = read_lines(request([b"a\nb", b"c\n\n", b"d"], then="silence"), SMALL, RequestBudget(1000))
        assert await anext(found) == [b"a"]
        assert await anext(found) == [b"bc"]

    asyncio.run(main())


def test_a_body_may_be_as_long_as_it_likes_if_its_lines_are_short() -> None:
    assert lines([b"0123456789\n"] * 1000) == [b"0123456789"] * 1000


@pytest.mark.parametrize(
    "pieces",
    [
        [b"01234567890\n"],
        [b"a\n01234567890\nb\n"],
        [b"012345", b"67890"],  # refused before its end is there
        in_bytes(b"01234567890"),
        [b"a\n" + b"x" * 11],
    ],
)
def test_a_line_over_the_bound_is_refused(pieces: Sequence[bytes]) -> None:
    error = refused(lambda: lines(pieces, then="silence"), Code.MESSAGE_TOO_LARGE, 413)
    assert error.details == {"bytes_max": 10}


def test_lines_before_a_break_are_given_and_the_break_is_told() -> None:
    found: list[list[bytes]] = []

    async def collect() -> None:
        async for each in read_lines(request([b"a\nb"], then="disconnect"), SMALL, RequestBudget(1000)):
            found.append(each)  # noqa: PERF401 - what came before the error counts

    refused(lambda: asyncio.run(collect()), Code.INVALID_REQUEST, 400)
    assert found == [[b"a"]]


def test_pieces_are_what_arrives() -> None:
    async def main() -> list[bytes]:
        return [each async for each in pieces_of(request([b"a", b"", b"b"]), SMALL)]

    assert asyncio.run(main()) == [b"a", b"b"]


# ---- counted


async def turn() -> None:
    """Let what can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


class Sender:
    """A client whose body the test sends a piece at a time; `asked` is how often the next was asked for."""

    def __init__(self, length: str = "") -> None:
        self.asked = 0
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        headers = [(b"content-length", length.encode())] if length else []
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        self.request = Request(scope, self._receive)

    async def _receive(self) -> Message:
        self.asked += 1
        return await self._messages.get()

    def send(self, piece: bytes, *, more: bool = True) -> None:
        self._messages.put_nowait({"type": "http.request", "body": piece, "more_body": more})


def give_pass_to_another(budget: RequestBudget) -> None:
    """Have another request be the one that grows although there is no room."""
    budget._shared.passed = Holding(budget)


def test_the_length_that_a_client_announces_costs_nothing() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        assert budget.take_nowait(95)
        sender, held = Sender("10"), Holding(budget)
        reading = asyncio.create_task(read_whole(sender.request, HttpConfig(), held))
        await turn()
        assert budget.used == 95 and "0 waiting" in repr(budget)
        sender.send(b"0123456789", more=False)
        await turn()
        assert budget.exhausted and budget.used == 95
        budget.give(5)
        assert await reading == b"0123456789" and held.bytes == 10

    asyncio.run(main())


def test_a_body_of_unknown_length_is_counted_as_it_comes() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        assert budget.take_nowait(90)
        sender, held = Sender(), Holding(budget)
        reading = asyncio.create_task(read_whole(sender.request, HttpConfig(), held))
        sender.send(b"01234567")
        await turn()
        assert budget.used == 98 and sender.asked == 2
        give_pass_to_another(budget)
        sender.send(b"890")
        sender.send(b"", more=False)
        await turn()
        assert budget.exhausted and budget.used == 98 and sender.asked == 2, "it is not read on"
        budget.give(1)
        assert await reading == b"01234567890" and budget.used == 100 and held.bytes == 11

    asyncio.run(main())


@pytest.mark.parametrize("length", ["", "10"])
def test_a_body_for_which_there_is_no_room_is_refused(length: str) -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        assert budget.take_nowait(95)
        sender, held = Sender(length), Holding(budget)
        sender.send(b"0123456789", more=False)
        config = HttpConfig(body_timeout_s=0.05, request_timeout_s=0.02)  # not its own time that runs out
        try:
            await read_whole(sender.request, config, held)
        finally:
            assert budget.used == 95 and not budget.exhausted

    error = refused(lambda: asyncio.run(main()), Code.BROKER_NOT_AVAILABLE, 503)
    assert "no room for this request for 0.05 s. Send it again later" in str(error)
    assert error.headers == {"retry-after": "10"}


def test_the_time_for_which_a_body_waits_for_room_is_not_the_client_s() -> None:
    async def main() -> bytes:
        budget = RequestBudget(100)
        assert budget.take_nowait(100)
        sender, held = Sender(), Holding(budget)
        config = HttpConfig(request_timeout_s=0.2)
        reading = asyncio.create_task(read_whole(sender.request, config, held))
        sender.send(b"0", more=False)
        asyncio.get_running_loop().call_later(0.5, budget.give, 1)
        return await reading

    assert asyncio.run(main()) == b"0"


def test_lines_count_until_the_next_ones_are_asked_for_and_an_unfinished_one_until_it_ends() -> None:
    async def main() -> None:
        budget = RequestBudget(1000)
        sender = Sender()
        found = read_lines(sender.request, HttpConfig(), budget)
        sender.send(b"one\ntwo\nthr")
        assert await anext(found) == [b"one", b"two"] and budget.used == 11
        waiting = asyncio.ensure_future(anext(found))
        await turn()
        assert budget.used == 3
        sender.send(b"ee\n")
        assert await waiting == [b"three"] and budget.used == 6
        await found.aclose()
        assert budget.used == 0

    asyncio.run(main())


def test_lines_are_not_read_on_without_room() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        assert budget.take_nowait(95)
        sender = Sender()
        found = read_lines(sender.request, HttpConfig(), budget)
        sender.send(b"abc")
        waiting = asyncio.ensure_future(anext(found))
        await turn()
        assert budget.used == 98
        give_pass_to_another(budget)
        sender.send(b"def\n")
        await turn()
        assert budget.exhausted and sender.asked == 2 and budget.used == 98
        budget.give(95)
        assert await waiting == [b"abcdef"] and budget.used == 7
        await found.aclose()

    asyncio.run(main())


def test_a_line_that_does_not_end_is_given_up_however_it_trickles() -> None:
    async def main() -> None:
        sender = Sender()
        config = HttpConfig(request_timeout_s=0.3, body_timeout_s=60.0)
        found = read_lines(sender.request, config, RequestBudget(1000))
        sender.send(b"one\ntw")
        assert await anext(found) == [b"one"]

        async def trickle() -> None:
            while True:
                sender.send(b"x")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        try:
            await anext(found)
        finally:
            trickling.cancel()

    error = refused(lambda: asyncio.run(main()), Code.INVALID_REQUEST, 408)
    assert "the line was not complete within 0.3 s" in str(error)


def test_a_body_that_stops_while_others_wait_for_its_bytes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.net.budget.GRACE_S", 0.05)
    monkeypatch.setattr("tailrace.net.budget._PRESS_S", 0.02)

    async def main() -> None:
        budget = RequestBudget(100)
        slow, quick = Sender(), Sender("90")
        held = Holding(budget), Holding(budget)
        slow.send(b"x" * 80)

        async def read_slow() -> None:
            try:
                await read_whole(slow.request, HttpConfig(), held[0])
            finally:
                held[0].release()

        stopped = asyncio.create_task(read_slow())
        await turn()
        quick.send(b"y" * 90, more=False)
        assert await read_whole(quick.request, HttpConfig(), held[1]) == b"y" * 90
        await stopped

    async def guarded() -> None:
        async with asyncio.timeout(30):
            await main()

    error = refused(lambda: asyncio.run(guarded()), Code.INVALID_REQUEST, 408)
    assert "arrives slowly, and others wait for its memory" in str(error)
