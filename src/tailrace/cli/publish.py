"""`tailrace publish`: messages with properties through the native listener, for now or for later."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.encryption import encryption_option
from tailrace.cli.native import NativeNode, node_option
from tailrace.cli.output import Output, examples, output_option
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient
    from tailrace.client.native.published import Published
    from tailrace.security.messages import Encryption

_PRIORITY_MAX = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """What goes with every message of one command."""

    key: bytes | None = None
    partition: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_ms: int | None = None
    ttl_ms: int | None = None
    priority: int | None = None


@click.command(
    name="publish",
    epilog=examples(
        "tailrace publish events 'Hello World'",
        "tailrace publish events 'an order' --key customer-7 --property colour=red",
        "tailrace publish events 'remind me' --delay 60000 --ttl 3600000 --priority 9",
    ),
)
@click.argument("topic")
@click.argument("text")
@click.option("-k", "--key", help="Messages of one key go to one partition, in order.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Of the message. May be repeated."
)
@click.option(
    "--delay", "delay_ms", type=click.IntRange(min=0), metavar="MS", help="Deliver it so much later."
)
@click.option("--ttl", "ttl_ms", type=click.IntRange(min=0), metavar="MS", help="Forget it after so long.")
@click.option(
    "--priority",
    type=click.IntRange(min=0, max=_PRIORITY_MAX),
    metavar="0-9",
    help="For subscriptions that heed it; 9 is first.",
)
@encryption_option
@node_option
@output_option
def command(
    topic: str,
    text: str,
    key: str | None,
    properties: tuple[str, ...],
    delay_ms: int | None,
    ttl_ms: int | None,
    priority: int | None,
    node: NativeNode,
    output: Output,
    encryption: Encryption | None,
) -> None:
    """Publish a message to a topic.

    A topic that does not exist is made, with one partition. The command ends when the broker has it safe.
    """
    outgoing = Outgoing(
        key=None if key is None else argument_bytes(key),
        properties=parse_properties(properties, option="--property"),
        delay_ms=delay_ms,
        ttl_ms=ttl_ms,
        priority=priority,
    )
    publish_all(replace(node, encryption=encryption), topic, [text], outgoing, output)


def publish_all(
    node: NativeNode, topic: str, texts: Sequence[str], outgoing: Outgoing, output: Output
) -> None:
    """Publish messages, in order, and tell where they went."""
    done = node.run(lambda client: _publish(client, topic, texts, outgoing))
    if output.format == "table":
        for each in done:
            click.echo(_where(each), file=output.stream)
        return
    rows = [
        {name: getattr(each, name) for name in ("topic", "partition", "offset", "id", "timestamp")}
        for each in done
    ]
    if len(rows) == 1:
        output.record(rows[0])
    else:
        output.rows(rows, columns=())


async def _publish(
    client: AsyncClient, topic: str, texts: Sequence[str], outgoing: Outgoing
) -> list[Published]:
    return await asyncio.gather(
        *(
            client.publish(
                topic,
                argument_bytes(text),
                key=outgoing.key,
                partition=outgoing.partition,
                properties=outgoing.properties,
                delay_ms=outgoing.delay_ms,
                ttl_ms=outgoing.ttl_ms,
                priority=outgoing.priority,
            )
            for text in texts
        )
    )


def _where(done: Published) -> str:
    if done.offset < 0:
        return f"1 message for {escape(done.topic)}, to be delivered later"
    place = f"partition {done.partition}, offset {done.offset}"
    return f"1 message to {escape(done.topic)} {place}, id {escape(done.id)}"


def argument_bytes(text: str) -> bytes:
    """A command line argument as the bytes that were typed, text or not."""
    return text.encode("utf-8", "surrogateescape")


def parse_properties(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """NAME=VALUE, each name once; names with _ in front belong to the protocol."""
    properties: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        if name.startswith("_"):
            raise click.BadParameter(f"{name!r} begins with _, which is reserved", param_hint=option)
        if name in properties:
            raise click.BadParameter(f"{name!r} is given twice", param_hint=option)
        properties[name] = value
    return properties
