"""`tailrace txn`: transactional ids, which of their transactions are open, where, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import Cluster, connection_option
from tailrace.cli.output import Column, Output, examples, output_option
from tailrace.cli.pipeline_screen import duration_text
from tailrace.cli.txn_abort import abort_transaction
from tailrace.model import BrokerError
from tailrace.model.duration import parse_duration_ms

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.transaction_admin import TransactionInfo
    from tailrace.model import TopicPartition

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_DURATION_MS_MAX = (1 << 63) - 1


@click.group(name="txn", no_args_is_help=True)
def command() -> None:
    """List, describe and abort transactions."""


command.add_command(abort_transaction)


def _duration_ms(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    return None if text is None else min(parse_duration_ms(text), _DURATION_MS_MAX)


@command.command(
    name="list",
    epilog=examples(
        "tailrace txn list",
        "tailrace txn list --state Ongoing --open-longer-than 10m",
        "tailrace txn list -o jsonl",
    ),
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only transactional ids in this state. May be repeated.",
)
@click.option(
    "--open-longer-than",
    "open_longer_than_ms",
    callback=_duration_ms,
    metavar="TIME",
    help="Only transactions that are open for longer than this: 90s, 15m, 36h.",
)
@connection_option
@output_option
def list_transactions(
    states: tuple[str, ...], open_longer_than_ms: int | None, cluster: Cluster, output: Output
) -> None:
    """List transactional ids, their state, and how long a transaction is open."""
    rows = cluster.run(lambda client: _list(client, states, open_longer_than_ms))
    output.rows(rows, columns=_LIST_COLUMNS)


async def _list(
    client: KafkaClient, states: Iterable[str], open_longer_than_ms: int | None
) -> list[dict[str, Any]]:
    from tailrace.client import transaction_admin

    found = await transaction_admin.list_transactions(
        client, states=states, open_longer_than_ms=open_longer_than_ms
    )
    return [{**_fields(each), "partition_count": len(each.partitions)} for each in found]


@command.command(
    name="describe",
    epilog=examples("tailrace txn describe billing-1", "tailrace txn describe billing-1 -o json"),
)
@click.argument("transactional_id", metavar="ID")
@connection_option
@output_option
def describe_transaction(transactional_id: str, cluster: Cluster, output: Output) -> None:
    """Show a transactional id and the partitions of its open transaction.

    The first offset is that of the transaction's first record in a partition: consumers that read committed
    records wait there until the transaction ends. It is empty where no record was written yet.
    """
    found = cluster.run(lambda client: _describe(client, transactional_id))
    if output.format != "table":
        output.record(found)
        return
    output.record(found, columns=_DESCRIBE_COLUMNS)
    if found["partitions"]:
        click.echo("\nPartitions")
        output.rows(found["partitions"], columns=_PARTITION_COLUMNS)


async def _describe(client: KafkaClient, transactional_id: str) -> dict[str, Any]:
    from tailrace.client import transaction_admin

    found = await transaction_admin.describe_transaction(client, transactional_id)
    partitions = [await _partition(client, target, found.producer_id) for target in found.partitions]
    return {**_fields(found), "partitions": partitions}


async def _partition(client: KafkaClient, target: TopicPartition, producer_id: int) -> dict[str, Any]:
    """Where the transaction begins in a partition, or why that is not known: its topic may be deleted."""
    from tailrace.client import transaction_admin

    first_offset, failure = None, None
    try:
        for each in await transaction_admin.open_transactions(client, target):
            if each.producer_id == producer_id:
                first_offset = each.first_offset
    except BrokerError as error:
        failure = str(error)
    return {
        "topic": target.topic,
        "partition": target.partition,
        "first_offset": first_offset,
        "error": failure,
    }


def _fields(found: TransactionInfo) -> dict[str, Any]:
    from tailrace.runtime import SystemClock

    started_ms = found.started_ms
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator": found.coordinator,
        "timeout_ms": found.timeout_ms,
        "started_ms": started_ms,
        "open_ms": None if started_ms is None else max(SystemClock().now_ms() - started_ms, 0),
    }


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)  # no time that a calendar has


def _timeout(duration_ms: int) -> str:
    from tailrace.client.transaction_admin import NO_TIMEOUT_MS

    return "none (two-phase commit)" if duration_ms == NO_TIMEOUT_MS else _length(duration_ms)


def _length(duration_ms: int) -> str:
    return duration_text(duration_ms / 1000)


_LIST_COLUMNS = (
    Column("transactional_id", "transactional id"),
    Column("state"),
    Column("producer_id", "producer", right=True),
    Column("producer_epoch", "epoch", right=True),
    Column("open_ms", "open for", show=_length, right=True),
    Column("partition_count", "partitions", right=True),
)
_DESCRIBE_COLUMNS = (
    Column("transactional_id", "transactional id"),
    Column("state"),
    Column("producer_id", "producer id"),
    Column("producer_epoch", "producer epoch"),
    Column("coordinator"),
    Column("timeout_ms", "timeout", show=_timeout),
    Column("started_ms", "started", show=_time),
    Column("open_ms", "open for", show=_length),
)
_PARTITION_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("first_offset", "first offset", right=True),
    Column("error"),
)
