"""A real node that sends to a real collector: its requests as spans, its metrics as figures, and troubles."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client.parser import text_string_to_metric_families

pytest.importorskip("opentelemetry.sdk", reason="pip install 'tailrace[otel]'")

from opentelemetry.sdk.trace import ReadableSpan

import tailrace
from tailrace.broker import NewTopic
from tailrace.client import AsyncClient
from tailrace.http import HttpService
from tailrace.model import TailraceError
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
from tailrace.telemetry.tracing import SpanBuffer

from .collector import DEADLINE_S, Collector, attributes_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SERVER_KIND = 2
ERROR = 2


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        yield found


@asynccontextmanager
async def serving(endpoint: str, **settings: Any) -> AsyncIterator[tuple[Node, httpx.AsyncClient]]:
    settings = {"telemetry_interval_s": 3600, "telemetry_sample_one_in": 1, **settings}
    config = ServerConfig(
        engine="memory", kafka_port=0, native_port=0, http_port=0, telemetry_endpoint=endpoint, **settings
    )
    node = Node(config, owns_loop=False)
    await node.start()
    try:
        base = f"http://{node.http_address}"
        async with httpx.AsyncClient(base_url=base, timeout=DEADLINE_S, trust_env=False) as client:
            yield node, client
    finally:
        await node.close()


def play(collector: Collector, use: Callable[[Node, httpx.AsyncClient], Any], **settings: Any) -> None:
    """Use a node, and stop it: whatever it has to tell is told by then."""

    async def main() -> None:
        async with serving(collector.endpoint, **settings) as (node, client):
            await use(node, client)
            assert node._telemetry is not None
            # The collector answers, however long a busy machine takes for it.
            node._telemetry._config = replace(node._telemetry._config, close_timeout_s=DEADLINE_S)

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S * 2))


# ---- spans


def test_a_request_by_http_is_a_span_of_its_callers_trace(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await node.broker.topics.create(NewTopic(name="orders", partitions=1))
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "user-agent": "a test"}
        await client.get("/api/v1/topics/orders?", headers=headers)

    play(collector, use)
    (span,) = collector.spans
    assert span.name == "GET /api/v1/topics/{topic}"
    assert span.kind == SERVER_KIND
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    found = attributes_of(span)
    assert found["http.request.method"] == "GET"
    assert found["http.route"] == "/api/v1/topics/{topic}"
    assert found["url.path"] == "/api/v1/topics/orders"
    assert found["http.response.status_code"] == 200
    assert found["user_agent.original"] == "a test"
    assert "error.type" not in found
    assert span.status.code == 0


def test_a_request_without_a_trace_begins_one(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics")
        await client.get("/api/v1/topics")

    play(collector, use)
    first, second = collector.spans
    assert first.parent_span_id == second.parent_span_id == b""
    assert first.trace_id != second.trace_id


@pytest.mark.parametrize(
    "header",
    [f"00-{TRACE}-{PARENT}", f"ff-{TRACE}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01", "x" * 500, ""],
)
def test_a_trace_that_makes_no_sense_is_not_continued(collector: Collector, header: str) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        assert (await client.get("/api/v1/topics", headers={"traceparent": header})).status_code == 200

    play(collector, use)
    (span,) = collector.spans
    assert span.parent_span_id == b""
    assert span.trace_id.hex() not in (TRACE, "0" * 32)


def test_a_trace_that_is_not_sampled_has_no_span_here(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})

    play(collector, use)
    assert collector.spans == []
    assert "/v1/metrics" in collector.requests


def test_probes_and_scrapes_are_traced_only_for_who_asks(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        for path in ("/health", "/health/ready", "/metrics"):
            assert (await client.get(path)).status_code == 200
        await client.get("/health", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})

    play(collector, use)
    assert [span.name for span in collector.spans] == ["GET /health"]


def test_what_a_client_did_wrong_is_told_and_is_no_error_of_the_server(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics/none")
        await client.get("/nowhere")
        await client.request("PROPFIND", "/api/v1/topics")

    play(collector, use)
    missing, nowhere, odd = collector.spans
    assert attributes_of(missing)["error.type"] == "404"
    assert [span.status.code for span in collector.spans] == [0, 0, 0]
    assert nowhere.name == "GET"
    assert attributes_of(odd)["http.request.method"] == "_OTHER"


def test_a_bug_is_an_error_of_the_server(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        monkeypatch.setattr(type(node.broker.topics), "get", lambda *_: 1 / 0)
        assert (await client.get("/api/v1/topics/orders")).status_code == 500

    play(collector, use)
    (span,) = collector.spans
    assert span.status.code == ERROR
    assert attributes_of(span)["http.response.status_code"] == 500


def test_a_live_stream_is_a_span_until_it_begins(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await node.broker.topics.create(NewTopic(name="orders", partitions=1))
        async with client.stream("GET", "/api/v1/topics/orders/tail") as answer:
            assert answer.status_code == 200
            telemetry = node._telemetry
            assert telemetry is not None
            await telemetry._send_spans()
            await asyncio.to_thread(collector.wait, lambda told: len(told.spans) == 1)

    play(collector, use)
    assert [span.name for span in collector.spans] == ["GET /api/v1/topics/{topic}/tail"]


def produce(address: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    traced: list[tuple[str, str | bytes | None]] = [("traceparent", f"00-{TRACE}-{PARENT}-01".encode())]
    producer.produce("orders", b"one", partition=0, headers=traced)
    assert producer.flush(DEADLINE_S) == 0


def consume(address: str) -> object:
    """The headers of the first record."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    message = consumer.poll(DEADLINE_S)
    assert message is not None and message.error() is None
    headers = message.headers()
    consumer.close()
    return headers


def test_requests_by_kafka_are_spans_and_headers_of_records_stay_as_they_were(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await node.broker.topics.create(NewTopic(name="orders", partitions=1))
        await asyncio.to_thread(produce, node.kafka_address)
        headers = await asyncio.to_thread(consume, node.kafka_address)
        assert headers == [("traceparent", f"00-{TRACE}-{PARENT}-01".encode())]

    play(collector, use)
    names = {span.name for span in collector.spans}
    assert {"kafka ApiVersions", "kafka Metadata", "kafka Produce", "kafka Fetch"} <= names
    (span,) = collector.named("kafka Produce")
    assert span.kind == SERVER_KIND
    assert span.parent_span_id == b""  # a batch may hold records of many traces
    assert span.trace_id.hex() != TRACE
    assert attributes_of(span) == {
        "tailrace.listener": "kafka",
        "tailrace.api": "Produce",
        "tailrace.requests": 1,
    }


def misuse(address: str) -> None:
    """A record that is too large, and a topic that does not exist."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 0})
    refused: list[str] = []
    producer.produce("small", b"x" * 5000, on_delivery=lambda error, _: refused.append(str(error)))
    producer.flush(DEADLINE_S)
    assert len(refused) == 1 and "MSG_SIZE_TOO_LARGE" in refused[0]
    admin = AdminClient({"bootstrap.servers": address})
    deleted = admin.delete_topics(["none"])
    with pytest.raises(confluent_kafka.KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        deleted["none"].result(DEADLINE_S)


def test_requests_by_kafka_that_are_refused_say_why(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        small = NewTopic(name="small", partitions=1, configs={"max.message.bytes": "1000"})
        await node.broker.topics.create(small)
        await asyncio.to_thread(misuse, node.kafka_address)

    play(collector, use)
    (produced,) = collector.named("kafka Produce")
    (deleted,) = collector.named("kafka DeleteTopics")
    assert attributes_of(produced)["error.type"] == "MESSAGE_TOO_LARGE"
    assert attributes_of(deleted)["error.type"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert produced.status.code == deleted.status.code == ERROR


def test_requests_by_the_native_listener_are_spans_with_their_errors(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        async with AsyncClient(port=node.native_port) as native:
            await native.create_topic("jobs")
            await native.publish_text("jobs", "one")
            with pytest.raises(TailraceError):
                await native.create_subscription("workers", "none")

    play(collector, use)
    (published,) = collector.named("native PUBLISH")
    (refused,) = collector.named("native CREATE_SUBSCRIPTION")
    assert published.status.code == 0
    assert refused.status.code == ERROR
    assert attributes_of(refused)["error.type"] == "UNKNOWN_TOPIC_OR_PARTITION"


def test_of_many_requests_few_are_spans(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        async with AsyncClient(port=node.native_port) as native:
            await native.create_topic("jobs")
            for _ in range(20):
                await native.publish_text("jobs", "one")

    play(collector, use, telemetry_sample_one_in=1_000_000)
    assert collector.spans == []


def test_nothing_is_traced_where_only_metrics_are_wanted(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics")
        async with AsyncClient(port=node.native_port) as native:
            await native.create_topic("jobs")

    play(collector, use, telemetry_traces=False)
    assert set(collector.requests) == {"/v1/metrics"}


# ---- figures


def test_figures_are_those_of_metrics(collector: Collector) -> None:
    shown: dict[str, Any] = {}

    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await node.broker.topics.create(NewTopic(name="orders", partitions=2))
        body = {"records": [{"value": "a"}, {"value": "b"}, {"value": "c"}]}
        assert (await client.post("/api/v1/topics/orders/records", json=body)).status_code == 200
        text = (await client.get("/metrics")).text
        shown.update({family.name: family for family in text_string_to_metric_families(text)})

    play(collector, use)
    with_samples = {name for name, family in shown.items() if family.samples}
    assert collector.metrics.keys() == with_samples
    records = collector.metrics["tailrace_topic_records_in"]
    assert records.sum.is_monotonic
    assert records.sum.aggregation_temporality == 2  # cumulative
    (point,) = records.sum.data_points
    assert attributes_of(point) == {"topic": "orders"}
    assert point.as_double == 3 or point.as_int == 3
    for name, metric in collector.metrics.items():
        assert metric.description == shown[name].documentation


def test_a_histogram_has_the_same_buckets(collector: Collector) -> None:
    shown: dict[str, float] = {}

    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics")
        for family in text_string_to_metric_families((await client.get("/metrics")).text):
            for sample in family.samples:
                is_bucket = sample.name == "tailrace_request_duration_seconds_bucket"
                if is_bucket and sample.labels["api"] == "listTopics":
                    shown[sample.labels["le"]] = sample.value

    play(collector, use)
    metric = collector.metrics["tailrace_request_duration_seconds"]
    assert metric.unit == "s"
    (point,) = [each for each in metric.histogram.data_points if attributes_of(each)["api"] == "listTopics"]
    assert attributes_of(point) == {"listener": "http", "api": "listTopics"}
    assert list(point.explicit_bounds) == [float(le) for le in shown if le != "+Inf"]
    total, cumulative = 0, []
    for count in point.bucket_counts:
        total += count
        cumulative.append(total)
    assert cumulative == list(shown.values())
    assert (point.count, point.HasField("min"), point.HasField("max")) == (1, False, False)
    assert 0 < point.sum < DEADLINE_S


def test_no_figures_are_sent_where_only_traces_are_wanted(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics")

    play(collector, use, telemetry_metrics=False)
    assert collector.requests == ["/v1/traces"]


def test_both_come_by_themselves_while_the_node_runs(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/topics")
        await asyncio.to_thread(collector.wait, lambda told: bool(told.spans and told.metrics))

    play(collector, use, telemetry_interval_s=1)


def test_a_node_says_who_it_is(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        instances.append(f"{node.broker.cluster.cluster_id}-{node.broker.cluster.node_id}")

    instances: list[str] = []
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=mine")
    play(collector, use)
    found = collector.resources[0]
    assert found["service.name"] == "mine"
    assert found["deployment.environment.name"] == "test"
    assert found["service.version"] == tailrace.__version__
    assert [found["service.instance.id"]] == instances


def test_a_node_without_an_http_listener_sends_too(collector: Collector, tmp_path: Path) -> None:
    async def main() -> None:
        config = ServerConfig(
            data_dir=tmp_path, kafka_port=0, native_port=0, telemetry_endpoint=collector.endpoint
        )
        node = Node(config, owns_loop=False)
        await node.start()
        await node.close()

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
    assert {"tailrace_records_in", "tailrace_disk_free_bytes"} <= set(collector.metrics)


# ---- troubles


def test_a_collector_that_refuses_is_complained_of_once_and_welcomed_back(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.status = 400

    async def use(node: Node, client: httpx.AsyncClient) -> None:
        telemetry = node._telemetry
        assert telemetry is not None
        for _ in range(3):
            assert (await client.get("/api/v1/topics")).status_code == 200
            await telemetry._send_all()
        collector.status = 200
        await telemetry._send_all()

    play(collector, use)
    said = [record.getMessage() for record in caplog.records if "telemetry" in record.getMessage()]
    assert len(said) == 2
    assert "does not reach" in said[0] and collector.endpoint in said[0] and "400" in said[0]
    assert "again" in said[1]
    assert not any(record.name.startswith("opentelemetry") for record in caplog.records)


def test_a_collector_that_is_not_there_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as gone:
        endpoint = gone.endpoint

    async def main() -> None:
        async with serving(endpoint) as (_, client):
            assert (await client.get("/api/v1/topics")).status_code == 200

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert endpoint in caplog.text


def test_a_collector_that_never_answers_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def main(endpoint: str) -> None:
        async with serving(endpoint) as (_, client):
            assert (await client.get("/api/v1/topics")).status_code == 200

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(asyncio.wait_for(main(f"http://127.0.0.1:{silent.getsockname()[1]}"), DEADLINE_S))
    assert "does not answer" in caplog.text


@contextmanager
def endless() -> Iterator[str]:
    """A collector that begins an answer, and goes on with it for as long as somebody listens."""
    ended = threading.Event()

    def talk(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
            while not ended.wait(0.05):
                client.sendall(b"x")

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while not ended.is_set():
                threading.Thread(target=talk, args=(listening.accept()[0],)).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve, args=(listening,))
        serving.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)
            serving.join(DEADLINE_S)


def test_a_process_ends_though_its_collector_goes_on_with_an_answer() -> None:
    code = """
import asyncio, sys
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
async def main():
    config = ServerConfig(engine="memory", kafka_port=0, native_port=0, telemetry_endpoint=sys.argv[1])
    node = Node(config, owns_loop=False)
    await node.start()
    await node.close()
asyncio.run(main())
print("over")
"""
    with endless() as endpoint:
        done = subprocess.run(
            [sys.executable, "-c", code, endpoint],
            env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
    assert done.stdout == "over\n"
    assert "left behind" in done.stderr


def test_a_collector_that_goes_on_with_an_answer_is_complained_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(endpoint: str) -> None:
        async with serving(endpoint) as (node, _):
            telemetry = node._telemetry
            assert telemetry is not None
            telemetry._config = replace(telemetry._config, send_timeout_s=0.2)
            for _ in range(3):
                await telemetry._send_all()
            threads = [each for each in threading.enumerate() if each.name == "telemetry"]
            assert len(threads) == 1

    with endless() as endpoint:
        asyncio.run(asyncio.wait_for(main(endpoint), DEADLINE_S))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "does not reach" in said and endpoint in said


def test_what_a_collector_that_is_away_misses_is_bounded() -> None:
    calls: list[int] = []
    buffer = SpanBuffer(4, lambda: calls.append(len(buffer)))
    spans = [ReadableSpan(str(number)) for number in range(6)]
    for span in spans:
        buffer.on_end(span)
    assert (len(buffer), buffer.dropped, calls) == (4, 2, [2, 3, 4])
    assert buffer.take() == spans[:4]
    assert len(buffer) == 0


def test_nothing_stays_behind(collector: Collector) -> None:
    async def use(node: Node, client: httpx.AsyncClient) -> None:
        services.append(node.http_app().service)
        await client.get("/api/v1/topics")

    before = set(threading.enumerate())
    services: list[HttpService] = []
    play(collector, use)
    (service,) = services
    assert service.trace is None
    assert [counters.trace for counters in service.metrics.listeners.values()] == [None, None, None]
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("telemetry"):
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def test_a_node_that_sends_nothing_loads_nothing_and_starts_nothing() -> None:
    code = """
import asyncio, sys, threading
from tailrace.model import TailraceError
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
async def main():
    node = Node(ServerConfig(engine="memory", kafka_port=0, native_port=0, http_port=0), owns_loop=False)
    await node.start()
    print([each.name for each in threading.enumerate() if "telemetry" in each.name])
    print([each.get_name() for each in asyncio.all_tasks() if "telemetry" in each.get_name()])
    await node.close()
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "tailrace.telemetry"))])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["[]", "[]", "[]"]
