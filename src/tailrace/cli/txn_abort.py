"""`tailrace txn abort`: end a transaction that its producer does not end.

The open transaction of a transactional id is aborted by its coordinator, in all partitions together. One that
hangs has no coordinator: it is ended in its partition. Both are looked up, shown and confirmed, and looked up
again before the change, because a transaction may end and another one begin while the question is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.connection import Cluster, confirm, connection_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.transaction_admin import OpenTransaction, TransactionInfo
    from tailrace.model import TopicPartition

_SHOWN_MAX = 10
_IS_DECIDED = {"PrepareCommit": "committed", "PrepareAbort": "aborted"}


@click.command(
    name="abort",
    epilog=examples(
        "tailrace txn abort billing-1 --dry-run",
        "tailrace txn abort billing-1 --yes",
        "tailrace txn abort --topic orders --partition 0 --offset 1042",
    ),
)
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("--topic", metavar="TOPIC", help="Of a transaction that hangs: its topic.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Its partition.")
@click.option("--offset", type=click.IntRange(min=0), metavar="N", help="Its first offset there.")
@click.option("--dry-run", is_flag=True, help="Show what would be aborted, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connection_option
@output_option
def abort_transaction(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    dry_run: bool,
    yes: bool,
    cluster: Cluster,
    output: Output,
) -> None:
    """Abort the open transaction of a transactional id, or one that hangs.

    With ID the coordinator aborts the transaction in all of its partitions, and the producer is fenced: it
    can write no more until it is started again. InitProducerId does that, as Kafka's Admin.fenceProducers.

    A transaction hangs if it is open in a partition and unknown to its coordinator. The broker warns of it in
    its log. --topic, --partition and --offset end it there (WriteTxnMarkers), as kafka-transactions.sh abort.
    """
    from tailrace.model import TopicPartition

    if transactional_id is not None and (topic, partition, offset) == (None, None, None):
        _abort_id(cluster, transactional_id, output, dry_run=dry_run, yes=yes)
    elif transactional_id is None and topic is not None and partition is not None and offset is not None:
        target = TopicPartition(topic, partition)
        _abort_hanging(cluster, target, offset, output, dry_run=dry_run, yes=yes)
    else:
        raise click.UsageError(
            "say what to abort: a transactional ID alone, or --topic, --partition and --offset together."
        )


# ---- of a transactional id


def _abort_id(cluster: Cluster, transactional_id: str, output: Output, *, dry_run: bool, yes: bool) -> None:
    found = cluster.run(lambda client: _find_open(client, transactional_id))
    rows = [{"topic": each.topic, "partition": each.partition} for each in found.partitions]
    if output.format == "table":
        output.rows(rows, columns=(Column("topic"), Column("partition", right=True)))
    if not dry_run:
        where = "1 partition" if len(rows) == 1 else f"{len(rows)} partitions"
        confirm(
            f"Abort the transaction of {transactional_id} in {where}, and fence its producer"
            f" {found.producer_id} (epoch {found.producer_epoch})?",
            yes=yes,
        )
        cluster.run(lambda client: _fence(client, found))
    if output.format != "table":
        output.record(
            {
                "transactional_id": transactional_id,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "partitions": rows,
                "aborted": not dry_run,
            }
        )
        return
    done = "would abort" if dry_run else "aborted"
    click.echo(f"{done} the transaction of {transactional_id}")


async def _find_open(client: KafkaClient, transactional_id: str) -> TransactionInfo:
    """A transactional id whose transaction can be aborted; CommandFailed."""
    from tailrace.client import transaction_admin

    found = await transaction_admin.describe_transaction(client, transactional_id)
    if found.state in _IS_DECIDED:
        raise CommandFailed(
            f"the transaction of {transactional_id} is being {_IS_DECIDED[found.state]} ({found.state}),"
            " which its coordinator completes by itself. The log of the broker says what it waits for"
        )
    if found.state != transaction_admin.ONGOING:
        raise CommandFailed(
            f"transactional id {transactional_id} has no open transaction (its state is {found.state})."
            " Try: tailrace txn list --state Ongoing"
        )
    return found


async def _fence(client: KafkaClient, shown: TransactionInfo) -> None:
    from tailrace.client import transaction_admin

    found = await _find_open(client, shown.transactional_id)
    identity = (found.producer_id, found.producer_epoch, found.started_ms)
    if identity != (shown.producer_id, shown.producer_epoch, shown.started_ms):
        raise CommandFailed(
            f"the transaction of {shown.transactional_id} has ended, and another one has begun. Nothing was"
            " aborted"
        )
    await transaction_admin.fence_producer(client, found)


# ---- in a partition


def _abort_hanging(
    cluster: Cluster, target: TopicPartition, offset: int, output: Output, *, dry_run: bool, yes: bool
) -> None:
    found = cluster.run(lambda client: _find_hanging(client, target, offset))
    row: dict[str, Any] = {
        "topic": target.topic,
        "partition": target.partition,
        "first_offset": found.first_offset,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }
    if output.format == "table":
        output.rows([row], columns=_HANGING_COLUMNS)
    if not dry_run:
        confirm(
            f"Abort the transaction of producer {found.producer_id} (epoch {found.producer_epoch}) that"
            f" begins at offset {offset} of {target}?",
            yes=yes,
        )
        cluster.run(lambda client: _mark(client, target, found))
    if output.format != "table":
        output.record({**row, "aborted": not dry_run})
        return
    done = "would abort" if dry_run else "aborted"
    click.echo(f"{done} the transaction at offset {offset} of {target}")


async def _find_hanging(client: KafkaClient, target: TopicPartition, offset: int) -> OpenTransaction:
    """The transaction that begins at an offset and that no coordinator knows; CommandFailed."""
    from tailrace.client import transaction_admin

    opened = await transaction_admin.open_transactions(client, target)
    found = next((each for each in opened if each.first_offset == offset), None)
    if found is None:
        raise CommandFailed(
            f"no open transaction begins at offset {offset} of {target}. {_begins(opened)}",
            exit_code=ExitCode.NOT_FOUND,
        )
    for known in await transaction_admin.list_transactions(client, producer_ids=[found.producer_id]):
        if target in known.partitions:
            raise CommandFailed(
                f"the transaction at offset {offset} of {target} does not hang: it belongs to transactional"
                f" id {known.transactional_id}. Try: tailrace txn abort {known.transactional_id}"
            )
    return found


def _begins(opened: list[OpenTransaction]) -> str:
    if not opened:
        return "None is open in this partition"
    offsets = ", ".join(str(each.first_offset) for each in opened[:_SHOWN_MAX])
    return f"Those that are open there begin at {offsets}" + (", ..." if len(opened) > _SHOWN_MAX else "")


async def _mark(client: KafkaClient, target: TopicPartition, shown: OpenTransaction) -> None:
    from tailrace.client import transaction_admin

    found = await _find_hanging(client, target, shown.first_offset)
    await transaction_admin.write_abort_marker(client, target, found)


_HANGING_COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("first_offset", "first offset", right=True),
    Column("producer_id", "producer", right=True),
    Column("producer_epoch", "epoch", right=True),
)
