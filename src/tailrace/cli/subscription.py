"""`tailrace subscription`: subscriptions, their members, their cursors and their dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.alias import AliasedOption, hidden_alias
from tailrace.cli.connection import confirm
from tailrace.cli.membership import Membership, membership_option, take_part
from tailrace.cli.native import (
    START_METAVAR,
    NativeNode,
    StartType,
    dry_run_option,
    node_option,
    yes_option,
)
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.replaying import REPLAY_COLUMNS, replay_subscription
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient

_MODES = ("shared", "exclusive", "failover", "key_shared")
_ORDERS = ("partition", "timestamp")
_DEAD_LETTERS_SHOWN = 10
_DEAD_LETTERS_COUNTED = 1_000


@click.group(name="subscription", no_args_is_help=True)
def command() -> None:
    """Create, join, replay, redrive and look at subscriptions."""


# ---- look


@command.command(
    name="list", epilog=examples("tailrace subscription list", "tailrace subscription list -o jsonl")
)
@node_option
@output_option
def list_subscriptions(node: NativeNode, output: Output) -> None:
    """List subscriptions with their topic, members and lag."""
    output.rows(node.run(lambda client: client.describe_subscriptions()), columns=LIST_COLUMNS)


@command.command(
    name="describe",
    epilog=examples(
        "tailrace subscription describe workers", "tailrace subscription describe workers -o json"
    ),
)
@click.argument("name")
@node_option
@output_option
def describe_subscription(name: str, node: NativeNode, output: Output) -> None:
    """Show a subscription's settings, members and cursors."""
    found = node.run(lambda client: client.describe_subscription(name))
    if output.format != "table":
        output.record(found)
        return
    output.record(
        {key: value for key, value in found.items() if not isinstance(value, dict | list) and value != ""}
    )
    if found["configs"]:
        click.echo("\nSettings")
        rows = [{"name": key, "value": value} for key, value in found["configs"].items()]
        output.rows(rows, columns=[Column("name"), Column("value")])
    if found["members"]:
        click.echo("\nMembers")
        output.rows(found["members"], columns=_MEMBER_COLUMNS)
    click.echo("\nPartitions")
    output.rows(found["partitions"], columns=_PARTITION_COLUMNS)


@command.command(
    name="dead-letters",
    epilog=examples(
        "tailrace subscription dead-letters workers",
        "tailrace subscription dead-letters workers -n 100 -o jsonl | jq .reason",
    ),
)
@click.argument("name")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1, max=_DEAD_LETTERS_COUNTED),
    default=_DEAD_LETTERS_SHOWN,
    show_default=True,
    metavar="COUNT",
    help="How many to show, the oldest first.",
)
@node_option
@output_option
def show_dead_letters(name: str, count: int, node: NativeNode, output: Output) -> None:
    """Show the messages that were given up, and why."""
    letters = node.run(lambda client: client.describe_dead_letters(name, count))
    rows = [{**letter, **_flat_origin(letter)} for letter in letters] if output.format == "table" else letters
    output.rows(rows, columns=_DEAD_LETTER_COLUMNS)


def _flat_origin(letter: Mapping[str, Any]) -> dict[str, str]:
    origin = letter["origin"]
    return {"origin": f"{origin['topic']}-{origin['partition']} at {origin['offset']}"}


# ---- create and delete


@command.command(
    name="create",
    epilog=examples(
        "tailrace subscription create workers orders",
        "tailrace subscription create audit orders --start time:2h --mode exclusive",
        "tailrace subscription create mailer orders --max-deliveries 3 --backoff 500 --ack-timeout 60000",
    ),
)
@click.argument("name")
@click.argument("topic")
@click.option(
    "--start",
    type=StartType(),
    default="earliest",
    show_default=True,
    metavar=START_METAVAR,
    help="The first message to deliver; a time is 2h, 3d (ago) or 2026-11-16T09:00.",
)
@click.option("--mode", type=click.Choice(_MODES), help="Which member gets a message. [default: shared]")
@click.option(
    "--ack-timeout", "ack_timeout_ms", type=int, metavar="MS", help="How long a member may hold one."
)
@click.option(
    "--max-deliveries", type=int, metavar="N", help="Then it is a dead letter; 0 is never. [default: 5]"
)
@click.option(
    "--backoff", "backoff_ms", type=int, metavar="MS", help="Before the second delivery; then doubled."
)
@click.option("--backoff-max", "backoff_ms_max", type=int, metavar="MS", help="The longest such wait.")
@click.option("--unacked-max", type=int, metavar="N", help="How many may be unacknowledged before it pauses.")
@click.option("--at-most-once", is_flag=True, help="Never deliver a message twice, even if it is lost then.")
@click.option("--priority", is_flag=True, help="Messages of a higher priority (0 to 9) first.")
@click.option("--order", type=click.Choice(_ORDERS), help="Side by side, or merged by time.")
@click.option("--dead-letter-topic", metavar="TOPIC", help="[default: NAME.dlq]")
@node_option
@output_option
def create_subscription(
    name: str,
    topic: str,
    start: str,
    at_most_once: bool,
    priority: bool,
    node: NativeNode,
    output: Output,
    **settings: str | int | None,
) -> None:
    """Create a subscription of a topic.

    One that exists with the same settings is left as it is, wherever it stands by now.
    """
    wanted = {key: value for key, value in settings.items() if value is not None}
    if at_most_once:
        wanted["delivery"] = "at_most_once"
    if priority:
        wanted["priority"] = "true"
    make_subscription(node, name, topic, start, wanted, output)


def make_subscription(
    node: NativeNode,
    name: str,
    topic: str,
    start: str,
    settings: Mapping[str, Any],
    output: Output,
) -> None:
    """Create it and say so."""

    async def work(client: AsyncClient) -> Any:
        await client.create_subscription(name, topic, start=start, **settings)
        return await client.describe_subscription(name)

    found = node.run(work)
    if output.format == "table":
        click.echo(f"subscription {escape(name)} of {escape(topic)}: {found['lag']:,} messages to deliver")
    else:
        output.record(found)


@command.command(
    name="delete",
    epilog=examples("tailrace subscription delete old", "tailrace subscription delete a b --yes"),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@dry_run_option
@yes_option
@node_option
@output_option
def delete_subscriptions(
    names: tuple[str, ...], dry_run: bool, yes: bool, node: NativeNode, output: Output
) -> None:
    """Delete subscriptions with their cursors; topics and dead letters stay."""
    found = node.run(lambda client: _describe_all(client, names))
    if not dry_run:
        confirm(f"Delete {', '.join(names)} and where each of them stands?", yes=yes)
        node.run(lambda client: _delete_all(client, names))
    if output.format != "table":
        rows = [
            {**{key: each[key] for key in ("name", "topic", "lag")}, "deleted": not dry_run} for each in found
        ]
        output.rows(rows, columns=())
        return
    click.echo(f"{'would delete' if dry_run else 'deleted'} {escape(', '.join(names))}")


async def _describe_all(client: AsyncClient, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [await client.describe_subscription(name) for name in names]


async def _delete_all(client: AsyncClient, names: tuple[str, ...]) -> None:
    for name in names:
        await client.delete_subscription(name)


# ---- take part


@command.command(
    name="join",
    epilog=examples(
        "tailrace subscription join workers",
        "tailrace subscription join workers --count 10 -o jsonl",
        "tailrace subscription join workers --no-ack --count 1",
    ),
)
@click.argument("name")
@membership_option
@node_option
@output_option
def join_subscription(
    name: str, count: int | None, no_ack: bool, prefetch: int, node: NativeNode, output: Output
) -> int:
    """Join a subscription: show its messages as they come.

    Each is acknowledged once it was printed. Several that join share the messages among them.
    """
    return take_part(node, name, Membership(count=count, ack=not no_ack, prefetch=prefetch), output)


# ---- deliver again


@command.command(
    name="replay",
    epilog=examples(
        "tailrace subscription replay workers --from earliest --dry-run",
        "tailrace subscription replay workers --from time:2h --yes",
        "tailrace subscription replay workers --from offset:1000 --partition 0 --yes",
    ),
)
@click.argument("name")
@click.option(
    "--from",
    "start",
    cls=AliasedOption,
    aliases=("--to",),
    type=StartType(),
    required=True,
    metavar=START_METAVAR,
    help="Where to go on; a time is 2h, 3d (ago) or 2026-11-16T09:00.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="This one only.")
@dry_run_option
@yes_option
@node_option
@output_option
def replay(
    name: str,
    start: str,
    partition: int | None,
    dry_run: bool,
    yes: bool,
    node: NativeNode,
    output: Output,
) -> None:
    """Move a subscription: everything from there on is delivered again."""
    rows = replay_subscription(node, name, start, partition=partition, dry_run=dry_run, yes=yes)
    output.rows(rows, columns=REPLAY_COLUMNS)


command.add_command(hidden_alias(replay, "seek"))


@command.command(
    name="redrive",
    epilog=examples(
        "tailrace subscription redrive workers --dry-run", "tailrace subscription redrive workers -n 1 --yes"
    ),
)
@click.argument("name")
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    metavar="COUNT",
    help="So many, the oldest first. Default: all.",
)
@dry_run_option
@yes_option
@node_option
@output_option
def redrive(name: str, count: int | None, dry_run: bool, yes: bool, node: NativeNode, output: Output) -> None:
    """Deliver dead letters once more, to this subscription alone."""
    asked = min(count or _DEAD_LETTERS_COUNTED, _DEAD_LETTERS_COUNTED)
    letters = len(node.run(lambda client: client.describe_dead_letters(name, asked)))
    # Who has that many has perhaps more: the number is what a person needs before saying yes.
    more = letters == _DEAD_LETTERS_COUNTED and (count is None or count > letters)
    moved = letters
    if not dry_run and letters:
        confirm(f"Deliver {_letters(letters, more=more)} of {name} again?", yes=yes)
        moved = node.run(lambda client: client.redrive(name, count))
    if output.format != "table":
        output.record({"name": name, "count": moved, "redriven": not dry_run})
        return
    if dry_run:
        click.echo(f"would redrive {_letters(letters, more=more)} of {escape(name)}")
    else:
        click.echo(f"redrove {_letters(moved)} of {escape(name)}")


def _letters(count: int, *, more: bool = False) -> str:
    return "1 dead letter" if count == 1 else f"{count:,}{' or more' if more else ''} dead letters"


LIST_COLUMNS = (
    Column("name"),
    Column("topic"),
    Column("mode"),
    Column("state"),
    Column("member_count", "members", right=True),
    Column("lag", show=lambda lag: f"{lag:,}", right=True),
    Column("unacknowledged", right=True),
)
_MEMBER_COLUMNS = (Column("name"), Column("held", right=True), Column("credit", right=True))
_PARTITION_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("position", right=True),
    Column("acknowledged_beyond", "beyond", right=True),
    Column("end_offset", "end", right=True),
    Column("lag", show=lambda lag: f"{lag:,}", right=True),
    Column("unacknowledged", right=True),
    Column("epoch", right=True),
    Column("error"),
)
_DEAD_LETTER_COLUMNS = (
    Column("offset", right=True),
    Column("origin"),
    Column("delivery_count", "deliveries", right=True),
    Column("reason"),
    Column("key"),
    Column("value"),
)
