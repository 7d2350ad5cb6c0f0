"""Every client that the scenarios run with, and how one of it is started."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from tests.interop.clients.port import Client


class Entry(NamedTuple):
    """A client by name; `heavy` ones need a tool chain and take long to prepare."""

    name: str
    heavy: bool = False

    def start(self, bootstrap: str) -> Client:
        """Prepare what it needs (pytest.skip with the reason where that cannot be had) and start it."""
        module = importlib.import_module(f"tests.interop.clients.{self.name}")
        start: Callable[[str], Client] = module.start
        return start(bootstrap)


CATALOG = (
    Entry("confluent"),
    Entry("kafka_python"),
    Entry("aiokafka"),
    Entry("kcat"),
    Entry("kafkajs"),
    Entry("java", heavy=True),
    Entry("franz", heavy=True),
    Entry("rskafka", heavy=True),
)
