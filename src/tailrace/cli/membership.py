"""A command as a member of a subscription: it shows what is delivered, and acknowledges it once it is shown.

Without a number messages are pushed, until Ctrl-C. With one they are pulled, exactly so many: what a member
is given beyond what it shows would count as a delivery for nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.delivery import Shown
from tailrace.cli.exit import ExitCode
from tailrace.cli.native import NativeNode
from tailrace.cli.output import Output
from tailrace.model import BrokerError, ErrorCode

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient

_PULL_COUNT_MAX = 100
_PULL_WAIT_MS = 10_000
_PREFETCH = 100
_PREFETCH_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How a command takes part."""

    count: int | None = None  # None: until Ctrl-C
    ack: bool = True
    prefetch: int = _PREFETCH

    def check(self, output: Output) -> None:
        """Refuse what would never be printed."""
        if output.format == "json" and self.count is None:
            raise click.UsageError("-o json prints one list at the end: add --count, or use -o jsonl.")


def count_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--count`."""
    return click.option(
        "-n",
        "--count",
        type=click.IntRange(min=1),
        metavar="COUNT",
        help="End after so many messages. Without it: wait for more, until Ctrl-C.",
    )(command)


def membership_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--count`, `--no-ack` and `--prefetch`."""
    no_ack = click.option(
        "--no-ack",
        is_flag=True,
        help="Show, and do not acknowledge: they are delivered again later, and each time counts.",
    )
    prefetch = click.option(
        "--prefetch",
        type=click.IntRange(min=1, max=_PREFETCH_MAX),
        default=_PREFETCH,
        show_default=True,
        metavar="COUNT",
        help="How many unacknowledged messages may be on their way here.",
    )
    return count_option(no_ack(prefetch(command)))


def take_part(
    node: NativeNode,
    name: str,
    membership: Membership,
    output: Output,
    *,
    prepare: Callable[[AsyncClient], Awaitable[None]] | None = None,
) -> int:
    """Show a subscription's messages until there were enough, or until Ctrl-C; the exit code."""
    membership.check(output)

    async def work(client: AsyncClient, shown: Shown) -> None:
        if prepare is not None:
            await prepare(client)
        if membership.count is None:
            await _show_pushed(client, name, membership, shown)
        else:
            await show_pulled(client, name, shown, count=membership.count, ack=membership.ack)

    return watch(node, output, work)


def watch(
    node: NativeNode, output: Output, work: Callable[[AsyncClient, Shown], Coroutine[Any, Any, None]]
) -> int:
    """Do work that shows messages until it ends, or until Ctrl-C, which is no failure; the exit code."""
    with Shown(output) as shown:
        try:
            node.stay(lambda client: work(client, shown))
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                click.echo(f"\n{shown}", err=True)
    return ExitCode.OK


async def _show_pushed(client: AsyncClient, name: str, membership: Membership, shown: Shown) -> None:
    joined = await client.subscribe_to_subscription(
        name, auto_ack=membership.ack, prefetch=membership.prefetch
    )
    async with joined:
        async for message in joined:  # acknowledged when the next one is asked for
            shown.add(message)


async def show_pulled(
    client: AsyncClient, name: str, shown: Shown, *, count: int | None, ack: bool = True
) -> None:
    """Pull messages, show them, and acknowledge them together; without a count for ever."""
    left = sys.maxsize if count is None else count
    while left > 0:
        messages = await client.pull(name, min(left, _PULL_COUNT_MAX), wait_ms=_PULL_WAIT_MS)
        for message in messages:
            shown.add(message)
        if ack:
            await asyncio.gather(*(message.ack() for message in messages))
        left -= len(messages)


async def ensure_subscription(client: AsyncClient, name: str, topic: str, start: str) -> None:
    """Make a subscription unless there is one, whatever its settings are."""
    try:
        await client.create_subscription(name, topic, start=start)
    except BrokerError as error:
        if error.code != ErrorCode.DUPLICATE_RESOURCE:
            raise
        existing = await client.describe_subscription(name)
        if existing["topic"] != topic:
            raise
