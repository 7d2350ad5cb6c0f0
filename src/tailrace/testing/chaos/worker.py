"""A process that works for a subscription, badly: `python -m tailrace.testing.chaos.worker`.

Of the deliveries it refuses a tenth, says nothing to a tenth, and kills itself on a twentieth, before it has
acknowledged or while the acknowledgement is on its way. Some it acknowledges when its lock has run out. The
rest it acknowledges, and writes that down when the broker has confirmed it.

Every delivery is written down with a time before which the broker cannot have sent it: when this connection
was made, before it asked to join (push), or when it asked for messages (pull). What the client still has from
an earlier connection it drops. So an acknowledgement that was confirmed before that time was confirmed before
the message was sent, and should have prevented it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

from tailrace.client import AsyncClient
from tailrace.client.native.message import AsyncMessage
from tailrace.client.native.reconnect import Reconnect
from tailrace.client.native.status import Status
from tailrace.testing.chaos.life import die, live_again_and_again, wait_told_to_end
from tailrace.testing.chaos.notes import (
    ACKNOWLEDGED,
    ACKNOWLEDGING,
    CRASHING,
    DELIVERED,
    FAILED,
    Notebook,
)
from tailrace.testing.chaos.publisher import POISON

_REFUSED = 0.10
_SILENT = 0.10
_CRASHED = 0.05
_LATE = 0.03
_PREFETCH = 6
_HANDLERS = 3
_PULL_WAIT_MS = 300
_RECONNECT = Reconnect(delay_s_min=0.02, delay_s_max=0.3)


class Working:
    """One life."""

    def __init__(self, options: argparse.Namespace, *, life: int) -> None:
        self._options = options
        self._rng = random.Random(f"{options.seed} {options.name} {life}")
        self._notebook = Notebook(options.notes)
        self._connected_ns = 0
        self._ending = False

    async def run(self) -> None:
        options = self._options
        async with AsyncClient(
            port=options.port,
            client_id=options.name,
            connect_timeout_s=30,
            reconnect=_RECONNECT,
            on_status=self._note_status,
        ) as client:
            if options.pull:
                pulling = [asyncio.create_task(self._pull(client)) for _ in range(_HANDLERS)]
                ended = asyncio.create_task(wait_told_to_end())
                await asyncio.wait([ended, *pulling], return_when=asyncio.FIRST_COMPLETED)
                self._ending = True
                await asyncio.gather(ended, *pulling)
                return
            await client.subscribe_to_subscription(
                options.subscription,
                handler=lambda message: self._handle(message, sent_after_ns=self._connected_ns),
                auto_ack=False,
                prefetch=_PREFETCH,
                concurrency=_HANDLERS,
                extend=False,
            )
            await wait_told_to_end()

    def _note_status(self, status: Status) -> None:
        if status is Status.CONNECTED:
            self._connected_ns = time.monotonic_ns()

    async def _pull(self, client: AsyncClient) -> None:
        while not self._ending:
            asked_ns = time.monotonic_ns()
            count = self._rng.randint(1, _PREFETCH)
            for message in await client.pull(self._options.subscription, count, _PULL_WAIT_MS):
                await self._handle(message, sent_after_ns=asked_ns)

    async def _handle(self, message: AsyncMessage, *, sent_after_ns: int) -> None:
        rng, draw = self._rng, self._rng.random()
        self._notebook.write(DELIVERED, message.text, sent_after_ns)
        if draw < _CRASHED:
            await self._crash(message)
        elif draw < _CRASHED + _SILENT:
            return
        elif draw < _CRASHED + _SILENT + _REFUSED or message.text.endswith(POISON):
            await message.nack(delay_ms=rng.choice((None, 0, 20)), reason=f"refused by {self._options.name}")
        else:
            if draw > 1 - _LATE:
                await asyncio.sleep(self._options.ack_timeout_s * 1.3)
            await asyncio.sleep(rng.random() * 0.005)
            await self._acknowledge(message)

    async def _acknowledge(self, message: AsyncMessage) -> None:
        self._notebook.write(ACKNOWLEDGING, message.text)
        try:
            await message.ack()
        except Exception as error:
            self._notebook.write(FAILED, f"acknowledge {message.text}: {error!r}")
            raise
        self._notebook.write(ACKNOWLEDGED, message.text, time.monotonic_ns())

    async def _crash(self, message: AsyncMessage) -> None:
        if self._rng.random() < 0.5 and not message.text.endswith(POISON):
            leaving = asyncio.ensure_future(self._acknowledge(message))
            await asyncio.wait([leaving], timeout=self._rng.random() * 0.005)
        self._notebook.write(CRASHING, message.text)
        die()


def main() -> int:
    """Parse, live, and answer with the exit code."""
    parser = argparse.ArgumentParser(prog="tailrace.testing.chaos.worker", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--notes", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ack-timeout-s", type=float, required=True, help="the subscription's")
    parser.add_argument("--pull", action="store_true", help="ask for messages instead of being pushed to")
    options = parser.parse_args()
    return live_again_and_again(lambda life: Working(options, life=life).run())


if __name__ == "__main__":
    sys.exit(main())
