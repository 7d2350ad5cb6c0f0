"""`tailrace group`: consumer groups, how far they are behind, and where they shall go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import Cluster, confirm, connection_option
from tailrace.cli.exit import CommandFailed
from tailrace.cli.output import Column, Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.client.admin import Extent
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.offsets import Committed
    from tailrace.model import TopicPartition
    from tailrace.model.offset_reset import Goal

_EMPTY_STATES = ("Empty", "Dead", "")


@click.group(name="group", no_args_is_help=True)
def command() -> None:
    """List, describe, reset and delete consumer groups."""


# ---- look


@command.command(name="list", epilog=examples("tailrace group list", "tailrace group list -o jsonl"))
@connection_option
@output_option
def list_groups(cluster: Cluster, output: Output) -> None:
    """List consumer groups with their state and lag."""
    output.rows(cluster.run(_list), columns=_LIST_COLUMNS)


async def _list(client: KafkaClient) -> list[dict[str, Any]]:
    from tailrace.client import admin

    rows = []
    for each in await admin.list_groups(client):
        offsets = await admin.group_offsets(client, each.group)
        described = await admin.describe_group(client, each.group)
        rows.append(
            {
                "name": each.group,
                "state": each.state or described.state,
                "member_count": len(described.members),
                "topics": sorted({target.topic for target in offsets}),
                "lag": sum(row["lag"] or 0 for row in _lag_rows(offsets)),
                "coordinator": each.coordinator,
                "group": each.group,  # older name
                "members": len(described.members),  # older name of member_count
            }
        )
    return rows


@command.command(
    name="describe",
    epilog=examples("tailrace group describe billing", "tailrace group describe billing -o json"),
)
@click.argument("group")
@connection_option
@output_option
def describe_group(group: str, cluster: Cluster, output: Output) -> None:
    """Show a group's members, what each reads, and its offsets."""
    found = cluster.run(lambda client: _describe(client, group))
    if output.format != "table":
        output.record(found)
        return
    hidden = ("group", "strategy")  # older names of others
    output.record(
        {key: value for key, value in found.items() if not isinstance(value, list) and key not in hidden}
    )
    if found["members"]:
        click.echo("\nMembers")
        output.rows(found["members"], columns=_MEMBER_COLUMNS)
    if found["offsets"]:
        click.echo("\nOffsets")
        output.rows(found["offsets"], columns=_LAG_COLUMNS)


async def _describe(client: KafkaClient, group: str) -> dict[str, Any]:
    from tailrace.client import admin

    described = await admin.describe_group(client, group)
    offsets = _lag_rows(await admin.group_offsets(client, group))
    readers = {target: member for member in described.members for target in member.partitions}
    for row in offsets:
        reader = readers.get((row["topic"], row["partition"]))  # type: ignore[call-overload]
        row["member_id"] = row["member"] = reader.member_id if reader else None  # member: older name
    return {
        "name": group,
        "state": described.state,
        "protocol": described.strategy,
        "coordinator": described.coordinator,
        "member_count": len(described.members),
        "lag": sum(row["lag"] or 0 for row in offsets),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [str(target) for target in member.partitions],
                "member": member.member_id,  # older name
            }
            for member in described.members
        ],
        "offsets": offsets,
        "group": group,  # older name
        "strategy": described.strategy,  # older name of protocol
    }


@command.command(
    name="lag",
    epilog=examples("tailrace group lag billing", "tailrace group lag billing analytics -o json"),
)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@connection_option
@output_option
def show_lag(groups: tuple[str, ...], cluster: Cluster, output: Output) -> None:
    """Show how many records a group has still to read, by partition."""
    rows = cluster.run(lambda client: _lag(client, groups))
    output.rows(rows, columns=[Column("group"), *_LAG_COLUMNS[:-1]])
    if output.format == "table":
        click.echo(f"lag {sum(row['lag'] or 0 for row in rows):,}", err=True)


async def _lag(client: KafkaClient, groups: Iterable[str]) -> list[dict[str, Any]]:
    from tailrace.client import admin

    rows = []
    for group in groups:
        offsets = await admin.group_offsets(client, group)
        if not offsets:
            await admin.describe_group(client, group)  # says so if there is no such group
        rows += [{"group": group, **row} for row in _lag_rows(offsets)]
    return rows


def _lag_rows(offsets: Mapping[TopicPartition, tuple[Committed, Extent | None]]) -> list[dict[str, Any]]:
    """Committed offset, end and lag."""
    from tailrace.model.offset_reset import count_lag

    return [
        {
            "topic": target.topic,
            "partition": target.partition,
            "committed": committed.offset,
            "start_offset": extent.start if extent else None,
            "end_offset": extent.end if extent else None,
            "lag": count_lag(committed=committed.offset, start=extent.start, end=extent.end)
            if extent
            else None,
        }
        for target, (committed, extent) in offsets.items()
    ]


# ---- reset


@command.command(
    name="reset",
    epilog=examples(
        "tailrace group reset billing --topic orders --to-earliest",
        "tailrace group reset billing --topic orders --to-datetime 2h --yes",
        "tailrace group reset billing --topic orders:0,1 --to-offset 1000 --yes",
        "tailrace group reset billing --all-topics --shift-by -100 --yes",
    ),
)
@click.argument("group")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,P]", help="May be repeated.")
@click.option("--all-topics", is_flag=True, help="Every topic that the group has offsets for.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is left.")
@click.option("--to-latest", is_flag=True, help="To the end: read only what comes from now on.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="To this offset.")
@click.option("--to-datetime", metavar="TIME", help="To a time: 2h, 3d, or 2026-11-16T09:00.")
@click.option("--shift-by", type=int, metavar="N", help="N records on, or back if N is negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would change. This is the default.")
@click.option("-y", "--yes", is_flag=True, help="Do it.")
@connection_option
@output_option
def reset_group(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
    dry_run: bool,
    yes: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    """Move a group's offsets; shows before and after, and changes nothing without --yes.

    The group must have no members: stop its consumers first.
    """
    goals = (to_earliest, to_latest, to_offset is not None, to_datetime is not None, shift_by is not None)
    if sum(goals) != 1:
        raise click.UsageError(
            "say where to: one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by."
        )
    if bool(topics) == all_topics:
        raise click.UsageError("say what to reset: --topic, or --all-topics.")
    goal = _goal(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        shift_by=shift_by,
    )
    apply = yes and not dry_run
    rows, refusal = cluster.run(lambda client: _reset(client, group, topics, goal, apply=apply))
    output.rows([{"group": group, **row, "applied": apply} for row in rows], columns=_RESET_COLUMNS)
    if output.format != "table":
        return
    if clamped := sum(row["clamped"] for row in rows):
        place = "1 partition" if clamped == 1 else f"{clamped} partitions"
        click.echo(f"in {place} the offset lies outside the log, and the nearer end is taken", err=True)
    if not apply:
        click.echo(f"nothing was changed. {refusal or 'Add --yes to do it'}", err=True)


def _goal(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_datetime: str | None,
    shift_by: int | None,
) -> Goal:
    """The one that was given; the caller has checked that it is one."""
    from tailrace.model.offset_reset import Goal
    from tailrace.runtime import SystemClock
    from tailrace.wire.json.moment import parse_moment

    if to_earliest or to_latest:
        return Goal(place="earliest" if to_earliest else "latest")
    if to_datetime is not None:
        return Goal(time_ms=max(parse_moment(to_datetime, now_ms=SystemClock().now_ms()), 0))
    return Goal(offset=to_offset, shift=shift_by)


async def _reset(
    client: KafkaClient, group: str, topics: Sequence[str], goal: Goal, *, apply: bool
) -> tuple[list[dict[str, Any]], str]:
    """The moves, and why they cannot be made now if they were only to be shown."""
    from tailrace.client import admin
    from tailrace.model.offset_reset import Standing, plan_reset

    offsets = await client.committed(group)
    targets = await _reset_targets(client, group, topics, offsets)
    reach = await admin.extents(client, targets)
    at_time = await _offsets_at(client, goal, targets)
    moves = plan_reset(
        goal,
        {
            target: Standing(
                committed=offsets[target].offset if target in offsets else None,
                start=reach[target].start,
                end=reach[target].end,
                at_time=at_time.get(target),
            )
            for target in targets
        },
    )
    refusal = await _refusal(client, group)
    if apply:
        if refusal:
            raise CommandFailed(refusal)
        await client.commit(group, {move.target: move.after for move in moves})
    rows = [
        {
            "topic": move.target.topic,
            "partition": move.target.partition,
            "before": move.before,
            "after": move.after,
            "end_offset": move.end,
            "lag": move.lag,
            "clamped": move.is_clamped,
        }
        for move in moves
    ]
    return rows, refusal


async def _offsets_at(
    client: KafkaClient, goal: Goal, targets: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the goal's time is in each partition that has records as new as that."""
    if goal.time_ms is None:
        return {}
    found = await client.list_offsets(dict.fromkeys(targets, goal.time_ms))
    return {target: each.offset for target, each in found.items() if each.offset >= 0}


async def _refusal(client: KafkaClient, group: str) -> str:
    """Why the offsets of the group cannot be moved now; "" if they can."""
    from tailrace.client import admin
    from tailrace.model import BrokerError, ErrorCode

    try:
        described = await admin.describe_group(client, group)
    except BrokerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return ""  # a group begins to exist with its first offset
    if described.state in _EMPTY_STATES:
        return ""
    return (
        f"group {group} is {described.state} with {_members(len(described.members))}, which would overwrite"
        " the offsets. Stop its consumers first"
    )


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


async def _reset_targets(
    client: KafkaClient, group: str, topics: Sequence[str], offsets: Iterable[TopicPartition]
) -> list[TopicPartition]:
    from tailrace.client.admin import group_not_found
    from tailrace.model import TopicPartition

    if not topics:
        found = sorted(offsets)
        if not found:
            raise group_not_found(group)
        return found
    targets: list[TopicPartition] = []
    for text in topics:
        topic, _, listed = text.partition(":")
        info = await client.topic(topic)
        targets += [TopicPartition(topic, each) for each in _numbers(listed) or info.partitions]
    return sorted(set(targets))


def _numbers(listed: str) -> list[int]:
    try:
        return [int(each) for each in listed.split(",") if each]
    except ValueError:
        raise click.BadParameter(
            f"{listed!r} is not a list of partitions, such as 0,1", param_hint="--topic"
        ) from None


# ---- delete


@command.command(
    name="delete",
    epilog=examples("tailrace group delete old-billing", "tailrace group delete a b --yes"),
)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_option
@output_option
def delete_groups(
    groups: tuple[str, ...], dry_run: bool, yes: bool, cluster: Cluster, output: Output
) -> None:
    """Delete groups that have no members, with their offsets."""
    found = [cluster.run(lambda client, group=group: _describe(client, group)) for group in groups]  # type: ignore[misc]
    for each in found:
        if each["state"] not in _EMPTY_STATES:
            raise CommandFailed(
                f"group {each['name']} is {each['state']} with {_members(len(each['members']))}."
                " Stop its consumers first"
            )
    if not dry_run:
        confirm(f"Delete {', '.join(groups)} with their offsets?", yes=yes)
        cluster.run(lambda client: _delete(client, groups))
    if output.format != "table":
        rows = [
            {"name": each["name"], "state": each["state"], "deleted": not dry_run, "group": each["name"]}
            for each in found
        ]
        output.rows(rows, columns=())
        return
    click.echo(f"{'would delete' if dry_run else 'deleted'} {', '.join(groups)}")


async def _delete(client: KafkaClient, groups: Iterable[str]) -> None:
    from tailrace.client import admin

    for group in groups:
        await admin.delete_group(client, group)


_LIST_COLUMNS = (
    Column("name", "group"),
    Column("state"),
    Column("member_count", "members", right=True),
    Column("topics", show=", ".join),
    Column("lag", show=lambda lag: f"{lag:,}", right=True),
)
_MEMBER_COLUMNS = (
    Column("client_id", "client"),
    Column("host"),
    Column("partitions", show=" ".join),
    Column("member_id", "member"),
)
_LAG_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("committed", right=True),
    Column("end_offset", "end", right=True),
    Column("lag", show=lambda lag: f"{lag:,}", right=True),
    Column("member_id", "member"),
)
_RESET_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("before", right=True),
    Column("after", right=True),
    Column("end_offset", "end", right=True),
    Column("lag", right=True),
)
