"""`tailrace join-subscription`: another word for `tailrace subscription join`."""

from __future__ import annotations

import rich_click as click

from tailrace.cli.membership import Membership, membership_option, take_part
from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Output, examples, output_option


@click.command(
    name="join-subscription",
    epilog=examples("tailrace join-subscription my-group", "tailrace join-subscription my-group --count 1"),
)
@click.argument("name")
@membership_option
@node_option
@output_option
def command(
    name: str, count: int | None, no_ack: bool, prefetch: int, node: NativeNode, output: Output
) -> int:
    """Join a subscription to receive messages.

    Each is acknowledged once it was printed. Ctrl-C leaves.
    """
    return take_part(node, name, Membership(count=count, ack=not no_ack, prefetch=prefetch), output)
