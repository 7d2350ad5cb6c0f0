"""Request bodies, bounded: as a whole, or line by line.

A length that a client announces is checked before a byte is read, and what arrives is counted all the same. A
body by lines (NDJSON) may be endless; the bound is on each line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError, invalid


async def read_whole(request: Request, config: HttpConfig) -> bytes:
    """All of it; MESSAGE_TOO_LARGE if that is over the bound."""
    most = config.body_bytes_max
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > most:
        raise _too_large("body", most, "Send less at a time, or NDJSON, which has no bound but for its lines")
    pieces: list[bytes] = []
    size = 0
    async for piece in pieces_of(request, config):
        size += len(piece)
        if size > most:
            raise _too_large("body", most, "Send less at a time, or NDJSON")
        pieces.append(piece)
    return b"".join(pieces)


async def read_lines(request: Request, config: HttpConfig) -> AsyncIterator[list[bytes]]:
    """The lines that became complete with each piece; empty ones are left out."""
    rest = b""
    async for piece in pieces_of(request, config):
        *lines, rest = (rest + piece).split(b"\n")
        _check_lines(lines, rest, config)
        if found := [line for line in lines if line.strip()]:
            yield found
    if rest.strip():
        yield [rest]


async def pieces_of(request: Request, config: HttpConfig) -> AsyncIterator[bytes]:
    """What arrives, as it arrives; a client that stops in the middle is given up."""
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(config.body_timeout_s):
                piece = await anext(stream, b"")
        except TimeoutError as error:
            raise HttpError(
                Code.INVALID_REQUEST, f"the body did not go on within {config.body_timeout_s:g} s", status=408
            ) from error
        except ClientDisconnect as error:
            raise invalid("the client closed the connection in the middle of the body") from error
        if not piece:
            return
        yield piece


def _check_lines(lines: list[bytes], rest: bytes, config: HttpConfig) -> None:
    if len(rest) > config.line_bytes_max or any(len(line) > config.line_bytes_max for line in lines):
        raise _too_large("line", config.line_bytes_max, "Send smaller records")


def _too_large(what: str, most: int, advice: str) -> HttpError:
    return HttpError(
        Code.MESSAGE_TOO_LARGE, f"a {what} may have {most} bytes. {advice}", details={"bytes_max": most}
    )
