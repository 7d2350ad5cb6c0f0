"""What the interoperability tests share: a running server, the clients, and fresh names.

TAILRACE_INTEROP_BOOTSTRAP=host:port points the suite at a broker that runs already, for example an Apache
Kafka, to see that a scenario asks for nothing but what Kafka does. Tests that restart or measure the server
skip then.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.clients.catalog import CATALOG, Entry
from tests.interop.clients.port import Client
from tests.interop.deadline import wait_until
from tests.interop.raw import leads
from tests.interop.server import ServerProcess
from tests.seed import seed_of_run

_GIVEN = os.environ.get("TAILRACE_INTEROP_BOOTSTRAP", "")
_RUN = f"{random.SystemRandom().getrandbits(32):08x}" if _GIVEN else "0"  # else it has names of earlier runs
_NUMBERS = itertools.count()

_unreachable: dict[str, str] = {}
"""Clients that cannot be had here, and why: nobody waits for the same thing twice in a run."""


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of our two markers."""
    config.addinivalue_line("markers", "needs(*features): what the client must be able to do")
    config.addinivalue_line("markers", "costly: takes long; heavy for all clients but the first two")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that takes a client runs with every client that can do what it needs.

    A costly one is a sample in the default run: one client around librdkafka, one with its own protocol.
    """
    if "client" not in metafunc.fixturenames:
        return
    costly = metafunc.definition.get_closest_marker("costly") is not None
    parameters = []
    for entry in CATALOG:
        heavy = entry.heavy or (costly and entry not in CATALOG[:2])
        parameters.append(pytest.param(entry, id=entry.name, marks=[pytest.mark.heavy] if heavy else []))
    metafunc.parametrize("client", parameters, indirect=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess | None]:
    """The server of a file of tests; None where the suite was pointed at another broker."""
    if _GIVEN:
        yield None
        return
    with ServerProcess(tmp_path_factory.mktemp("interop")) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(server: ServerProcess | None) -> str:
    """The address that clients are given."""
    return _GIVEN if server is None else server.bootstrap


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, for tests that stop, kill or measure it."""
    if _GIVEN:
        pytest.skip("the broker was given: it is not ours to stop or to measure")
    with ServerProcess(tmp_path / "data") as running:
        yield running


@pytest.fixture(scope="module")
def start_client(bootstrap: str) -> Iterator[Callable[[Entry], Client]]:
    """Clients by name, each started once in a file: some of them are busy for as long as they are there."""
    started: dict[str, Client] = {}

    def start(entry: Entry) -> Client:
        if entry.name in _unreachable:
            pytest.skip(_unreachable[entry.name])
        if entry.name not in started:
            try:
                started[entry.name] = entry.start(bootstrap)
            except pytest.skip.Exception as skipped:
                _unreachable[entry.name] = str(skipped)
                raise
        return started[entry.name]

    yield start
    for client in started.values():
        client.close()


@pytest.fixture
def client(request: pytest.FixtureRequest, start_client: Callable[[Entry], Client]) -> Client:
    """The client of this test, or a skip with what it lacks."""
    started = start_client(request.param)
    for marker in request.node.iter_markers("needs"):
        for feature in marker.args:
            if feature in started.lacks:
                pytest.skip(f"{started.name} cannot {feature}: {started.lacks[feature]}")
    return started


@pytest.fixture
def reference(start_client: Callable[[Entry], Client]) -> Client:
    """The one client that sets the scene where the client under test cannot."""
    return start_client(CATALOG[0])


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names that nobody used before, beginning as asked."""
    return lambda kind: f"{kind}-{_RUN}-{next(_NUMBERS)}"


@pytest.fixture
def settle(bootstrap: str) -> Callable[[str, int], None]:
    """Waits until each partition has its leader, for which Apache Kafka does not wait. Ours has it."""

    def wait(topic: str, partitions: int) -> None:
        if _GIVEN:
            wait_until(
                lambda: all(leads(bootstrap, topic, index) for index in range(partitions)),
                within_s=60,
                what=f"{topic} has no leaders",
            )

    return wait


@pytest.fixture
def make_topic(
    reference: Client, fresh: Callable[[str], str], settle: Callable[[str, int], None]
) -> Callable[..., str]:
    """Makes topics with fresh names and the given partitions and configs."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = fresh("topic")
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        reference.admin.create_topic(name, partitions=partitions, configs=dotted)
        settle(name, partitions)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic with one partition."""
    return make_topic()


@pytest.fixture
def wide_topic(make_topic: Callable[..., str]) -> str:
    """A fresh topic with four partitions."""
    return make_topic(partitions=4)


@pytest.fixture
def group(fresh: Callable[[str], str]) -> str:
    """A fresh group's name."""
    return fresh("group")


@pytest.fixture
def fresh_name(fresh: Callable[[str], str]) -> str:
    """The name of a topic that does not exist."""
    return fresh("new")


@pytest.fixture
def rng() -> random.Random:
    return random.Random(seed_of_run())
