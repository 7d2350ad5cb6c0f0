"""A process that publishes until it is told to end: `python -m tailrace.testing.chaos.publisher`.

Several messages are under way at a time, each with an id that is used once, in all lives. Whatever the broker
confirms is written down. What was under way when a life ended may be there or not, and is not tried again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from tailrace.client import AsyncClient
from tailrace.client.native.reconnect import Reconnect
from tailrace.testing.chaos.life import die, live_again_and_again, wait_told_to_end
from tailrace.testing.chaos.notes import CRASHING, FAILED, PUBLISHED, TRYING, Notebook, read_notes

POISON = "!"
"""The end of an id that no worker ever acknowledges."""

_POISON_EVERY = 60
_KEYS = 17  # of one publisher
_CRASHES_PER_MESSAGE = 0.002
_RECONNECT = Reconnect(delay_s_min=0.02, delay_s_max=0.3)


class Publishing:
    """One life."""

    def __init__(self, options: argparse.Namespace, *, life: int) -> None:
        self._options = options
        self._rng = random.Random(f"{options.seed} {options.name} {life}")
        self._numbers = _numbers_after(options.notes)
        self._notebook = Notebook(options.notes)

    async def run(self) -> None:
        options = self._options
        async with AsyncClient(
            port=options.port, client_id=options.name, connect_timeout_s=30, reconnect=_RECONNECT
        ) as client:
            lanes = [asyncio.create_task(self._publish(client)) for _ in range(options.at_once)]
            ended = asyncio.create_task(wait_told_to_end())
            await asyncio.wait([ended, *lanes], return_when=asyncio.FIRST_COMPLETED)
            self._numbers = iter(())  # what is under way is finished
            await asyncio.gather(ended, *lanes)

    async def _publish(self, client: AsyncClient) -> None:
        notebook, rng = self._notebook, self._rng
        while (number := next(self._numbers, None)) is not None:
            id = f"{self._options.name}-{number}{POISON if number % _POISON_EVERY == 0 else ''}"
            key = f"{self._options.name}-{number % _KEYS}"
            notebook.write(TRYING, id)
            sending = asyncio.ensure_future(client.publish(self._options.topic, id, key=key))
            if rng.random() < _CRASHES_PER_MESSAGE:
                await asyncio.sleep(rng.random() * 0.003)  # before it leaves, or when it may have arrived
                notebook.write(CRASHING, id)
                die()
            try:
                published = await sending
            except Exception as error:
                notebook.write(FAILED, f"publish {id}: {error!r}")
                raise
            notebook.write(PUBLISHED, id, published.offset)
            await asyncio.sleep(rng.random() * self._options.pause_s)


def _numbers_after(notes: Path) -> Iterator[int]:
    tried = (note.id for note in read_notes(notes) if note.kind == TRYING)
    last = max((int(id.rstrip(POISON).rsplit("-", 1)[1]) for id in tried), default=-1)
    return itertools.count(last + 1)


def main() -> int:
    """Parse, live, and answer with the exit code."""
    parser = argparse.ArgumentParser(prog="tailrace.testing.chaos.publisher", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--notes", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--pause-s", type=float, default=0.04, help="the longest wait after a message")
    options = parser.parse_args()
    return live_again_and_again(lambda life: Publishing(options, life=life).run())


if __name__ == "__main__":
    sys.exit(main())
