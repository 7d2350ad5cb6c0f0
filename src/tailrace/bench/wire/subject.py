"""The broker under test: where it is, what it speaks, whether it runs here, and a topic in it for the loads.

All of this goes through the ordinary client, which agrees on versions and follows leaders, in an event loop
that has ended before a load begins. The loads themselves send requests of one fixed version each, so a broker
that does not speak those is refused at once, with the version that is missing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeVar

from tailrace.bench.wire.kafka import CLIENT_ID, FETCH_VERSION, PRODUCE_VERSION
from tailrace.bench.wire.reader import LoadError
from tailrace.client import admin
from tailrace.client.error import ClientError, UnknownTopic, UnsupportedApi, broker_error
from tailrace.client.kafka import KafkaClient
from tailrace.client.offsets import LATEST
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.model.address import Address
from tailrace.net import find_occupant
from tailrace.wire.kafka import APIS, FETCH, PRODUCE

_NEEDED = {PRODUCE: PRODUCE_VERSION, FETCH: FETCH_VERSION}
_LOOK_TIMEOUT_S = 5.0
_DELETE_TIMEOUT_S = 10.0  # a broker that has died should not keep us for long

T = TypeVar("T")


class Process(NamedTuple):
    """A process of the broker's on this machine."""

    pid: int
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A broker, or a cluster of them, as it was found."""

    bootstrap: str
    address: Address  # of the node that answered
    nodes: Mapping[int, Address]
    cluster_id: str | None
    versions: Mapping[int, tuple[int, int]]  # of every API, the lowest and the highest
    processes: Sequence[Process]  # one of every node; none unless all of them can be looked at from here
    timeout_s: float

    def facts(self) -> dict[str, object]:
        """What a reader of the figures needs to know of it."""
        return {
            "address": str(self.address),
            "nodes": len(self.nodes),
            "cluster_id": self.cluster_id,
            "apis": len(self.versions),
            "produce_versions": list(self.versions[PRODUCE]),
            "fetch_versions": list(self.versions[FETCH]),
            "processes": [each._asdict() for each in self.processes],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTopic:
    """A topic of our own, and where the leader of each of its partitions is."""

    name: str
    leaders: Sequence[Address]


def find_subject(bootstrap: str, *, timeout_s: float) -> Subject:
    """The first broker that answers; ClientError says why none does, or which version one lacks."""

    async def look(client: KafkaClient) -> Subject:
        connection = await client.connection_to(None)
        check_versions(connection.versions, address=connection.address)
        return Subject(
            bootstrap=bootstrap,
            address=connection.address,
            nodes=dict(client.cluster.nodes),
            cluster_id=client.cluster.cluster_id,
            versions=connection.versions,
            processes=(),
            timeout_s=timeout_s,
        )

    found = _with_client(bootstrap, timeout_s, look)
    return replace(found, processes=find_processes(list(found.nodes.values())))


def check_versions(versions: Mapping[int, tuple[int, int]], *, address: Address) -> None:
    """UnsupportedApi unless the broker speaks what the loads send."""
    for key, version in _NEEDED.items():
        lowest, highest = versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            spoken = f"versions {lowest} to {highest}" if highest >= 0 else "no version"
            raise UnsupportedApi(
                f"{address} speaks {spoken} of {APIS[key].name}, and the loads need version {version}."
                " Kafka 2.8 and newer brokers have it"
            )


def find_processes(nodes: Sequence[Address]) -> list[Process]:
    """The process behind each address; none if one of them is elsewhere or belongs to somebody else."""
    found = []
    for address in nodes:
        occupant = find_occupant(address.port) if _is_here(address) else None
        if occupant is None:
            return []
        found.append(Process(*occupant))
    return list(dict.fromkeys(found))


def _is_here(address: Address) -> bool:
    """A connection to this same machine has one address at both ends, or ends at loopback."""
    try:
        with socket.create_connection(address, _LOOK_TIMEOUT_S) as sock:
            ours, theirs = sock.getsockname()[0], sock.getpeername()[0]
    except OSError:
        return False
    return ours == theirs or ip_address(theirs).is_loopback


# ---- the topic


def create_topic(subject: Subject, name: str, *, partitions: int) -> LoadTopic:
    """Make a topic as the broker's defaults have it, and wait for its leaders; BrokerError if refused."""

    async def create(client: KafkaClient) -> LoadTopic:
        await admin.create_topic(client, name, partitions=partitions)
        return LoadTopic(name=name, leaders=await _wait_led(client, name, partitions))

    try:
        return _with_client(subject.bootstrap, subject.timeout_s, create)
    except KeyboardInterrupt:
        delete_topic(subject, name)
        raise


async def _wait_led(client: KafkaClient, name: str, partitions: int) -> list[Address]:
    """Where the leaders are, once they answer: metadata may name one before it leads, or no topic at all."""
    targets = [TopicPartition(name, each) for each in range(partitions)]

    async def attempt() -> list[Address]:
        try:
            await client.list_offsets(dict.fromkeys(targets, LATEST))
            leaders = [await client.leader(each) for each in targets]
        except UnknownTopic as error:
            raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}") from error
        return [client.cluster.nodes[each.leader] for each in leaders]

    return await client.retrying(f"waiting for the leaders of topic {name}", attempt)


def delete_topic(subject: Subject, name: str) -> bool:
    """Whether the topic is gone now; one that never was is gone too."""

    async def delete(client: KafkaClient) -> None:
        await admin.delete_topic(client, name)

    try:
        _with_client(subject.bootstrap, min(subject.timeout_s, _DELETE_TIMEOUT_S), delete)
    except UnknownTopic:
        return True
    except (BrokerError, ClientError, ProtocolError):
        return False
    return True


def fill(subject: Subject, topic: str, *, partition: int, batch: bytes, batches: int) -> int:
    """Put so many copies of a batch into a partition, each acknowledged; the offset of the first."""

    async def produce(client: KafkaClient) -> int:
        first = (await client.produce(topic, partition, batch)).base_offset
        for _ in range(batches - 1):
            await client.produce(topic, partition, batch)
        return first

    try:
        return _with_client(subject.bootstrap, subject.timeout_s, produce)
    except (BrokerError, ClientError, ProtocolError) as error:
        raise LoadError(str(error)) from error


def _with_client(
    bootstrap: str, timeout_s: float, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]
) -> T:
    async def connected() -> T:
        async with KafkaClient(bootstrap, client_id=CLIENT_ID, request_timeout_s=timeout_s) as client:
            return await work(client)

    return asyncio.run(connected())
