"""Tailrace as `tailrace up` runs it, with its native listener: on disk with its defaults, or in memory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import tailrace
from bench.server.process import HOST, Server, exchange
from tailrace.model import ProtocolError
from tailrace.testing.port import free_port
from tailrace.wire.native import MessageType, read_frame, write_frame

_LENGTH_BYTES = 4


class NativeTailraceServer(Server):
    """This very source tree; `port` is the native listener's."""

    version = tailrace.__version__

    def __init__(self, *, engine: str) -> None:
        super().__init__()
        self.name = "tailrace" if engine == "segment" else f"tailrace-{engine}"
        self.kafka_port = 0
        self._engine = engine

    def find(self) -> None:
        """It is always here."""

    def configure(self, directory: Path) -> Sequence[str]:
        self.kafka_port = free_port()
        return [
            *(sys.executable, "-m", "tailrace", "up", "--host", HOST),
            *("--native-port", str(self.port), "--kafka-port", str(self.kafka_port)),
            *("--http-port", "0"),
            *("--data-dir", str(directory / "data"), "--engine", self._engine),
        ]

    def answers(self) -> bool:
        """Whether it answers a heartbeat."""
        said = exchange(self.port, write_frame(MessageType.HEARTBEAT, sequence=1))
        try:
            return read_frame(said[_LENGTH_BYTES:]).type == MessageType.HEARTBEAT
        except ProtocolError:
            return False
