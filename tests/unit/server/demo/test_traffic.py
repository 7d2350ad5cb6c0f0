"""The demo's traffic against an embedded broker: what a second start finds."""

from __future__ import annotations

import asyncio
import contextlib
import json

import tailrace
from tailrace.server.demo.traffic import Demo


def numbers(broker: tailrace.Broker) -> list[str]:
    return [json.loads(record.value or b"")["order"] for record in broker.read("orders")]


async def run_until(broker: tailrace.Broker, *, orders: int) -> None:
    demo = asyncio.create_task(Demo(broker.bootstrap_servers).run())
    try:
        async with asyncio.timeout(60):
            while len(numbers(broker)) < orders:  # noqa: ASYNC110 - the demo tells nobody what it wrote
                await asyncio.sleep(0.05)
    finally:
        demo.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await demo


def test_a_second_start_goes_on_with_the_order_numbers() -> None:
    with tailrace.Broker() as broker:
        broker.create_topic("orders")
        asyncio.run(run_until(broker, orders=5))
        before = numbers(broker)
        asyncio.run(run_until(broker, orders=len(before) + 5))
        found = numbers(broker)

    assert len(set(found)) == len(found)
    assert found == [f"o-{number:06d}" for number in range(1, len(found) + 1)]
