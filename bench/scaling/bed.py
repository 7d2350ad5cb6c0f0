"""The server under one point of a curve: fresh, and gone afterwards with all that it wrote.

Every wait has a deadline: a server that does not come back costs a minute and its point, not the run.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.generator import figures
from bench.measure import Durations
from bench.report import Row
from bench.server import TailraceServer
from bench.server.process import HOST
from tailrace.bench.wire import Lane, LoadError, Usage, Window, drive, tree_usage
from tailrace.bench.wire.topic import admin

_WAIT_S = 60.0
_LOOK_EVERY_S = 0.005


class Bed:
    """One running Tailrace with its defaults, in a directory of its own."""

    def __init__(self, server: TailraceServer, place: Path, durations: Durations) -> None:
        self._server = server
        self.place = place
        self.durations = durations

    host = HOST

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def pid(self) -> int:
        return self._server.pid

    def usage(self) -> Usage:
        """What it has used so far and holds now."""
        found = tree_usage(self.pid)
        if found is None:
            raise LoadError("the server is gone, or there is no /proc to look into")
        return found

    @property
    def rss_mb(self) -> float:
        return self.usage().rss_bytes / 1e6

    def restart(self, ready: Callable[[], bool], *, kill: bool = False) -> Row:
        """End it, start it, and wait for `ready`: `listening_ms` until it answers, `ready_ms` in all."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        self._server.stop()
        began = time.monotonic()
        listening_s = self._server.start(self.place)
        wait_until(ready, what="the server to be ready again")
        return {"listening_ms": listening_s * 1e3, "ready_ms": (time.monotonic() - began) * 1e3}

    def drive(self, lanes: Sequence[Lane]) -> Row:
        """The figures of a load; its connections are closed."""
        usages: list[Usage | None] = []
        window = Window(
            warm_s=self.durations.warm_s,
            seconds=self.durations.seconds,
            mark=lambda: usages.append(tree_usage(self.pid)),
        )
        try:
            return figures(drive(lanes, window), usages)
        finally:
            for lane in lanes:
                lane.sock.close()

    def leads(self, topic: str, partitions: int) -> bool:
        """Whether every partition answers."""
        with admin(self.host, self.port) as client:
            return client.led(topic, partitions=partitions)


def wait_until(true: Callable[[], bool], *, what: str) -> None:
    """Return when it is; LoadError after a minute."""
    deadline = time.monotonic() + _WAIT_S
    while not true():
        if time.monotonic() > deadline:
            raise LoadError(f"waited {_WAIT_S:.0f} s for {what}")
        time.sleep(_LOOK_EVERY_S)  # another program's state has no event to wait for


@contextmanager
def open_bed(directory: Path, durations: Durations) -> Iterator[Bed]:
    """A server that was started a moment ago."""
    server = TailraceServer(fsync="commit")
    with tempfile.TemporaryDirectory(prefix="scaling-", dir=directory) as name:
        try:
            server.start(Path(name))
            yield Bed(server, Path(name), durations)
        finally:
            server.stop()
