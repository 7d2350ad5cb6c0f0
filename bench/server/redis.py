"""Redis Streams: append-only file on, no snapshots. Whether it syncs before it answers the dialect sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.server.process import HOST, NotHere, Server, exchange, find_program, output_of


class RedisServer(Server):
    """One redis-server."""

    name = "redis"

    def __init__(self) -> None:
        super().__init__()
        self._program = ""

    def find(self) -> None:
        self._program = find_program("redis-server", package="redis-server")
        said = output_of([self._program, "--version"])
        found = re.search(r"v=(\d+)\.(\d+)\.(\d+)", said)
        if found is None or int(found[1]) < 5:
            raise NotHere(f"redis-server is too old for streams: {said.strip()[:60]}")
        self.version = ".".join(found.groups())

    def configure(self, directory: Path) -> Sequence[str]:
        return [
            *(self._program, "--bind", HOST, "--port", str(self.port), "--dir", str(directory)),
            *("--appendonly", "yes", "--appendfsync", "no", "--save", "", "--daemonize", "no"),
            *("--auto-aof-rewrite-percentage", "0"),
        ]

    def answers(self) -> bool:
        return exchange(self.port, b"PING\r\n").startswith(b"+PONG")
