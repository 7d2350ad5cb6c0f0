"""One HTTP request with bounds on everything: time, size, and nowhere else (no redirect is followed)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

import httptools

from tailrace.model import TailraceError

_HEAD_BYTES_MAX: Final = 32 * 1024
_READ_BYTES: Final = 16 * 1024


class CannotFetch(TailraceError):
    """There is no answer that can be used; the text names the host and never what was sent."""


class _Response:
    """Collects what the parser finds."""

    def __init__(self, bytes_max: int) -> None:
        self.body = bytearray()
        self.is_complete = False
        self.is_too_large = False
        self.ends_with_connection = True
        self._bytes_max = bytes_max

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self.ends_with_connection = False

    def on_body(self, data: bytes) -> None:
        self.is_too_large = self.is_too_large or len(self.body) + len(data) > self._bytes_max
        if not self.is_too_large:
            self.body += data

    def on_message_complete(self) -> None:
        self.is_complete = True


async def fetch(
    url: str,
    *,
    timeout_s: float,
    bytes_max: int,
    ca: str = "",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, bytes]:
    """Status and body; CannotFetch. The time is for all of it, so that a slow server gains nothing."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(timeout_s):
            tls = await asyncio.to_thread(_trust, ca) if parts.scheme == "https" else None
            return await _exchange(parts, tls, _request(parts, method, headers or {}, body), bytes_max)
    except TimeoutError:
        raise CannotFetch(f"{parts.hostname} did not answer within {timeout_s:g} s") from None
    except httptools.HttpParserError:
        raise CannotFetch(f"{parts.hostname} did not answer with HTTP") from None
    except CannotFetch as error:
        raise CannotFetch(f"{parts.hostname}: {error}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CannotFetch(f"{parts.hostname} cannot be reached: {reason}") from None


async def _exchange(
    parts: SplitResult, tls: ssl.SSLContext | None, request: bytes, bytes_max: int
) -> tuple[int, bytes]:
    port = parts.port or (443 if tls else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=tls)
    try:
        writer.write(request)
        response = _Response(bytes_max)
        parser = httptools.HttpResponseParser(response)
        received = 0
        while not response.is_complete:
            data = await reader.read(_READ_BYTES)
            if not data:
                break
            received += len(data)
            parser.feed_data(data)
            if response.is_too_large or received > 2 * bytes_max + _HEAD_BYTES_MAX:  # or endless headers
                raise CannotFetch(f"the answer has more than {bytes_max} bytes")
        if not response.is_complete and not (received and response.ends_with_connection):
            raise CannotFetch("the answer ends in the middle")
        return parser.get_status_code(), bytes(response.body)
    finally:
        writer.transport.abort()


def _request(parts: SplitResult, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    given = {
        "host": parts.netloc,
        "accept": "application/json",
        "connection": "close",
        **headers,
        **({"content-length": str(len(body))} if body or method == "POST" else {}),
    }
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    head = "\r\n".join(lines)
    if "\n" in head.replace("\r\n", "") or not head.isascii():
        raise ValueError("the address or a header has characters that do not belong there")
    return head.encode() + b"\r\n\r\n" + body


def _trust(ca: str) -> ssl.SSLContext:
    """Reads the certificates to trust, which takes milliseconds."""
    context = ssl.create_default_context(cafile=ca or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
