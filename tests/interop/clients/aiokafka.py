"""aiokafka: the protocol in Python, on asyncio."""

from __future__ import annotations

import sys

from tests.interop.clients.driver import DriverClient
from tests.interop.clients.port import Client, Feature

_LACKS = {
    Feature.FENCED: "it does not know error 82",
    Feature.COOPERATIVE: "it has eager assignors only",
    Feature.DELETE_GROUPS: "its admin client has no such call",
}


def start(bootstrap: str) -> Client:
    """Start its driver."""
    command = (sys.executable, "-m", "tests.interop.drivers.aiokafka")
    return DriverClient("aiokafka", command, bootstrap, lacks=_LACKS)
