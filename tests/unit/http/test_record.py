"""GET and DELETE of records, from a real node: where a read begins, goes on, waits, filters and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tailrace.broker import Partition
from tailrace.broker.reading import Page, read_page
from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.http.rest.reading import read_moment
from tailrace.model import LogDamaged, Offset
from tailrace.records import Compression, NewRecord, build_batch, crc32c, read_batch
from tailrace.server.node import Node
from tailrace.storage.api import Slice, TimestampedOffset

from .conftest import Run, Serve, Wire, check_error, partition_of, wait_until
from .test_produce import RECORDS, create, post

UNREADABLE = Code.UNREADABLE_RECORDS
T0 = 4_000_000_000_000  # far ahead, so that nothing is too old to be kept


def put(node: Node, values: Sequence[Any], *, partition: int = 0, at: int = 0, **fields: Any) -> None:
    """Append a batch as a Kafka producer would; record n is n ms after `at`."""
    records: list[NewRecord] = [
        (T0 + at + n, b"k%d" % (n % 2), str(value).encode(), ()) for n, value in enumerate(values)
    ]
    partition_of(node.broker, "t", partition).append(read_batch(build_batch(records, **fields)))


def put_garbage(node: Node) -> None:
    data = build_batch([(T0 + 5, b"k", b"value", ())])
    data[61:] = b"\xff" * len(data[61:])
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    partition_of(node.broker, "t", 0).append(read_batch(data))


async def get(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    answer = await client.get(RECORDS, params=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def values(page: dict[str, Any]) -> list[str]:
    return [each["value"] for each in page["records"]]


# ---- one partition


def test_a_record_is_shown_as_it_was_stored(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        headers = [("h", b"1"), ("n", None), ("b", b"\xff")]
        for key, value in ((b"k", b"v"), (None, None), (b"\xff", b"\xfe")):
            batch = build_batch([(T0, key, value, headers)], compression=Compression.ZSTD)
            partition_of(node.broker, "t", 0).append(read_batch(batch))
        page = await get(client)
        assert page == {
            "records": page["records"],
            "next_offset": 3,
            "next_offsets": {"0": 3},
            "high_watermark": 3,
            "high_watermarks": {"0": 3},
            "last_stable_offset": 3,
            "last_stable_offsets": {"0": 3},
            "scanned": 3,
        }
        first, second, third = page["records"]
        assert first == {
            "topic": "t",
            "partition": 0,
            "offset": 0,
            "timestamp": T0,
            "key": "k",
            "value": "v",
            "headers": [
                {"name": "h", "value": "1"},
                {"name": "n", "value": None},
                {"name": "b", "value": "/w==", "encoding": "base64"},
            ],
        }
        assert (second["key"], second["value"]) == (None, None)
        assert (third["key"], third["key_encoding"]) == ("/w==", "base64")
        assert (third["value"], third["value_encoding"]) == ("/g==", "base64")

    run(scenario())


def test_what_was_read_can_be_sent_back(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        sent = {"key": "/w==", "key_encoding": "base64", "value": "v", "headers": {"h": "1"}, "timestamp": T0}
        await post(client, sent)
        (record,) = (await get(client))["records"]
        assert (await post(client, record)).status_code == 200
        first, second = (await get(client))["records"]
        assert second == {**first, "offset": 1}

    run(scenario())


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({}, range(20)),
        ({"offset": "earliest"}, range(20)),
        ({"offset": "latest"}, []),
        ({"offset": 13, "partition": 0}, range(13, 20)),
        ({"offset": 20, "partition": 0}, []),
        ({"offset": -3}, [17, 18, 19]),
        ({"offset": -3, "partition": 0, "limit": 2}, [17, 18]),
        ({"offset": -100}, range(20)),
        ({"offsets": "0:18"}, [18, 19]),
        ({"limit": 4}, range(4)),
        ({"ts": T0 + 12}, range(12, 20)),
        ({"ts": 0}, range(20)),
        ({"ts": T0 + 1000}, []),
        ({"ts": "2001-02-03T04:05"}, range(20)),
        ({"ts": "1h"}, range(20)),
        ({"max_bytes": 1}, [0]),
        ({"max_bytes": 8}, [0, 1]),  # of key and value there are four
    ],
)
def test_where_a_read_begins_and_ends(
    run: Run, node: Node, client: httpx.AsyncClient, query: dict[str, Any], offsets: Sequence[int]
) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, range(10, 20))
        put(node, range(20, 30), at=10)
        page = await get(client, **query)
        assert [each["offset"] for each in page["records"]] == list(offsets)
        if offsets:
            assert page["next_offset"] == offsets[-1] + 1

    run(scenario())


def test_a_read_goes_on_where_the_one_before_ended(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        for first in range(0, 50, 5):
            put(node, range(first, first + 5), compression=Compression.GZIP)
        seen: list[str] = []
        at = 0
        while page := await get(client, partition=0, offset=at, limit=7):
            seen += values(page)
            if at == page["next_offset"]:
                break
            at = page["next_offset"]
        assert seen == [str(number) for number in range(50)]

    run(scenario())


# ---- several partitions


def test_partitions_are_merged_by_time_and_gone_on_with(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, partitions=3)
        put(node, ["a0", "a1", "a2"], partition=0, at=0)
        put(node, ["b0", "b1", "b2"], partition=1, at=1)
        put(node, ["c0", "c1"], partition=2, at=10)
        page = await get(client, limit=4)
        assert values(page) == ["a0", "a1", "b0", "a2"]
        assert page["next_offset"] is page["high_watermark"] is None
        assert page["next_offsets"] == {"0": 3, "1": 1, "2": 0}
        assert page["high_watermarks"] == {"0": 3, "1": 3, "2": 2}
        assert (page["last_stable_offset"], page["last_stable_offsets"]) == (None, page["high_watermarks"])
        on = ",".join(f"{index}:{offset}" for index, offset in page["next_offsets"].items())
        assert values(await get(client, offsets=on)) == ["b1", "b2", "c0", "c1"]
        assert values(await get(client, offsets="2:1,0:2")) == ["a2", "c1"]

    run(scenario())


def test_the_last_of_all_partitions_are_the_newest(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=3)
        put(node, ["a0", "a1", "a2"], partition=0, at=0)
        put(node, ["b0", "b1", "b2"], partition=1, at=1)
        page = await get(client, offset=-3)
        assert values(page) == ["a2", "b1", "b2"]
        assert page["next_offsets"] == {"0": 3, "1": 3, "2": 0}
        assert values(await get(client, offset=-3, limit=1)) == values(page)[:1]
        assert page["scanned"] == 3

    run(scenario())


def test_a_time_is_found_in_every_partition(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=2)
        put(node, ["a0", "a1", "a2"], partition=0, at=0)
        put(node, ["b0"], partition=1, at=1)
        page = await get(client, ts=T0 + 2)
        assert values(page) == ["a2"]
        assert page["next_offsets"] == {"0": 3, "1": 1}

    run(scenario())


def test_every_start_ends_at_the_last_stable_offset(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, ["a0", "a1"], at=0)
        put(node, ["b0", "b1"], at=2)
        partition_of(node.broker, "t", 0).last_stable_offset = Offset(2)
        for query in ({"offset": "latest"}, {"ts": T0 + 3}):
            page = await get(client, **query)
            assert (values(page), page["next_offsets"]) == ([], {"0": 2})
        assert values(await get(client, offset="-1")) == ["a1"]
        assert values(await get(client, offset="earliest")) == ["a0", "a1"]
        assert values(await get(client, partition=0, offset=3)) == []

    run(scenario())


# ---- filters


def test_records_are_found_by_key_and_text(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, ["red apple", "green apple", "red pear", "grün"])
        assert values(await get(client, key="k0")) == ["red apple", "red pear"]
        assert values(await get(client, contains="apple")) == ["red apple", "green apple"]
        assert values(await get(client, contains="ü")) == ["grün"]
        assert values(await get(client, contains="k1")) == ["green apple", "grün"]
        assert values(await get(client, contains="apple", key="k1")) == ["green apple"]
        page = await get(client, key="k")
        assert (page["records"], page["scanned"], page["next_offset"]) == ([], 4, 4)
        assert values(await get(client, contains="red", limit=1)) == ["red apple"]

    run(scenario())


def test_a_search_goes_on_after_its_bound(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(records_max=10))

    async def scenario() -> None:
        await create(node)
        for first in range(0, 250, 50):
            put(node, range(first, first + 50))
        page = await get(client, contains="230", limit=10)
        assert (page["records"], page["scanned"], page["next_offset"]) == ([], 100, 100)
        page = await get(client, contains="230", limit=10, partition=0, offset=200, timeout=5000)
        assert values(page) == ["230"]

    run(scenario())


def test_a_search_is_not_ended_by_what_cannot_be_read_elsewhere(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(records_max=10))

    async def scenario() -> None:
        await create(node, partitions=2)
        put_garbage(node)
        put(node, range(150), partition=1)
        page = await get(client, contains="149", limit=10)
        assert (page["records"], page["scanned"], page["next_offsets"]) == ([], 100, {"0": 0, "1": 100})
        assert values(await get(client, contains="149", limit=10, offsets="0:0,1:100")) == ["149"]
        answer = await client.get(RECORDS, params={"limit": 10, "offsets": "0:0,1:150"})
        check_error(answer, UNREADABLE, "t-0", "offset 0")

    run(scenario())


def test_a_search_that_ends_at_a_bound_of_bytes_does_not_wait(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(read_bytes_max=100))

    async def scenario() -> None:
        await create(node)
        put(node, ["x" * 500] * 5)
        page = await get(client, contains="y", timeout=60_000)
        assert (page["records"], page["scanned"], page["next_offset"]) == ([], 2, 2)

    run(scenario())


# ---- waiting


def waiting(node: Node, partition: int = 0) -> int:
    return len(partition_of(node.broker, "t", partition).waiters)


def test_a_read_waits_for_the_first_record(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=2)
        put(node, ["old"])
        reading = asyncio.ensure_future(get(client, offset="latest", timeout=30_000))
        await wait_until(lambda: waiting(node, 1) == 1)
        put(node, ["new"], partition=1)
        page = await reading
        assert values(page) == ["new"]
        assert page["next_offsets"] == {"0": 1, "1": 1}
        assert waiting(node) == waiting(node, 1) == 0

    run(scenario())


def test_a_wait_goes_on_after_what_does_not_match(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[Page] = []

    async def noted(*given: Any, **named: Any) -> Page:
        pages.append(await read_page(*given, **named))
        return pages[-1]

    monkeypatch.setattr("tailrace.http.rest.reading.read_page", noted)

    async def scenario() -> None:
        await create(node)
        reading = asyncio.ensure_future(get(client, contains="wanted", timeout=30_000))
        await wait_until(lambda: len(pages) == 1)
        put(node, ["other"])
        await wait_until(lambda: len(pages) == 2)
        put(node, ["wanted"])
        page = await reading
        assert (values(page), page["scanned"]) == (["wanted"], 2)

    run(scenario())


def test_a_wait_ends_with_its_time(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        page = await get(client, timeout=50)
        assert (page["records"], page["next_offset"]) == ([], 0)
        assert waiting(node) == 0

    run(scenario())


def test_a_wait_ends_with_its_client(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await create(node)
        async with Wire.to(node) as wire:
            await wire.send(b"GET %s?timeout=50000 HTTP/1.1\r\nhost: localhost\r\n\r\n" % RECORDS.encode())
            await wait_until(lambda: waiting(node) == 1)
        await wait_until(lambda: waiting(node) == 0)

    run(scenario())


def test_a_wait_ends_with_the_node(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(close_grace_s=20))

    async def scenario() -> None:
        await create(node)
        reading = asyncio.ensure_future(get(client, timeout=50_000))
        await wait_until(lambda: waiting(node) == 1)
        async with asyncio.timeout(10):
            await node.close()
            assert (await reading)["records"] == []

    run(scenario())


def test_a_wait_ends_with_the_topic(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        reading = asyncio.ensure_future(client.get(RECORDS, params={"timeout": 50_000}))
        await wait_until(lambda: waiting(node) == 1)
        await node.broker.delete_topic("t")
        check_error(await reading, Code.TOPIC_NOT_FOUND)

    run(scenario())


def test_a_topic_that_was_made_anew_is_not_read_at_offsets_of_the_old_one(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = Partition.find_timestamp

    async def find_and_make_anew(
        self: Partition, timestamp_ms: int, *, up_to: Offset | None = None
    ) -> TimestampedOffset | None:
        found = await find(self, timestamp_ms, up_to=up_to)
        await node.broker.delete_topic("t")
        await create(node)
        put(node, ["new"] * 5)
        return found

    async def scenario() -> None:
        await create(node)
        put(node, range(5))
        monkeypatch.setattr(Partition, "find_timestamp", find_and_make_anew)
        check_error(await client.get(RECORDS, params={"ts": T0 + 3}), Code.TOPIC_NOT_FOUND)

    run(scenario())


def test_a_topic_that_goes_while_it_is_read_is_not_found(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Partition.read

    async def read_too_late(
        self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        await node.broker.delete_topic("t")
        return await read(self, offset, bytes_max=bytes_max, up_to=up_to)

    async def scenario() -> None:
        await create(node)
        put(node, range(5))
        monkeypatch.setattr(Partition, "read", read_too_late)
        check_error(await client.get(RECORDS), Code.TOPIC_NOT_FOUND, "'t' does not exist")

    run(scenario())


# ---- refusals


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("offset=5", "partition=0"),
        ("offset=x", "offset"),
        ("offset=+1", "offset"),
        ("offset=1_0", "offset"),
        ("offset=-10001", "10000"),
        ("offset=latest%0A", "offset"),
        ("partition=0&offset=0%0A", "offset"),
        ("offsets=0:0%0A", "offsets"),
        ("offset=earliest&ts=1h", "offset and ts"),
        ("offset=0&offsets=0:0&partition=0", "offset and offsets"),
        ("offsets=0:0&partition=0", "Leave partition out"),
        ("offsets=0:0,0:1", "twice"),
        ("offsets=0", "offsets"),
        ("offsets=", "offsets"),
        ("offsets=0:-1", "offsets"),
        ("ts=yesterday", "ts"),
        ("ts=", "ts"),
        ("ts=" + "9" * 41, "ts"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=10001", "10000"),
        ("limit=x", "limit"),
        ("timeout=-1", "timeout"),
        ("timeout=60001", "60000"),
        ("max_bytes=0", "max_bytes"),
        ("max_bytes=8388609", "8388608"),
        ("partition=-1", "partition"),
        ("partition=0&partition=0", "twice"),
        ("from=5", "from"),
    ],
)
def test_a_wrong_parameter_is_told(
    run: Run, node: Node, client: httpx.AsyncClient, query: str, words: str
) -> None:
    async def scenario() -> None:
        await create(node)
        check_error(await client.get(f"{RECORDS}?{query}"), Code.INVALID_REQUEST, words)

    run(scenario())


def test_what_is_not_there_is_told(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        check_error(await client.get(RECORDS), Code.TOPIC_NOT_FOUND)
        await create(node)
        put(node, range(5))
        await partition_of(node.broker, "t", 0).delete_records(2)
        for offset in (0, 1, 6, 9_999_999_999_999_999_999):
            answer = await client.get(RECORDS, params={"partition": 0, "offset": offset})
            details = check_error(answer, Code.OFFSET_OUT_OF_RANGE, str(offset))
            assert details == {"start_offset": 2, "end_offset": 5}
        check_error(await client.get(RECORDS, params={"partition": 1}), Code.TOPIC_NOT_FOUND, "there is no 1")
        check_error(await client.get(RECORDS, params={"offsets": "0:2,4:0"}), Code.TOPIC_NOT_FOUND)

    run(scenario())


def test_what_cannot_be_read_is_told_with_its_place(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, ["before"])
        put_garbage(node)
        put(node, ["after"])
        page = await get(client)
        assert (values(page), page["next_offset"]) == (["before"], 1)
        for query in ({"offset": 1, "partition": 0}, {"offset": 1, "partition": 0, "timeout": 10_000}):
            details = check_error(await client.get(RECORDS, params=query), UNREADABLE, "t-0", "offset 1")
            assert details == {"topic": "t", "partition": 0, "offset": 1, "next_offset": 2}
        assert values(await get(client, partition=0, offset=2)) == ["after"]

    run(scenario())


def test_a_time_that_may_lie_in_what_cannot_be_decoded_is_told_with_its_place(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, ["before"])
        put_garbage(node)
        put(node, ["after"], at=10)
        for path in (RECORDS, "/api/v1/topics/t/tail"):
            details = check_error(
                await client.get(path, params={"ts": T0 + 1}), UNREADABLE, "t-0", "offset 1"
            )
            assert details == {"topic": "t", "partition": 0, "offset": 1, "next_offset": 2}
        assert values(await get(client, ts=T0)) == ["before"]
        assert values(await get(client, ts=T0 + 11)) == []

    run(scenario())


def test_the_newest_records_are_found_beside_what_cannot_be_decoded(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, ["before"])
        put_garbage(node)
        put(node, ["after"])
        assert values(await get(client, offset=-1)) == ["after"]
        page = await get(client, offset=-2)
        assert (values(page), page["next_offset"]) == (["before"], 1)

    run(scenario())


def test_damage_is_told_with_its_place(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damaged(*_: object, **__: object) -> None:
        raise LogDamaged("00.log: the batch at byte 5 is not what was written")

    async def scenario() -> None:
        await create(node)
        put(node, ["v"])
        monkeypatch.setattr("tailrace.broker.partition.Partition.read", damaged)
        for query in ("", "?offset=-1"):
            details = check_error(await client.get(f"{RECORDS}{query}"), Code.INTERNAL, "t-0", "byte 5")
            assert details == {"topic": "t", "partition": 0, "offset": 0}

    run(scenario())


# ---- deleting


def test_records_below_an_offset_are_deleted(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=2)
        put(node, range(5), partition=1)
        answer = await client.delete(RECORDS, params={"partition": 1, "before": 3})
        assert (answer.status_code, answer.json()) == (200, {"partition": 1, "start_offset": 3})
        assert values(await get(client)) == ["3", "4"]
        answer = await client.delete(RECORDS, params={"partition": 1, "before": "latest"})
        assert answer.json() == {"partition": 1, "start_offset": 5}
        assert partition_of(node.broker, "t", 1).start_offset == Offset(5)

    run(scenario())


@pytest.mark.parametrize(
    "query",
    [
        "",
        "partition=0",
        "before=1",
        "partition=0&before=-1",
        "partition=0&before=x",
        "partition=x&before=1",
        "partition=0&before=latest%0A",
    ],
)
def test_a_wrong_deletion_is_refused(run: Run, node: Node, client: httpx.AsyncClient, query: str) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, range(5))
        check_error(await client.delete(f"{RECORDS}?{query}"), Code.INVALID_REQUEST)
        assert partition_of(node.broker, "t", 0).start_offset == 0

    run(scenario())


def test_what_cannot_be_deleted_is_told(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        query = {"partition": 0, "before": 3}
        check_error(await client.delete(RECORDS, params=query), Code.TOPIC_NOT_FOUND)
        await create(node, cleanup_policy="compact")
        check_error(await client.delete(RECORDS, params=query), Code.INVALID_REQUEST, "compact", status=409)
        await node.broker.delete_topic("t")
        await create(node)
        details = check_error(await client.delete(RECORDS, params=query), Code.OFFSET_OUT_OF_RANGE)
        assert details == {"start_offset": 0, "end_offset": 0}
        check_error(await client.delete(RECORDS, params={**query, "partition": 1}), Code.TOPIC_NOT_FOUND)

    run(scenario())


def test_what_was_read_is_counted(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        put(node, ["12", "3456"])
        await get(client)
        assert (node.broker.counters.records_out, node.broker.counters.bytes_out) == (2, 2 + 2 + 2 + 4)

    run(scenario())


# ---- times


@pytest.mark.parametrize(
    ("text", "moment"),
    [("0", 0), ("123", 123), ("1700000000123", 1_700_000_000_123), ("2s", 8_000), ("9999999w", 0)],
)
def test_a_time_is_milliseconds_or_as_people_write_it(text: str, moment: int) -> None:
    assert read_moment(text, now_ms=10_000) == moment
