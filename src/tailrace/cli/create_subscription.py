"""`tailrace create-subscription`: a subscription with the usual settings, from an offset on."""

from __future__ import annotations

import rich_click as click

from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Output, examples, output_option
from tailrace.cli.subscription import make_subscription


@click.command(
    name="create-subscription", epilog=examples("tailrace create-subscription my-group events --offset 0")
)
@click.argument("name")
@click.argument("topic")
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="The first message to deliver.",
)
@node_option
@output_option
def command(name: str, topic: str, offset: int, node: NativeNode, output: Output) -> None:
    """Create a subscription of a topic.

    `tailrace subscription create` has all settings.
    """
    make_subscription(node, name, topic, start_of_offset(offset), {}, output)


def start_of_offset(offset: int) -> str:
    """0 is the beginning, also where the first messages are gone already."""
    return f"offset:{offset}" if offset else "earliest"
