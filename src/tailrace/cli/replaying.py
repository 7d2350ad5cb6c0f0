"""Moving a subscription from the command line: where it stands, where it would go, and the move itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailrace.cli.connection import confirm
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.native import NativeNode
from tailrace.cli.output import Column

if TYPE_CHECKING:
    from tailrace.client.async_client import AsyncClient


def replay_subscription(
    node: NativeNode,
    name: str,
    start: str,
    *,
    partition: int | None = None,
    topic: str | None = None,
    dry_run: bool,
    yes: bool,
) -> list[dict[str, Any]]:
    """Move a subscription once somebody wants that; a row for each partition, with before and after.

    With a topic the subscription must be one of it.
    """
    rows = node.run(lambda client: _plan(client, name, start, partition, topic))
    if dry_run:
        return [{**row, "applied": False} for row in rows]
    confirm(f"Move {name} to {start}? Everything from there on is delivered again.", yes=yes)
    return node.run(lambda client: _apply(client, name, start, partition, rows))


async def _plan(
    client: AsyncClient, name: str, start: str, partition: int | None, topic: str | None
) -> list[dict[str, Any]]:
    described = await client.describe_subscription(name)
    own = described["topic"]
    if topic is not None and own != topic:
        raise CommandFailed(
            f"subscription {name} is one of {own}, and not of {topic}. Try: tailrace replay {own}"
        )
    extents = {each["partition"]: each for each in (await client.describe_topic(own))["partitions"]}
    rows = [
        {
            "subscription": name,
            "topic": own,
            "partition": each["partition"],
            "before": each["position"],
            "after": _target(start, extents[each["partition"]]),
            "end_offset": each["end_offset"],
            "name": name,  # older name of subscription
            "end": each["end_offset"],  # older name
        }
        for each in described["partitions"]
        if each["topic"] == own and partition in (None, each["partition"])
    ]
    if not rows:
        raise CommandFailed(f"topic {own} has no partition {partition}", exit_code=ExitCode.NOT_FOUND)
    return rows


def _target(start: str, extent: dict[str, int]) -> int | None:
    """The offset that a start means; only the broker knows what was there at a time."""
    kind, _, value = start.partition(":")
    if kind == "time":
        return None
    if kind != "offset":
        return extent["start_offset" if kind == "earliest" else "end_offset"]
    if int(value) > extent["end_offset"]:
        raise CommandFailed(
            f"offset {value} is behind the end of partition {extent['partition']}, which is "
            f"{extent['end_offset']}",
            exit_code=ExitCode.NOT_FOUND,
        )
    return max(int(value), extent["start_offset"])


async def _apply(
    client: AsyncClient, name: str, start: str, partition: int | None, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    await client.replay(name, start, partition=partition)
    if not start.startswith("time:"):
        return [{**row, "applied": True} for row in rows]
    # Members may have taken from there already, but nobody has a better word for where it went.
    described = await client.describe_subscription(name)
    now = {(each["topic"], each["partition"]): each["position"] for each in described["partitions"]}
    return [{**row, "after": now[row["topic"], row["partition"]], "applied": True} for row in rows]


REPLAY_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("before", right=True),
    Column("after", right=True),
    Column("end_offset", "end", right=True),
    Column("applied", show=lambda applied: "yes" if applied else "no"),
)
