"""A broker that does as the test says: real sockets and real frames, answers from a script."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from tailrace.client.kafka import KafkaClient
from tailrace.records import read_batch
from tailrace.wire.kafka import (
    API_VERSIONS,
    APIS,
    FETCH,
    PRODUCE,
    FetchRequest,
    Message,
    ProduceRequest,
    ProduceResult,
    decode,
    encode,
    read_fetch_request,
    read_produce_request,
    read_request_header,
    request_type,
    write_produce_response,
    write_response_head,
)
from tailrace.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tailrace.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tailrace.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Answer: TypeAlias = "Message | bytes | None"
Handler: TypeAlias = Callable[[int, Any], "Answer | Awaitable[Answer]"]

NODE = 1
METADATA, FIND_COORDINATOR, INIT_PRODUCER_ID = 3, 10, 22


class FakeBroker:
    """Node 1 of a cluster of one. `handlers` answer by API key; `asked` holds every request so far."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {"t": 1}
        self.asked: list[tuple[int, Any]] = []
        self.spoken: list[tuple[int, int]] = []  # API key and version of each
        self.features: dict[str, int] = {}  # finalized ones, with their levels
        self.connections = 0
        self.versions = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
        self.stored: dict[tuple[str, int], list[bytes]] = {}
        self.producers = 0
        self.handlers: dict[int, Handler] = {
            API_VERSIONS: self.api_versions,
            METADATA: self.metadata,
            PRODUCE: self.produce,
            INIT_PRODUCER_ID: self.init_producer_id,
            FIND_COORDINATOR: self.find_coordinator,
        }
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop_connections()
        await asyncio.gather(*self._serving)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self, **settings: Any) -> KafkaClient:
        return KafkaClient(self.address, **{"request_timeout_s": 60.0, **settings})

    def drop_connections(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def asked_for(self, key: int) -> list[Any]:
        return [request for asked, request in self.asked if asked == key]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await self._answer(memoryview(await reader.readexactly(size)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, frame: memoryview, writer: asyncio.StreamWriter) -> None:
        header, body = read_request_header(frame)
        key, version = header.api_key, header.api_version
        request = self._read(key, version, body)
        self.asked.append((key, request))
        self.spoken.append((key, version))
        answer = self.handlers[key](version, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            return
        data = answer if isinstance(answer, bytes) else encode(answer, version)
        writer.write(write_response_head(key, version, header.correlation_id, len(data)) + data)
        await writer.drain()

    def _read(self, key: int, version: int, body: memoryview) -> Any:
        if key == PRODUCE:
            return read_produce_request(body, version)
        if key == FETCH:
            return read_fetch_request(body, version)
        return decode(request_type(key), version, body)

    # ---- what it answers unless the test says otherwise

    def api_versions(self, version: int, request: ApiVersionsRequest) -> Answer:
        keys = [
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in self.versions.items()
        ]
        features = [FinalizedFeatureKey(name, level, level) for name, level in self.features.items()]
        return ApiVersionsResponse(api_keys=keys, finalized_features=features)

    def metadata(self, version: int, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [each.name or "" for each in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE, host="127.0.0.1", port=self.port)],
            cluster_id="fake",
            controller_id=NODE,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponsePartition(
                partition_index=index, leader_id=NODE, leader_epoch=0, replica_nodes=[NODE], isr_nodes=[NODE]
            )
            for index in range(self.topics[name])
        ]
        return MetadataResponseTopic(name=name, partitions=partitions)

    def init_producer_id(self, version: int, request: InitProducerIdRequest) -> Answer:
        self.producers += 1
        return InitProducerIdResponse(producer_id=1000 + self.producers, producer_epoch=0)

    def find_coordinator(self, version: int, request: FindCoordinatorRequest) -> Answer:
        return FindCoordinatorResponse(node_id=NODE, host="127.0.0.1", port=self.port)

    def produce(self, version: int, request: ProduceRequest) -> Answer:
        """Keep every batch; offsets count from 0 in each partition."""
        return self.answer_produce(version, request, self.keep)

    def keep(self, topic: str, partition: int, batch: bytes) -> ProduceResult:
        log = self.stored.setdefault((topic, partition), [])
        base_offset = sum(read_batch(each).count for each in log)
        log.append(batch)
        return ProduceResult(partition, base_offset=base_offset)

    def answer_produce(
        self, version: int, request: ProduceRequest, decide: Callable[[str, int, bytes], ProduceResult]
    ) -> Answer:
        """An answer to Produce, decided partition by partition; none for acks=0."""
        results = [
            (
                topic.name,
                [decide(topic.name, each.index, bytes(each.records or b"")) for each in topic.partitions],
            )
            for topic in request.topics
        ]
        return None if request.acks == 0 else write_produce_response(version, results)

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        """The values that were stored, in order."""
        return [
            record.value
            for batch in self.stored.get((topic, partition), [])
            for record in read_batch(batch).records()
        ]

    def requested(self) -> list[FetchRequest]:
        return self.asked_for(FETCH)
