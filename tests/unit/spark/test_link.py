"""Links to a broker in this process: pooled, closed, forked, and patient with a broker that is away."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import tailrace
from tailrace.client.error import TimedOut
from tailrace.client.kafka import KafkaClient
from tailrace.spark import link as link_module
from tailrace.spark.link import BrokerLink, close_links, link_to


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.create_topic("orders", partitions=3)
        yield running
        close_links()


async def partitions_of_orders(client: KafkaClient) -> int:
    return len((await client.topic("orders")).partitions)


async def fail(client: KafkaClient) -> None:
    raise KeyError(repr(client))


def test_work_is_done_in_the_link_s_thread_and_its_result_comes_back(broker: tailrace.Broker) -> None:
    async def where(_client: KafkaClient) -> str:
        return threading.current_thread().name

    assert link_to(broker.bootstrap_servers).run(where) == "tailrace-link"
    assert link_to(broker.bootstrap_servers).run(partitions_of_orders) == 3


def test_an_error_in_the_work_reaches_the_caller(broker: tailrace.Broker) -> None:
    with pytest.raises(KeyError, match="KafkaClient"):
        link_to(broker.bootstrap_servers).run(fail)


def test_a_process_has_one_link_to_a_cluster_and_client(broker: tailrace.Broker) -> None:
    one = link_to(broker.bootstrap_servers)
    assert link_to(broker.bootstrap_servers) is one
    assert link_to(broker.bootstrap_servers, client_id="other") is not one


def test_many_threads_share_one_connection(broker: tailrace.Broker) -> None:
    link = link_to(broker.bootstrap_servers)

    async def client_of(client: KafkaClient) -> int:
        return id(client)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: link.run(client_of), range(32)))) == 1


def test_started_work_can_be_waited_for_later(broker: tailrace.Broker) -> None:
    future = link_to(broker.bootstrap_servers).start(partitions_of_orders)
    assert future.result(timeout=30) == 3


def test_a_closed_link_begins_anew_when_asked(broker: tailrace.Broker) -> None:
    link = link_to(broker.bootstrap_servers)
    assert link.run(partitions_of_orders) == 3
    link.close()
    link.close()
    assert "idle" in repr(link)
    assert link.run(partitions_of_orders) == 3
    link.close()


def test_a_broker_that_cannot_be_reached_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "CONNECT_PATIENCE_S", 0.2)
    link = BrokerLink("127.0.0.1:1")
    with pytest.raises(TimedOut, match=r"connecting to 127.0.0.1:1 .*tailrace up"):
        link.run(partitions_of_orders)
    link.close()


_FORKING = """
import os, sys
from tailrace.spark.link import link_to, close_links
async def count(client):
    return len((await client.topic("orders")).partitions)
link = link_to(sys.argv[1])
assert link.run(count) == 3
child = os.fork()
if child == 0:
    mine = link_to(sys.argv[1])
    assert mine is not link and mine.run(count) == 3
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert link.run(count) == 3
close_links()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_worker_gets_a_link_of_its_own(broker: tailrace.Broker) -> None:
    command = [sys.executable, "-c", _FORKING, broker.bootstrap_servers]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
