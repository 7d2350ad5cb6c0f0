"""Clients that are gone before their answer: whoever works or waits for one hears of it here.

ASGI tells it among the pieces of the body. So this is for requests whose body was read, or has none; what a
client sends on is passed over.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from tailrace.http.service import HttpService


async def wait_disconnect(receive: Receive) -> None:
    """Come back when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def wait_done(done: asyncio.Future[None], receive: Receive) -> bool:
    """Wait until something is done, which is not ended here; False if the client is gone by then."""
    gone = asyncio.ensure_future(wait_disconnect(receive))
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        return not gone.done()
    finally:
        gone.cancel()


async def wait_over(service: HttpService, receive: Receive) -> None:
    """Come back when there is no use in waiting: the client is gone, or the node stops."""
    stopping = asyncio.ensure_future(service.wait_stopping())
    try:
        await wait_done(stopping, receive)
    finally:
        stopping.cancel()
