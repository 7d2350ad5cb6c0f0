"""A read as Arrow: the stream is read back with pyarrow and compared with what JSON says."""

from __future__ import annotations

import json
import sys

import httpx
import pyarrow as pa
import pytest

from tailrace.http.error import Code
from tailrace.records import build_batch, read_batch
from tailrace.server.node import Node
from tailrace.spark.codec import KAFKA_SCHEMA

from .conftest import Run, check_error, partition_of
from .test_produce import RECORDS, create

ARROW = "application/vnd.apache.arrow.stream"
T0 = 4_000_000_000_000


async def read_arrow(client: httpx.AsyncClient, **query: str) -> pa.Table:
    answer = await client.get(RECORDS, params=query, headers={"accept": f"{ARROW}, */*;q=0.1"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, ARROW), answer.text
    return pa.ipc.open_stream(answer.content).read_all()


def append(
    node: Node, partition: int, *records: tuple[int, bytes | None, bytes | None], **fields: int
) -> None:
    rows = [(T0 + at, key, value, [("h", b"\xff"), ("n", None)]) for at, key, value in records]
    made = build_batch(rows, log_append_time_ms=fields.get("append_time"))
    log = partition_of(node.broker, "t", partition).log
    assert log is not None
    log.append(read_batch(made), leader_epoch=partition_of(node.broker, "t", partition).leader_epoch)


def test_the_columns_are_those_of_sparks_kafka_source(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, partitions=2)
        append(node, 0, (0, b"k", b"\xff"), (2, None, None))
        append(node, 1, (1, b"", b"v"), append_time=T0 + 1)
        table = await read_arrow(client)
        assert table.schema.equals(KAFKA_SCHEMA)
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == [(T0 + at) * 1000 for at in range(3)]
        rows = table.drop_columns(["timestamp"]).to_pylist()
        headers = [{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}]
        common = {"topic": "t", "headers": headers}
        assert rows == [
            {"key": b"k", "value": b"\xff", "partition": 0, "offset": 0, "timestampType": 0, **common},
            {"key": b"", "value": b"v", "partition": 1, "offset": 0, "timestampType": 1, **common},
            {"key": None, "value": None, "partition": 0, "offset": 1, "timestampType": 0, **common},
        ]

    run(scenario())


def test_where_to_go_on_is_in_the_metadata(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=2)
        append(node, 0, (0, b"k", b"a"), (1, b"k", b"b"))
        table = await read_arrow(client, limit="1")
        assert {name.decode(): json.loads(text) for name, text in table.schema.metadata.items()} == {
            "next_offsets": {"0": 1, "1": 0},
            "high_watermarks": {"0": 2, "1": 0},
            "last_stable_offsets": {"0": 2, "1": 0},
            "scanned": 1,
        }
        assert (await read_arrow(client, offset="latest")).num_rows == 0

    run(scenario())


def test_errors_are_json(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        check_error(await client.get(RECORDS, headers={"accept": ARROW}), Code.TOPIC_NOT_FOUND)

    run(scenario())


def test_a_time_that_arrow_cannot_tell_is_said(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        append(node, 0, ((1 << 62) - T0, b"k", b"v"))
        answer = await client.get(RECORDS, headers={"accept": ARROW})
        check_error(answer, Code.INVALID_REQUEST, "offset 0 of partition 0", status=406)

    run(scenario())


def test_without_pyarrow_it_says_what_to_install(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.startswith("tailrace.spark.codec")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    async def scenario() -> None:
        await create(node)
        answer = await client.get(RECORDS, headers={"accept": ARROW})
        check_error(answer, Code.INVALID_REQUEST, "pip install 'tailrace[spark]'", status=406)
        assert (await client.get(RECORDS)).status_code == 200

    run(scenario())
