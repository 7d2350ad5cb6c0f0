"""`tailrace create-topic`: a topic by the native listener; its messages carry the time of their arrival."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.alias import AliasedOption
from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Output, examples, output_option
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient


@click.command(
    name="create-topic",
    epilog=examples(
        "tailrace create-topic events --partitions 1",
        "tailrace create-topic events -c retention.ms=3600000",
    ),
)
@click.argument("name")
@click.option(
    "--partitions",
    cls=AliasedOption,
    aliases=("-p",),
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many.",
)
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A setting. May be repeated."
)
@node_option
@output_option
def command(name: str, partitions: int, configs: tuple[str, ...], node: NativeNode, output: Output) -> None:
    """Create a topic.

    One that exists with the same partitions and settings is left as it is.
    """
    settings = dict(_setting(each) for each in configs)

    async def work(client: AsyncClient) -> Any:
        await client.create_topic(name, partitions, configs=settings)
        return await client.describe_topic(name)

    found = node.run(work)
    if output.format == "table":
        click.echo(f"topic {escape(name)} with {partitions} partition{'s' if partitions > 1 else ''}")
    else:
        output.record(found)


def _setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--config")
    return key, value
