"""Request bodies, bounded: as a whole, or line by line.

A length that a client announces is checked before a byte is read, and what arrives is counted all the same. A
body by lines (NDJSON) may be endless; the bounds are on each line. A body that is taken as a whole, and a
line, must be there within `request_timeout_s`, however it trickles, and of every body the next piece within
`body_timeout_s`.

What is read counts as it arrives, against the listener's share of the node's request bytes (`net.budget`):

- A whole body takes each piece, and holds all of them until the request is answered.
- Lines take each piece, and give it back when its lines are stored; an unfinished line stays.

Without room the body is not read on, so that TCP slows the client down, and after `body_timeout_s` without
room the request is refused with 503. While others wait for room, a body that arrives slowly is refused with
408. What the server reads before the app asks for it, about 64 KiB of each body, is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from starlette.requests import ClientDisconnect, Request

from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError, invalid
from tailrace.net import Holding, RequestBudget


class _Time:
    """When something must be here: a body, or a line of one."""

    __slots__ = ("_allowed_s", "_loop", "due", "what")

    def __init__(self, what: str, allowed_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._allowed_s = allowed_s
        self.what = what
        self.restart()

    def restart(self) -> None:
        self.due = self._loop.time() + self._allowed_s

    @property
    def left_s(self) -> float:
        return self.due - self._loop.time()

    async def hold(self, held: Holding, size: int, config: HttpConfig) -> None:
        """Count so many bytes; the time that passes meanwhile is not the client's."""
        began = self._loop.time()
        await hold(held, size, config)
        self.due += self._loop.time() - began

    def is_over(self) -> HttpError | None:
        if self.left_s > 0:
            return None
        return _too_slow(f"the {self.what} was not complete within {self._allowed_s:g} s")


async def read_whole(request: Request, config: HttpConfig, held: Holding) -> bytes:
    """All of it, counted in `held`; MESSAGE_TOO_LARGE if it is over the bound."""
    most = config.body_bytes_max
    announced = _announced(request)
    if announced > most:
        raise _too_large("body", most, "Send less at a time, or NDJSON, which has no bound but for its lines")
    held.expected = announced
    time = _Time("body", config.request_timeout_s)
    body = bytearray()
    async for piece in pieces_of(request, config, held=held, time=time):
        size = len(body) + len(piece)
        if size > most:
            raise _too_large("body", most, "Send less at a time, or NDJSON")
        await time.hold(held, size, config)
        body += piece
    held.complete()
    return bytes(body)


async def read_lines(
    request: Request, config: HttpConfig, budget: RequestBudget
) -> AsyncGenerator[list[bytes], None]:
    """The lines that became complete with each piece; empty ones are left out. They count until the next."""
    held = Holding(budget, _address(request))
    time = _Time("line", config.request_timeout_s)
    rest = bytearray()  # of a line whose end has not come: it only grows, however small the pieces
    try:
        async for piece in pieces_of(request, config, held=held, time=time):
            await time.hold(held, len(rest) + len(piece), config)
            first, *others = piece.split(b"\n")
            rest += first
            lines: list[bytes] = []
            if others:
                lines = [bytes(rest), *others[:-1]]
                rest = bytearray(others[-1])
            _check_lines([*lines, rest], config)
            if found := [line for line in lines if line.strip()]:
                yield found
            await held.resize(len(rest))
            if others or not rest:
                time.restart()
                held.restart()
        if rest.strip():
            yield [bytes(rest)]
    finally:
        held.release()


async def hold(held: Holding, size: int, config: HttpConfig) -> None:
    """Count so many bytes, waiting for them if need be; BROKER_NOT_AVAILABLE if they do not come free."""
    try:
        async with asyncio.timeout(config.body_timeout_s):
            await held.resize(size)
    except TimeoutError as error:
        raise HttpError(
            Code.BROKER_NOT_AVAILABLE,
            f"the node has had no room for this request for {config.body_timeout_s:g} s. Send it again later",
            headers={"retry-after": "10"},
        ) from error


async def pieces_of(
    request: Request, config: HttpConfig, *, held: Holding | None = None, time: _Time | None = None
) -> AsyncIterator[bytes]:
    """What arrives, as it arrives; a client that stops in the middle is given up."""
    stream = request.stream()
    while True:
        allowed_s = config.body_timeout_s if time is None else min(config.body_timeout_s, time.left_s)
        try:
            async with asyncio.timeout(allowed_s) as deadline:
                if held is not None:
                    held.deadline = deadline
                piece = await anext(stream, b"")
        except TimeoutError as error:
            raise _why_too_slow(config, time, held) from error
        except ClientDisconnect as error:
            raise invalid("the client closed the connection in the middle of the body") from error
        finally:
            if held is not None:
                held.deadline = None
        if not piece:
            return
        yield piece


def _why_too_slow(config: HttpConfig, time: _Time | None, held: Holding | None) -> HttpError:
    if time is not None and (over := time.is_over()) is not None:
        return over
    if held is not None and held.is_refused:
        return _too_slow("the body arrives slowly, and others wait for its memory. Send it again, or faster")
    return _too_slow(f"the body did not go on within {config.body_timeout_s:g} s")


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _announced(request: Request) -> int:
    """How long the body is said to be; 0 if that is not said."""
    text = request.headers.get("content-length", "")
    return int(text[:19]) if text.isdecimal() else 0  # nineteen digits are too many already


def _check_lines(lines: Sequence[bytes | bytearray], config: HttpConfig) -> None:
    if any(len(line) > config.line_bytes_max for line in lines):
        raise _too_large("line", config.line_bytes_max, "Send smaller records")


def _too_large(what: str, most: int, advice: str) -> HttpError:
    return HttpError(
        Code.MESSAGE_TOO_LARGE, f"a {what} may have {most} bytes. {advice}", details={"bytes_max": most}
    )


def _too_slow(how: str) -> HttpError:
    return HttpError(Code.INVALID_REQUEST, how, status=408)
