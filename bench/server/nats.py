"""NATS JetStream with file storage. Only from 2.10 on can it sync before it acknowledges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.server.process import HOST, NotHere, Server, exchange, find_program, output_of

_SYNC_ALWAYS_FROM = (2, 10)


class NatsServer(Server):
    """One nats-server."""

    def __init__(self, *, durable: bool) -> None:
        super().__init__()
        self.name = "nats-durable" if durable else "nats"
        self._durable = durable
        self._program = ""

    def find(self) -> None:
        self._program = find_program("nats-server", package="nats-server")
        said = output_of([self._program, "--version"])
        found = re.search(r"v(\d+)\.(\d+)\.(\d+)", said)
        if found is None:
            raise NotHere(f"nats-server tells no version: {said.strip()[:60]}")
        self.version = ".".join(found.groups())
        if self._durable and (int(found[1]), int(found[2])) < _SYNC_ALWAYS_FROM:
            raise NotHere(
                f"nats-server {self.version} cannot sync before it acknowledges; 2.10 and later can"
            )

    def configure(self, directory: Path) -> Sequence[str]:
        sync = "sync_interval: always" if self._durable else ""
        settings = directory / "nats.conf"
        settings.write_text(
            f'host: {HOST}\nport: {self.port}\nmax_payload: 8MB\nping_interval: "10m"\n'
            f'jetstream {{ store_dir: "{directory / "data"}"\n max_memory_store: 1GB\n'
            f" max_file_store: 100GB\n {sync} }}\n"
        )
        return [self._program, "-c", str(settings)]

    def answers(self) -> bool:
        return exchange(self.port, b"").startswith(b"INFO ")
