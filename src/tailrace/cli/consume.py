"""`tailrace consume`: pulls and acknowledges a destination's messages, shared with all who do the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.delivery import Shown
from tailrace.cli.encryption import encryption_option
from tailrace.cli.membership import Membership, count_option, ensure_subscription, show_pulled, watch
from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient
    from tailrace.security.messages import Encryption


@click.command(
    name="consume",
    epilog=examples(
        "tailrace consume test-queue",
        "tailrace consume test-queue --count 10 -o jsonl",
        "tailrace consume --node localhost:9999 --destination test-queue",
    ),
)
@click.argument("topic", required=False)
@click.option("--destination", metavar="NAME", help="Another way to name the topic.")
@count_option
@encryption_option
@node_option
@output_option
def command(
    topic: str | None,
    destination: str | None,
    count: int | None,
    node: NativeNode,
    output: Output,
    encryption: Encryption | None,
) -> int:
    """Pull and acknowledge a topic's messages.

    All consumers of a topic share one subscription, `<topic>.default`: each message goes to one of them, and
    is acknowledged once it was printed.
    """
    chosen = topic or destination
    if chosen is None or (topic and destination):
        raise click.UsageError("name one topic: tailrace consume TOPIC, or --destination NAME.")
    Membership(count=count).check(output)
    name = f"{chosen}.default"

    async def work(client: AsyncClient, shown: Shown) -> None:
        await ensure_subscription(client, name, chosen, "earliest")
        await show_pulled(client, name, shown, count=count)

    return watch(replace(node, encryption=encryption), output, work)
