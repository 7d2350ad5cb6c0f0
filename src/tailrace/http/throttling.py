"""Quotas of HTTP clients, where any are set: bodies are charged, and a client in debt is told to come later.

A request to /api/ by a client in debt is answered 429 with Retry-After, and nothing is done. Bodies are
charged as they come and go. One that is long, or never ends, is read or written only as fast as the quota
allows. The client id is empty, so that quotas of users hold, and those of client ids do not. Quotas
themselves can always be changed, and the time of the thread is not charged.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.http.error import Code, HttpError
from tailrace.http.session import session_of
from tailrace.net.metering import Meter, Metering

_CHARGED: Final = "/api/"
_FREE: Final = "/api/v1/quotas"


class QuotaExceeded(HttpError):
    """The client is to come later."""


def meter_of(metering: Metering, scope: Scope) -> Meter | None:
    """What a request is charged to."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if scope["type"] != "http" or not path.startswith(_CHARGED) or path == _FREE:
        return None
    return metering.meter(session_of(scope).principal.name, "")


def check_debt(meter: Meter) -> None:
    """QUOTA_EXCEEDED for a client that owes."""
    wait_s = meter.debt_s()
    if wait_s > 0:
        seconds = math.ceil(wait_s)
        raise QuotaExceeded(
            Code.QUOTA_EXCEEDED,
            f"a quota is used up. Try again in {seconds} s. The broker's administrator sees quotas with: "
            "tailrace quota list",
            headers={"retry-after": str(seconds)},
        )


async def serve_metered(app: ASGIApp, meter: Meter, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request at the pace of its client's quotas."""

    async def charged_receive() -> Message:
        message = await receive()
        wait_s = meter.produced(len(message.get("body", b"")))
        if wait_s and message.get("more_body"):
            await asyncio.sleep(wait_s)
        return message

    async def charged_send(message: Message) -> None:
        await send(message)
        wait_s = meter.fetched(len(message.get("body", b"")))
        if wait_s and message.get("more_body"):
            await asyncio.sleep(wait_s)

    await app(scope, charged_receive, charged_send)
