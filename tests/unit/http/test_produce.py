"""POST records as JSON and as bytes, to a real node; what is stored is read from the broker itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tailrace.broker import NewTopic
from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.model import LogBusy, Offset
from tailrace.records import Record, iter_batches
from tailrace.server.node import Node
from tailrace.wire.kafka.partitioner import partition_of_key

from .conftest import Run, Serve, check_error, partition_of

RECORDS = "/api/v1/topics/t/records"
BYTES = {"content-type": "application/octet-stream"}


async def create(node: Node, partitions: int = 1, **configs: str) -> None:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    await node.broker.topics.create(NewTopic(name="t", partitions=partitions, configs=named))


async def stored(node: Node, partition: int = 0, topic: str = "t") -> list[Record]:
    found = partition_of(node.broker, topic, partition)
    records: list[Record] = []
    offset = found.start_offset
    while offset < found.high_watermark:
        piece = await found.read(Offset(offset), bytes_max=1 << 20)
        records += [record for batch in iter_batches(await piece.load()) for record in batch.records()]
        offset = piece.next_offset
    return records


async def post(client: httpx.AsyncClient, *records: dict[str, Any]) -> httpx.Response:
    return await client.post(RECORDS, json={"records": records})


# ---- JSON


def test_a_record_is_stored_as_it_was_sent(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        sent = {"key": "k", "value": "vü", "headers": [{"name": "h", "value": "1"}], "timestamp": 4 * 10**12}
        answer = await post(client, sent)
        assert (answer.status_code, answer.json()) == (200, {"offsets": [{"partition": 0, "offset": 0}]})
        assert await stored(node) == [Record(0, 4 * 10**12, b"k", "vü".encode(), (("h", b"1"),))]

    run(scenario())


@pytest.mark.parametrize(
    ("record", "value"),
    [
        ({"value": "v"}, b"v"),
        ({"value": None}, None),
        ({"value": {"a": [1, None]}}, b'{"a":[1,null]}'),
        ({"value": "v", "encoding": "json"}, b'"v"'),
        ({"value": "/wA=", "encoding": "base64"}, b"\xff\x00"),
        ({"value": "/wA=", "value_encoding": "base64"}, b"\xff\x00"),
    ],
)
def test_a_value_is_text_json_or_base64(
    run: Run, node: Node, client: httpx.AsyncClient, record: dict[str, Any], value: bytes | None
) -> None:
    async def scenario() -> None:
        await create(node)
        assert (await post(client, record)).status_code == 200
        assert [each.value for each in await stored(node)] == [value]

    run(scenario())


def test_offsets_are_in_the_order_of_the_records(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=3)
        where = [2, 0, 2, 1, 2]
        answer = await post(client, *({"value": n, "partition": index} for n, index in enumerate(where)))
        places = [(each["partition"], each["offset"]) for each in answer.json()["offsets"]]
        assert places == [(2, 0), (0, 0), (2, 1), (1, 0), (2, 2)]
        assert [each.value for each in await stored(node, 2)] == [b"0", b"2", b"4"]

    run(scenario())


def test_a_key_goes_where_kafka_would_send_it(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=7)
        keys = [f"key-{n}" for n in range(20)]
        answer = await post(client, *({"key": key, "value": ""} for key in keys))
        expected = [partition_of_key(key.encode(), partitions=7) for key in keys]
        assert [each["partition"] for each in answer.json()["offsets"]] == expected

    run(scenario())


def test_a_topic_is_made_by_sending(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        assert (await post(client, {"value": 1, "partition": 0})).status_code == 200
        assert [each.value for each in await stored(node)] == [b"1"]

    run(scenario())


def test_no_topic_is_made_where_that_is_forbidden_or_by_what_is_no_record(run: Run, serve: Serve) -> None:
    node, client = serve(broker={"auto.create.topics.enable": "false"})
    run(_check_no_topic(client, Code.TOPIC_NOT_FOUND, {"value": 1}))
    assert node.broker.topics.get("t") is None
    node, client = serve()
    run(_check_no_topic(client, Code.INVALID_REQUEST, {"value": 1, "encoding": "base64"}))
    assert node.broker.topics.get("t") is None


async def _check_no_topic(client: httpx.AsyncClient, code: Code, record: dict[str, Any]) -> None:
    check_error(await post(client, record), code)


def test_what_was_answered_is_on_the_disk(run: Run, tmp_path: Path) -> None:
    from tailrace.server.config import ServerConfig

    config = ServerConfig(data_dir=tmp_path, kafka_port=0, native_port=0, http_port=0)

    async def life(expected: int) -> None:
        node = Node(config, owns_loop=False)
        await node.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://{node.http_address}", trust_env=False) as client:
                answer = await post(client, {"value": "v", "partition": 0})
                assert answer.json() == {"offsets": [{"partition": 0, "offset": expected}]}
                partition = partition_of(node.broker, "t", 0)
                assert partition.high_watermark == expected + 1
        finally:
            await node.close()

    run(life(0))
    run(life(1))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no body"),
        (b"{", "not JSON"),
        (b"[]", "Expected object"),
        (b"{}", "records"),
        (b'{"records": []}', "records"),
        (b'{"records": {}}', "records"),
        (b'{"records": [1]}', "records[0]"),
        (b'{"records": [{"value": 1}], "x": 1}', "x"),
        (b'{"records": [{"key": 1}]}', "value"),
        (b'{"records": [{"value": 1}, {"value": 1, "vaule": 2}]}', "records[1]"),
        (
            b'{"records": [{"value": 1}, {"value": "!", "encoding": "base64"}]}',
            "records[1]: value is not base64",
        ),
        (b'{"records": [{"value": 1, "encoding": "hex"}]}', "records[0].encoding"),
        (b'{"records": [{"value": 1, "timestamp": -1}]}', "records[0].timestamp"),
        (b'{"records": [{"value": 1, "timestamp": 9223372036854775808}]}', "records[0].timestamp"),
        (b'{"records": [{"value": 1, "partition": 1.5}]}', "records[0].partition"),
        (b'{"records": [{"value": 1, "headers": [{}]}]}', "records[0].headers[0]"),
        (b'{"records": [{"value": "\xff"}]}', "not JSON"),
        (b'{"records": [{"value": "\\ud800"}]}', "not JSON"),
        (b'{"records": [{"value": NaN}]}', "not JSON"),
        (b'{"records": [{"value": ' + b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_body_is_refused(
    run: Run, node: Node, client: httpx.AsyncClient, body: bytes, words: str
) -> None:
    async def scenario() -> None:
        await create(node)
        answer = await client.post(RECORDS, content=body, headers={"content-type": "application/json"})
        check_error(answer, Code.INVALID_REQUEST, words)
        assert await stored(node) == []

    run(scenario())


def test_what_cannot_be_stored_is_refused_and_nothing_is_stored(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, max_message_bytes="500", cleanup_policy="compact")
        check_error(await post(client, {"key": "k", "value": 1}, {"value": 2}), Code.INVALID_REQUEST, "key")
        too_large = {"key": "k", "value": "x" * 500}
        check_error(await post(client, {"key": "k", "value": 1}, too_large), Code.MESSAGE_TOO_LARGE, "500")
        check_error(await post(client, {"key": "k", "value": 1, "partition": 1}), Code.TOPIC_NOT_FOUND)
        many = {f"h{n}": "" for n in range(65_537)}
        check_error(await post(client, {"key": "k", "value": 1, "headers": many}), Code.INVALID_REQUEST)
        assert await stored(node) == []

    run(scenario())


@pytest.mark.parametrize(
    "topic", ["__consumer_offsets", "__tailrace_cursors", "__mine", "sp ace", "x" * 250, ".."]
)
def test_not_every_topic_can_be_sent_to(run: Run, client: httpx.AsyncClient, topic: str) -> None:
    async def scenario() -> None:
        path = f"/api/v1/topics/{topic.replace('.', '%2E')}/records"
        answer = await client.post(path, json={"records": [{"value": 1}]})
        assert answer.status_code in (400, 404)
        assert answer.json()["error"]["code"] in ("INVALID_REQUEST", "TOPIC_NOT_FOUND")

    run(scenario())


def test_a_body_has_a_bound_and_a_type(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(body_bytes_max=100))

    async def scenario() -> None:
        await create(node)
        check_error(await post(client, {"value": "x" * 100}), Code.MESSAGE_TOO_LARGE, "100")
        answer = await client.post(RECORDS, content=b"a: 1", headers={"content-type": "text/yaml"})
        check_error(answer, Code.INVALID_REQUEST, "application/x-ndjson", status=415)
        assert await stored(node) == []

    run(scenario())


def test_a_log_that_is_busy_is_answered_with_a_later(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise LogBusy("much waits")

    async def scenario() -> None:
        await create(node)
        monkeypatch.setattr("tailrace.broker.partition.Partition.append", busy)
        answer = await post(client, {"value": 1})
        check_error(answer, Code.BROKER_NOT_AVAILABLE, "much waits")
        assert answer.headers["retry-after"] == "1"

    run(scenario())


# ---- bytes


def test_a_body_of_bytes_is_one_record(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=2)
        data = bytes(range(256))
        query = {"key": "schlüssel", "partition": "1"}
        answer = await client.post(RECORDS, content=data, headers=BYTES, params=query)
        assert answer.json() == {"offsets": [{"partition": 1, "offset": 0}]}
        (record,) = await stored(node, 1)
        assert (record.key, record.value, record.headers) == ("schlüssel".encode(), data, ())
        answer = await client.post(RECORDS, content=b"", headers=BYTES, params={"partition": "0"})
        assert answer.status_code == 200
        assert [(each.key, each.value) for each in await stored(node, 0)] == [(None, b"")]

    run(scenario())


@pytest.mark.parametrize(
    "query", ["partition=-1", "partition=x", "partition=2147483648", "keys=k", "key=a&key=b"]
)
def test_parameters_of_bytes_are_checked(run: Run, client: httpx.AsyncClient, query: str) -> None:
    async def scenario() -> None:
        answer = await client.post(f"{RECORDS}?{query}", content=b"v", headers=BYTES)
        check_error(answer, Code.INVALID_REQUEST)

    run(scenario())


def test_parameters_are_for_records_that_have_none_of_their_own(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, partitions=3)
        records = [{"value": 1}, {"value": 2, "key": "own", "partition": 1}, {"value": 3, "key": "own"}]
        answer = await client.post(f"{RECORDS}?key=usual&partition=2", json={"records": records})
        assert [each["partition"] for each in answer.json()["offsets"]] == [2, 1, 2]
        assert [each.key for each in await stored(node, 2)] == [b"usual", b"own"]
        assert [each.key for each in await stored(node, 1)] == [b"own"]

    run(scenario())
