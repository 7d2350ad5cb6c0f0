"""kafka-python: the protocol in Python."""

from __future__ import annotations

import sys

from tests.interop.clients.driver import DriverClient
from tests.interop.clients.port import Client, Feature

_LACKS = {Feature.NULL_HEADERS: "it takes bytes only"}


def start(bootstrap: str) -> Client:
    """Start its driver."""
    command = (sys.executable, "-m", "tests.interop.drivers.kafka_python")
    return DriverClient("kafka_python", command, bootstrap, lacks=_LACKS)
