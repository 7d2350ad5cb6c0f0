"""kill -9 of the server at random moments, under the load of real clients."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

import pytest
from tests.interop.deadline import wait_until
from tests.interop.history import History
from tests.interop.load import PARTITIONS, Reader, Writer, read_everything
from tests.interop.server import ServerProcess


@pytest.mark.slow
def test_acknowledged_records_outlive_kills(own_server: ServerProcess, rng: random.Random) -> None:
    run_kills(own_server, rng, kills=4)


@pytest.mark.heavy
def test_acknowledged_records_outlive_a_hundred_kills(own_server: ServerProcess, rng: random.Random) -> None:
    run_kills(own_server, rng, kills=100)


def run_kills(server: ServerProcess, rng: random.Random, *, kills: int) -> None:
    """Two producers and a group of two go on while the server dies again and again."""
    history = History()
    bootstrap = server.bootstrap
    readers = [Reader(bootstrap, history) for _ in range(2)]
    with ExitStack() as reading:
        for reader in readers:
            reading.enter_context(reader)
        with ExitStack() as writing:
            writers = [
                writing.enter_context(Writer(bootstrap, name, history)) for name in ("first", "second")
            ]
            for _ in range(kills):
                before = [writer.acknowledged for writer in writers]
                wait_until(
                    lambda before=before: all(  # type: ignore[misc]
                        writer.acknowledged > count for writer, count in zip(writers, before, strict=True)
                    ),
                    within_s=90,
                    what=lambda: f"acknowledged {[writer.acknowledged for writer in writers]}",
                )
                time.sleep(rng.random() * 0.3)  # the moment of the kill is anywhere in the traffic
                server.kill()
                server.start()
        final = read_everything(bootstrap)
        everything = {(index, offset) for index, rows in final.items() for offset, _ in rows}
        wait_until(
            lambda: everything <= set().union(*(reader.seen for reader in readers)),
            within_s=120,
            what=lambda: (
                f"the group has seen {[len(reader.seen) for reader in readers]} of {len(everything)}"
            ),
        )
    history.check(final)
    assert len(history.acknowledged) == len(everything) > PARTITIONS
