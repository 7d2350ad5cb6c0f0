"""Delayed messages looked for in their target: among other records, over what cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.unit.broker.conftest import Rig, opened
from tests.unit.broker.test_reading import partitions_of, put, put_garbage

from tailrace.broker.delayed.log import find_delayed_ids
from tailrace.broker.partition import Partition
from tailrace.model import Offset
from tailrace.records import build_batch, read_batch


def run(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened() as rig:
            await scenario(rig)

    asyncio.run(main())


def put_message(partition: Partition, *ids: str) -> None:
    records = [(1, None, b"v", [("id", each.encode())]) for each in ids]
    partition.append(read_batch(build_batch(records)))


async def find(partition: Partition, *ids: str, start: int = 0, end: int | None = None) -> set[str]:
    await partition.wait_acknowledged(partition.end_offset)
    return await find_delayed_ids(
        partition,
        start=Offset(start),
        end=partition.end_offset if end is None else Offset(end),
        header="id",
        ids=ids,
    )


def test_ids_are_found_in_a_range() -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_message(partition, "a", "b")
        put(partition, [1, 2])
        put_message(partition, "c", "d")
        assert await find(partition, "a", "c", "z") == {"a", "c"}
        assert await find(partition, "a", "b", "c", "d", start=1, end=5) == {"b", "c"}

    run(scenario)


def test_a_broken_batch_of_a_client_does_not_hide_the_others() -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_message(partition, "a")
        put_garbage(partition)
        put_message(partition, "b")
        assert await find(partition, "a", "b") == {"a", "b"}

    run(scenario)


def test_messages_behind_an_open_transaction_are_found() -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_message(partition, "a")
        put_message(partition, "b")
        partition.last_stable_offset = Offset(1)
        assert await find(partition, "a", "b") == {"a", "b"}

    run(scenario)
