"""Request bodies, bounded: as a whole, or line by line.

A length that a client announces is checked before a byte is read, and what arrives is counted all the same. A
body by lines (NDJSON) may be endless; the bound is on each line. One that is taken as a whole must be there
within `request_timeout_s`, however it trickles, and of every one the next piece within `body_timeout_s`.

What is read is counted against the listener's share of the node's request bytes (`net.budget`):

- A whole body of a known length takes its length before its first byte is read; one of an unknown length
  takes each piece when it arrives. Both hold it until the request is answered.
- Lines take each piece when it arrives, and give it back when its lines are stored; an unfinished line stays.

Without room the body is not read on, so that TCP slows the client down, and after `body_timeout_s` without
room the request is refused with 503. A body does not wait while it holds: see `net.budget.Holding`. What the
server reads before the app asks for it, about 64 KiB of each body, is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from starlette.requests import ClientDisconnect, Request

from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError, invalid
from tailrace.net import Holding, RequestBudget


async def read_whole(request: Request, config: HttpConfig, held: Holding) -> bytes:
    """All of it, counted in `held`; MESSAGE_TOO_LARGE if it is over the bound."""
    most = config.body_bytes_max
    announced = _announced(request)
    if announced > most:
        raise _too_large("body", most, "Send less at a time, or NDJSON, which has no bound but for its lines")
    await hold(held, announced, config)
    try:
        async with asyncio.timeout(config.request_timeout_s) as deadline:
            return await _read_counted(request, config, held, deadline)
    except TimeoutError as error:
        raise _too_slow(f"was not complete within {config.request_timeout_s:g} s") from error


async def _read_counted(
    request: Request, config: HttpConfig, held: Holding, deadline: asyncio.Timeout
) -> bytes:
    body = bytearray()
    async for piece in pieces_of(request, config):
        size = len(body) + len(piece)
        if size > config.body_bytes_max:
            raise _too_large("body", config.body_bytes_max, "Send less at a time, or NDJSON")
        if size > held.bytes:
            due, now = deadline.when(), asyncio.get_running_loop().time
            assert due is not None
            left = due - now()
            deadline.reschedule(None)  # the time that passes now is not the client's
            await hold(held, size, config)
            deadline.reschedule(now() + left)
        body += piece
    return bytes(body)


async def read_lines(
    request: Request, config: HttpConfig, budget: RequestBudget
) -> AsyncGenerator[list[bytes], None]:
    """The lines that became complete with each piece; empty ones are left out. They count until the next."""
    held = Holding(budget)
    rest = bytearray()  # of a line whose end has not come: it only grows, however small the pieces
    try:
        async for piece in pieces_of(request, config):
            await hold(held, len(rest) + len(piece), config)
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


async def pieces_of(request: Request, config: HttpConfig) -> AsyncIterator[bytes]:
    """What arrives, as it arrives; a client that stops in the middle is given up."""
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(config.body_timeout_s):
                piece = await anext(stream, b"")
        except TimeoutError as error:
            raise _too_slow(f"did not go on within {config.body_timeout_s:g} s") from error
        except ClientDisconnect as error:
            raise invalid("the client closed the connection in the middle of the body") from error
        if not piece:
            return
        yield piece


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
    return HttpError(Code.INVALID_REQUEST, f"the body {how}", status=408)
