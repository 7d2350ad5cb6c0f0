"""`tailrace subscribe`: shows a topic's messages through a subscription that is made if there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.create_subscription import start_of_offset
from tailrace.cli.membership import Membership, ensure_subscription, membership_option, take_part
from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient


@click.command(
    name="subscribe",
    epilog=examples(
        "tailrace subscribe events --offset 0", "tailrace subscribe events --name audit --count 10 -o jsonl"
    ),
)
@click.argument("topic")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="The first message, if the subscription is made now; else it goes on where it stands.",
)
@click.option("--name", show_default="TOPIC.default", help="Of the subscription.")
@membership_option
@node_option
@output_option
def command(
    topic: str,
    offset: int,
    name: str | None,
    count: int | None,
    no_ack: bool,
    prefetch: int,
    node: NativeNode,
    output: Output,
) -> int:
    """Receive a topic's messages.

    They come through a subscription, which is made if there is none and stays: whoever uses its name goes on
    where the last one ended.
    """
    chosen = name or f"{topic}.default"

    async def prepare(client: AsyncClient) -> None:
        await ensure_subscription(client, chosen, topic, start_of_offset(offset))

    membership = Membership(count=count, ack=not no_ack, prefetch=prefetch)
    return take_part(node, chosen, membership, output, prepare=prepare)
