"""Request bodies, bounded: as a whole, or line by line.

A length that a client announces is checked before a byte is read, and what arrives is counted all the same. A
body by lines (NDJSON) may be endless; the bound is on each line. One that is taken as a whole must be there
within `request_timeout_s`, however it trickles, and of every one the next piece within `body_timeout_s`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.requests import ClientDisconnect, Request

from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError, invalid


async def read_whole(request: Request, config: HttpConfig) -> bytes:
    """All of it; MESSAGE_TOO_LARGE if that is over the bound."""
    most = config.body_bytes_max
    if _announced(request) > most:
        raise _too_large("body", most, "Send less at a time, or NDJSON, which has no bound but for its lines")
    try:
        async with asyncio.timeout(config.request_timeout_s):
            return await _read_counted(request, config)
    except TimeoutError as error:
        raise _too_slow(f"was not complete within {config.request_timeout_s:g} s") from error


async def _read_counted(request: Request, config: HttpConfig) -> bytes:
    body = bytearray()
    async for piece in pieces_of(request, config):
        body += piece
        if len(body) > config.body_bytes_max:
            raise _too_large("body", config.body_bytes_max, "Send less at a time, or NDJSON")
    return bytes(body)


async def read_lines(request: Request, config: HttpConfig) -> AsyncIterator[list[bytes]]:
    """The lines that became complete with each piece; empty ones are left out."""
    rest = bytearray()  # of a line whose end has not come: it only grows, however small the pieces
    async for piece in pieces_of(request, config):
        first, *others = piece.split(b"\n")
        rest += first
        lines: list[bytes] = []
        if others:
            lines = [bytes(rest), *others[:-1]]
            rest = bytearray(others[-1])
        _check_lines([*lines, rest], config)
        if found := [line for line in lines if line.strip()]:
            yield found
    if rest.strip():
        yield [bytes(rest)]


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
