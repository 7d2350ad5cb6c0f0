"""The pytest plugin: a broker for tests, found by itself once Tailrace is installed.

    def test_orders(tailrace_broker, tailrace_topic):
        tailrace_broker.produce(tailrace_topic, b"v")

The broker is started by the first test that asks for it and serves the whole run, in memory; tests keep out
of each other's way by topics of their own. Nothing of Tailrace is imported before a fixture is used.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tailrace import Broker

_NAME_MAX = 200


@pytest.fixture(scope="session")
def tailrace_broker() -> Iterator[Broker]:
    """One broker for the whole run, in memory, on a free port."""
    import tailrace

    with tailrace.Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def tailrace_bootstrap_servers(tailrace_broker: Broker) -> str:
    """Where Kafka clients connect to that broker."""
    return tailrace_broker.bootstrap_servers


@pytest.fixture
def tailrace_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has; it comes to be when it is first used."""
    test = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-.")[:_NAME_MAX]
    return f"{test or 'test'}-{uuid.uuid4().hex[:12]}"
