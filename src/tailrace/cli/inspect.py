"""`tailrace inspect`: the topics and subscriptions of a broker in one view."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.model import BrokerError, ErrorCode

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient

_ASKED_AT_ONCE = 50
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.RESOURCE_NOT_FOUND)


@click.command(
    name="inspect",
    epilog=examples(
        "tailrace inspect",
        "tailrace inspect -o json | jq '.subscriptions[] | select(.lag > 0)'",
        "tailrace inspect --node broker-2:9999",
    ),
)
@node_option
@output_option
def command(node: NativeNode, output: Output) -> None:
    """Show topics and their subscriptions in one view."""
    topics, subscriptions = node.run(_inspect)
    if output.format == "json":
        output.record({"topics": topics, "subscriptions": subscriptions})
        return
    if output.format == "jsonl":
        output.rows([{"kind": "topic", **row} for row in topics], columns=())
        output.rows([{"kind": "subscription", **row} for row in subscriptions], columns=())
        return
    click.echo(f"Topics ({len(topics)})")
    output.rows(topics, columns=_TOPIC_COLUMNS)
    click.echo(f"\nSubscriptions ({len(subscriptions)})")
    output.rows(subscriptions, columns=_SUBSCRIPTION_COLUMNS)


async def _inspect(client: AsyncClient) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    subscriptions = await client.describe_subscriptions()
    described = await _each(client.describe_subscription, [each["name"] for each in subscriptions])
    topics = await _each(
        client.describe_topic, sorted(each["name"] for each in await client.describe_topics())
    )
    read_by: dict[str, int] = {}
    for each in described:
        read_by[each["topic"]] = read_by.get(each["topic"], 0) + 1
    return [_topic_row(each, read_by.get(each["name"], 0)) for each in topics], [
        _subscription_row(each) for each in described
    ]


async def _each(describe: Callable[[str], Awaitable[Any]], names: Iterable[str]) -> list[dict[str, Any]]:
    """A description of each; what went away meanwhile is left out. A few are asked for at a time."""
    places = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def one(name: str) -> dict[str, Any] | None:
        async with places:
            try:
                found: dict[str, Any] = await describe(name)
                return found
            except BrokerError as error:
                if error.code not in _GONE:
                    raise
                return None

    found = await asyncio.gather(*(one(name) for name in names))
    return [each for each in found if each is not None]


def _topic_row(topic: dict[str, Any], subscriptions: int) -> dict[str, Any]:
    parts = topic["partitions"]
    return {
        "name": topic["name"],
        "partitions": len(parts),
        "messages": sum(each["end_offset"] - each["start_offset"] for each in parts),
        "subscriptions": subscriptions,
        "extents": parts,
    }


def _subscription_row(found: dict[str, Any]) -> dict[str, Any]:
    kept = (
        "name",
        "topic",
        "mode",
        "state",
        "member_count",
        "lag",
        "in_flight",
        "unacknowledged",
        "retry_buffer_bytes",
        "dead",
    )
    return {**{key: found[key] for key in kept}, "members": [each["name"] for each in found["members"]]}


def _extents(parts: list[dict[str, Any]]) -> str:
    """Start and end of every partition, as long as a person would read it."""
    shown = [f"{each['start_offset']}-{each['end_offset']}" for each in parts[:8]]
    return " ".join(shown) + (" ..." if len(parts) > len(shown) else "")


_TOPIC_COLUMNS = (
    Column("name"),
    Column("partitions", right=True),
    Column("messages", show=lambda count: f"{count:,}", right=True),
    Column("subscriptions", right=True),
    Column("extents", "start-end", show=_extents),
)
_SUBSCRIPTION_COLUMNS = (
    Column("name"),
    Column("topic"),
    Column("mode"),
    Column("state"),
    Column("lag", show=lambda lag: f"{lag:,}", right=True),
    Column("unacknowledged", right=True),
    Column("retry_buffer_bytes", "retry buffer bytes", show=lambda size: f"{size:,}", right=True),
    Column("dead", right=True),
    Column("members", show=", ".join),
)
