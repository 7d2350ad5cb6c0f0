"""Tailrace, as `tailrace up` runs it: with its defaults, or with `--fsync os`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import tailrace
from bench.server.kafka import answers_kafka
from bench.server.process import HOST, Server


class TailraceServer(Server):
    """This very source tree."""

    version = tailrace.__version__

    def __init__(self, *, fsync: str) -> None:
        super().__init__()
        self.name = "tailrace" if fsync == "commit" else f"tailrace-{fsync}"
        self._fsync = fsync

    def find(self) -> None:
        """It is always here."""

    def configure(self, directory: Path) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "tailrace", "up"),
            *("--host", HOST, "--kafka-port", str(self.port), "--native-port", "0", "--http-port", "0"),
            *("--data-dir", str(directory / "data"), "--fsync", self._fsync),
        ]

    def answers(self) -> bool:
        return answers_kafka(self.port)
