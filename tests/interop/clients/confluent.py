"""confluent-kafka: Python around librdkafka."""

from __future__ import annotations

import sys

from tests.interop.clients.driver import DriverClient
from tests.interop.clients.partitioners import crc32_partition
from tests.interop.clients.port import Client


def start(bootstrap: str) -> Client:
    """Start its driver."""
    command = (sys.executable, "-m", "tests.interop.drivers.confluent")
    return DriverClient("confluent", command, bootstrap, partitioner=crc32_partition)
