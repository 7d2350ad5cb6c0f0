"""What these tests share: a broker of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tailrace


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Of an embedded broker that serves the Kafka protocol."""
    with tailrace.Broker() as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        yield host, int(port)
