"""The broker goes away and comes back at its address: producers and groups go on as if nothing had been."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.interop.clients.catalog import Entry
from tests.interop.clients.port import (
    Client,
    Feature,
    Message,
    Placed,
    Producing,
    Reading,
    TopicPartition,
    needs,
)
from tests.interop.deadline import wait_until
from tests.interop.raw import read_batches
from tests.interop.server import ServerProcess

_MESSAGES = 300


@pytest.fixture
def visitor(request: pytest.FixtureRequest, client: Client, own_server: ServerProcess) -> Iterator[Client]:
    """The client under test, connected to the test's own server."""
    entry: Entry = request.node.callspec.params["client"]
    started = entry.start(own_server.bootstrap)
    yield started
    started.close()


class Background:
    """One call in a thread, whose result or error is had later."""

    def __init__(self, call: Callable[[], list[Placed]]) -> None:
        self._call = call
        self._result: list[Placed] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self, *, within_s: float) -> list[Placed]:
        """Wait for it."""
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"no end within {within_s} s"
        if self._error is not None:
            raise self._error
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error


@pytest.mark.slow
@pytest.mark.costly
@needs(Feature.IDEMPOTENCE, Feature.PACE)
@pytest.mark.parametrize("how", ["killed", pytest.param("stopped", marks=pytest.mark.heavy)])
def test_an_idempotent_producer_writes_each_record_once_across_a_restart(
    visitor: Client, own_server: ServerProcess, how: str
) -> None:
    visitor.produce("log", [Message(value=b"first", partition=0)], Producing(idempotent=True))
    sent = [Message(value=b"%d" % n, partition=0) for n in range(_MESSAGES)]
    pace = Producing(idempotent=True, every_ms=5, linger_ms=0, timeout_ms=90_000)
    producing = Background(lambda: visitor.produce("log", sent, pace))
    wait_for_records(own_server, 50)
    own_server.stop() if how == "stopped" else own_server.kill()
    own_server.start()
    placed = producing.result(within_s=120)
    consumer = visitor.open(Reading(assign={TopicPartition("log", 0): 1}))
    records = consumer.take(_MESSAGES)
    consumer.close()
    assert [record.value for record in records] == [message.value for message in sent]
    if Feature.PLACED not in visitor.lacks:
        assert [place.offset for place in placed] == [record.offset for record in records]
    assert sum(batch.records for batch in read_batches(own_server.bootstrap, "log")) == _MESSAGES + 1


@pytest.mark.slow
@pytest.mark.costly
@needs(Feature.GROUPS, Feature.COMMIT)
def test_a_group_resumes_after_a_restart(visitor: Client, own_server: ServerProcess) -> None:
    where = TopicPartition("log", 0)
    visitor.produce("log", [Message(value=b"%d" % n, partition=0) for n in range(10)])
    member = visitor.open(Reading(topics=["log"], group="readers"))
    member.take(10)
    member.commit({where: 6})
    own_server.kill()
    own_server.start()
    visitor.produce("log", [Message(value=b"10", partition=0)], Producing(timeout_ms=90_000))
    # It goes on from where it was, or from what its group has committed: never from before that.
    offsets = [member.take(1, within_s=90)[0].offset]
    while offsets[-1] < 10:
        offsets.append(member.take(1)[0].offset)
    assert offsets in ([10], [6, 7, 8, 9, 10])
    member.close()
    late = visitor.open(Reading(topics=["log"], group="readers"))
    assert [record.offset for record in late.take(5)] == [6, 7, 8, 9, 10]
    late.close()


@pytest.mark.costly
def test_nothing_is_lost_by_a_clean_stop(visitor: Client, own_server: ServerProcess) -> None:
    sent = [Message(value=b"%d" % n, key=b"k", partition=n % 4) for n in range(200)]
    visitor.produce("log", sent)
    own_server.restart()
    consumer = visitor.open(Reading(assign={TopicPartition("log", index): "earliest" for index in range(4)}))
    found = Counter(record.value for record in consumer.take(200))
    consumer.close()
    assert found == Counter(message.value for message in sent)


def wait_for_records(server: ServerProcess, count: int) -> None:
    """Until the partition holds so many."""

    def written() -> bool:
        return sum(batch.records for batch in read_batches(server.bootstrap, "log")) >= count

    wait_until(written, within_s=60, what=f"fewer than {count} records")
