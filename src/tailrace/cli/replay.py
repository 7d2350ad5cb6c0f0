"""`tailrace replay`: shows the past messages of a topic once more, or moves one of its subscriptions back.

To show them it reads through a subscription of its own, which no other command knows and which is deleted at
the end: nobody else's messages are touched. Should this command be killed, `tailrace subscription list` shows
what it left behind, by the name `replay.` with a number.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.delivery import Shown
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.native import START_METAVAR, NativeNode, StartType, dry_run_option, node_option, yes_option
from tailrace.cli.output import Output, examples, output_option
from tailrace.cli.replaying import REPLAY_COLUMNS, replay_subscription

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient
    from tailrace.client.native.message import AsyncMessage

_PULL_COUNT = 500
_PULL_WAIT_MS = 200
_UNACKED_MAX = 2 * _PULL_COUNT


@click.command(
    name="replay",
    epilog=examples(
        "tailrace replay orders",
        "tailrace replay orders --from time:2h --count 100 -o jsonl",
        "tailrace replay orders --subscription workers --from offset:1000 --dry-run",
        "tailrace replay orders --subscription workers --from earliest --yes",
    ),
)
@click.argument("topic")
@click.option(
    "--from",
    "start",
    type=StartType(),
    default="earliest",
    show_default=True,
    metavar=START_METAVAR,
    help="The first message; a time is 2h, 3d (ago) or 2026-11-16T09:00.",
)
@click.option("-n", "--count", type=click.IntRange(min=1), metavar="COUNT", help="Show no more than so many.")
@click.option("--subscription", metavar="NAME", help="Show nothing: have them delivered to this one again.")
@dry_run_option
@yes_option
@node_option
@output_option
def command(
    topic: str,
    start: str,
    count: int | None,
    subscription: str | None,
    dry_run: bool,
    yes: bool,
    node: NativeNode,
    output: Output,
) -> int:
    """Show past messages of a topic, or deliver them again.

    Ends at what is the end of the topic now. With --subscription that one is moved instead, and its members
    get everything from there on again.
    """
    if subscription is not None:
        if count is not None:
            raise click.UsageError(
                "--count goes with showing; a subscription gets everything from --from on."
            )
        rows = replay_subscription(node, subscription, start, topic=topic, dry_run=dry_run, yes=yes)
        output.rows(rows, columns=REPLAY_COLUMNS)
        return ExitCode.OK
    if dry_run or yes:
        raise click.UsageError("--dry-run and --yes go with --subscription; showing changes nothing.")
    with Shown(output) as shown:
        node.run(lambda client: _show_past(client, topic, start, count, shown))
    return ExitCode.OK


async def _show_past(client: AsyncClient, topic: str, start: str, count: int | None, shown: Shown) -> None:
    described = await client.describe_topic(topic)
    ends = {each["partition"]: each["end_offset"] for each in described["partitions"]}
    left = sys.maxsize if count is None else count
    async with _own_subscription(client, topic, start) as name:
        while left > 0 and not await _is_past(client, name, ends):
            messages = await client.pull(name, min(left, _PULL_COUNT), wait_ms=_PULL_WAIT_MS)
            for message in messages:
                if message.offset < ends.get(message.partition, 0):  # what came since is not the past
                    shown.add(message)
                    left -= 1
            await _ack_all(messages)


@asynccontextmanager
async def _own_subscription(client: AsyncClient, topic: str, start: str) -> AsyncIterator[str]:
    name = f"replay.{secrets.token_hex(6)}"
    await client.create_subscription(
        name, topic, start=start, order="timestamp", max_deliveries=0, unacked_max=_UNACKED_MAX
    )
    try:
        yield name
    finally:
        await client.delete_subscription(name)


async def _ack_all(messages: list[AsyncMessage]) -> None:
    await asyncio.gather(*(message.ack() for message in messages))


async def _is_past(client: AsyncClient, name: str, ends: dict[int, int]) -> bool:
    """Whether the cursor has reached where each partition ended. Not every offset is a message."""
    described: dict[str, Any] = await client.describe_subscription(name)
    for each in described["partitions"]:
        if each["error"]:
            raise CommandFailed(f"{each['topic']}-{each['partition']} cannot be read: {each['error']}")
    return all(each["position"] >= ends.get(each["partition"], 0) for each in described["partitions"])
