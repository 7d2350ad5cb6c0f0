"""What the server holds for topics: it gives it back, and does not promise more than it has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.clients import confluent
from tests.interop.clients.port import Client, ClientError, Message
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess

_DESCRIPTORS = 600


@pytest.fixture
def narrow_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that may open few files."""
    if os.environ.get("TAILRACE_INTEROP_BOOTSTRAP", ""):
        pytest.skip("the broker was given: its limits are not ours to set")
    with ServerProcess(tmp_path / "data", descriptors_max=_DESCRIPTORS) as running:
        yield running


@pytest.fixture
def admin(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of whichever server the test has."""
    chosen = "narrow_server" if "narrow_server" in request.fixturenames else "own_server"
    running: ServerProcess = request.getfixturevalue(chosen)
    started = confluent.start(running.bootstrap)
    yield started
    started.close()


def test_deleted_topics_give_their_descriptors_back(own_server: ServerProcess, admin: Client) -> None:
    admin.produce("kept", [Message(value=b"v", partition=0)])
    before = own_server.descriptors()
    for number in range(3):
        admin.admin.create_topic(f"used-{number}", partitions=50)
        admin.produce(f"used-{number}", [Message(value=b"v", partition=n) for n in range(50)])
        admin.admin.delete_topic(f"used-{number}")
    admin.admin.create_topic("never-used", partitions=200)
    admin.admin.delete_topic("never-used")
    wait_until(
        lambda: own_server.descriptors() < before + 20,
        within_s=60,
        what=lambda: f"{before} were open, and now {own_server.descriptors()}",
    )


def test_more_partitions_than_descriptors_do_not_end_the_server(
    narrow_server: ServerProcess, admin: Client
) -> None:
    admin.produce("kept", [Message(value=b"v", partition=0)])
    for number in range(3):
        with contextlib.suppress(ClientError):  # it may refuse, but not fail
            admin.admin.create_topic(f"wide-{number}", partitions=_DESCRIPTORS)
    admin.produce("kept", [Message(value=b"v", partition=0)])
    assert narrow_server.running(), narrow_server.output()
    narrow_server.restart()
    admin.produce("kept", [Message(value=b"v", partition=0)])
