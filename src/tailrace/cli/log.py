"""`tailrace log`: shows what `tailrace.storage.segment.inspection` finds in a data directory.

JSON is one object with everything; JSON lines are one object per thing, `row` saying which, so that a listing
of any length needs no memory; tables are a section for each kind of thing that is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.alias import AliasedOption
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, Row, examples, output_option, progress_bar
from tailrace.model.text import size_of

if TYPE_CHECKING:
    from tailrace.model import PartitionId
    from tailrace.storage.segment.inspection import Inspection, Verification

Selector = Callable[["PartitionId", int], bool]

_TABLE_ROWS_MAX = 500  # a longer listing is shown as several tables, so that it need not be held
_UUID_DASHES = re.compile(r"^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})")
_PARTITION = re.compile(r"([0-9a-f]{1,32})(?:-(\d{1,10}))?(?:-(\d{1,20}))?")

_directory = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group(name="log", no_args_is_help=True)
def command() -> None:
    """Look into a data directory, and check every byte of it."""


@command.command(
    name="inspect",
    epilog=examples(
        "tailrace log inspect ./tailrace-data",
        "tailrace log inspect ./tailrace-data --partition 6f1c-0 --batches",
        "tailrace log inspect ./tailrace-data --journal -o jsonl | jq 'select(.row == \"round\")'",
    ),
)
@_directory
@click.option(
    "--partition",
    "partitions",
    cls=AliasedOption,
    aliases=("-p",),
    multiple=True,
    metavar="ID",
    help="Only these: a topic id or its beginning, -PARTITION if wanted, -LIFE if wanted. May be repeated.",
)
@click.option("--batches", is_flag=True, help="List every batch, with its CRC checked.")
@click.option("--journal", is_flag=True, help="List every round of the journal.")
@output_option
def inspect_log(
    directory: Path, partitions: tuple[str, ...], batches: bool, journal: bool, output: Output
) -> None:
    """Show files, segments, journal rounds, the checkpoint, and what is wrong with them.

    Nothing is written or locked: this works while the directory is served, on a damaged one, and on a copy.
    Of segments only the batch headers are read; `tailrace log verify` checks every byte.
    """
    from tailrace.storage.segment.inspection import inspect_directory

    inspection = inspect_directory(directory, wanted=_selector(partitions))
    if partitions and not inspection.partitions:
        raise CommandFailed(
            f"no partition in {directory} is called {' or '.join(partitions)}. "
            f"Try: tailrace log inspect {directory}",
            exit_code=ExitCode.NOT_FOUND,
        )
    rounds = _round_rows(inspection) if journal else ()
    listed = _batch_rows(inspection) if batches else ()
    if output.format == "json":
        extra = {"rounds": list(rounds)} if journal else {}
        output.record(_as_row(inspection) | extra | ({"batches": list(listed)} if batches else {}))
    elif output.format == "jsonl":
        output.rows(chain(_inspection_lines(inspection), rounds, listed), columns=())
    else:
        _show_inspection(inspection, output)
        _show_long("Rounds", rounds, _ROUND_COLUMNS, output)
        _show_long("Batches", listed, _BATCH_COLUMNS, output)


@command.command(
    name="verify",
    epilog=examples(
        "tailrace log verify ./tailrace-data", "tailrace log verify ./tailrace-data -o json > report.json"
    ),
)
@_directory
@output_option
def verify_log(directory: Path, output: Output) -> None:
    """Check every byte of a data directory; exit code 1 if something is wrong.

    Nothing is written or locked. A directory that is being served may change while it is read: what looks
    wrong is looked at again, and bytes past the checkpoint are not judged, because the journal holds them. A
    torn tail and rounds that are not applied yet are normal after a crash, and said but not counted. Journal
    rounds that the checkpoint has passed, and unused space, are not data.
    """
    from tailrace.cluster.verification import verify_metadata
    from tailrace.storage.segment.inspection import bytes_to_verify, verify_directory

    with progress_bar("verifying", bytes_total=bytes_to_verify(directory)) as advance:
        verification = verify_directory(directory, advance=advance)
    metadata = verify_metadata(directory)
    verification = replace(
        verification,
        notes=(*verification.notes, *metadata.notes),
        problems=(*verification.problems, *metadata.problems),
    )
    if output.format == "json":
        output.record(asdict(verification))
    elif output.format == "jsonl":
        output.rows(_verification_lines(verification), columns=())
    else:
        _show_verification(verification, output)
    if count := len(verification.problems):
        raise CommandFailed(f"{count} problem{'s' if count > 1 else ''} found in {directory}")


# ---- which partitions


def _selector(texts: Sequence[str]) -> Selector | None:
    """Whether a partition is one of those asked for; None if all are."""
    if not texts:
        return None
    wanted = [_parse_partition(text) for text in texts]

    def selects(partition_id: PartitionId, life: int) -> bool:
        return any(
            partition_id.topic_id.hex.startswith(topic)
            and partition in (None, partition_id.partition)
            and wanted_life in (None, life)
            for topic, partition, wanted_life in wanted
        )

    return selects


def _parse_partition(text: str) -> tuple[str, int | None, int | None]:
    found = _PARTITION.fullmatch(_UUID_DASHES.sub(r"\1\2\3\4\5", text.lower()))
    if found is None:
        raise click.BadParameter(
            f"{text!r} is no partition. Write TOPICID, TOPICID-PARTITION or TOPICID-PARTITION-LIFE",
            param_hint="--partition",
        )
    topic, partition, life = found.groups()
    return topic, None if partition is None else int(partition), None if life is None else int(life)


# ---- rows


def _as_row(inspection: Inspection) -> dict[str, Any]:
    row = asdict(inspection)
    row["journal"] = list(map(_journal_row, row["journal"]))
    return row


def _journal_row(file: dict[str, Any]) -> dict[str, Any]:
    """The id as text: readers of JSON may hold numbers as floats, which are too short for it."""
    journal_id = file["journal_id"]
    return {**file, "journal_id": None if journal_id is None else f"{journal_id:016x}"}


def _inspection_lines(inspection: Inspection) -> Iterator[Row]:
    row = _as_row(inspection)
    yield {"row": "directory", "path": row["path"], "owner": row["owner"]}
    if row["checkpoint"]:
        yield {"row": "checkpoint", **row["checkpoint"]}
    for file in row["journal"]:
        yield {"row": "journal_file", **file}
    for partition in row["partitions"]:
        segments, snapshots = partition.pop("segments"), partition.pop("snapshots")
        yield {"row": "partition", **partition}
        yield from ({"row": "segment", **segment} for segment in segments)
        yield from ({"row": "snapshot", **snapshot} for snapshot in snapshots)
    for kind, key in (("leftover", "leftovers"), ("note", "notes"), ("problem", "problems")):
        yield from ({"row": kind, **each} for each in row[key])


def _verification_lines(verification: Verification) -> Iterator[Row]:
    row = asdict(verification)
    notes, problems = row.pop("notes"), row.pop("problems")
    yield from ({"row": "note", **note} for note in notes)
    yield from ({"row": "problem", **problem} for problem in problems)
    yield {"row": "verified", **row, "notes": len(notes), "problems": len(problems)}


def _round_rows(inspection: Inspection) -> Iterator[Row]:
    from tailrace.storage.segment.inspection import list_rounds

    lsn = inspection.checkpoint.lsn if inspection.checkpoint else 0
    for file in inspection.journal:
        for each in list_rounds(inspection.path, file.path, checkpoint_lsn=lsn):
            yield {"row": "round", **asdict(each)}


def _batch_rows(inspection: Inspection) -> Iterator[Row]:
    from tailrace.storage.segment.inspection import list_batches

    for partition in inspection.partitions:
        for segment in partition.segments:
            for batch in list_batches(inspection.path, segment.path):
                yield {"row": "batch", **asdict(batch)}


# ---- tables


def _show_inspection(inspection: Inspection, output: Output) -> None:
    row = _as_row(inspection)
    output.record(_summary(inspection))
    _show("Journal", row["journal"], _JOURNAL_COLUMNS, output)
    _show("Partitions", row["partitions"], _PARTITION_COLUMNS, output)
    segments = [segment for partition in row["partitions"] for segment in partition["segments"]]
    _show("Segments", segments, _SEGMENT_COLUMNS, output)
    snapshots = [snapshot for partition in row["partitions"] for snapshot in partition["snapshots"]]
    _show("Snapshots", snapshots, _SNAPSHOT_COLUMNS, output)
    _show("Not part of any log", row["leftovers"], _LEFTOVER_COLUMNS, output)
    _show_findings(row, output)


def _show_verification(verification: Verification, output: Output) -> None:
    row = asdict(verification)
    checked = ", ".join(f"{row[what]} {what}" for what in ("partitions", "segments", "batches", "records"))
    result = f"{len(verification.problems)} problems" if verification.problems else "all as it was written"
    output.record(
        {
            "directory": verification.path,
            "checked": f"{size_of(verification.bytes_checked)}: {checked}",
            "result": result,
        }
    )
    _show_findings(row, output)


def _show_findings(row: dict[str, Any], output: Output) -> None:
    _show("Notes (no action needed)", row["notes"], _NOTE_COLUMNS, output)
    _show("Problems", [{**each, "where": each} for each in row["problems"]], _PROBLEM_COLUMNS, output)


def _show(title: str, rows: Sequence[Row], columns: Sequence[Column], output: Output) -> None:
    if rows:
        click.echo(f"\n{title}")
        output.rows(rows, columns=columns)


def _show_long(title: str, rows: Iterable[Row], columns: Sequence[Column], output: Output) -> None:
    left = iter(rows)
    while piece := list(islice(left, _TABLE_ROWS_MAX)):
        _show(title, piece, columns, output)


def _summary(inspection: Inspection) -> Row:
    owner, checkpoint = inspection.owner, inspection.checkpoint
    served = "by nobody yet"
    if owner is not None:
        served = f"pid {owner.pid}, {'running' if owner.running else 'gone'}"
    known = "none readable"
    if checkpoint is not None:
        known = f"LSN {checkpoint.lsn}, {checkpoint.partitions} partitions, next life {checkpoint.next_life}"
    return {
        "directory": inspection.path,
        "last served": served,
        "checkpoint": known,
        "problems": len(inspection.problems),
    }


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"


def _kinds(entries: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(entries.items()))


def _entry(entry: dict[str, Any]) -> str:
    words = [entry["kind"], f"life {entry['life']}"]
    if entry["how"]:
        words.append(entry["how"])
    if entry["first_offset"] is not None or entry["next_offset"] is not None:
        words.append(f"offsets {_range(entry['first_offset'], entry['next_offset'])}")
    if entry["segment"] is not None:
        words.append(f"at {entry['segment']}:{entry['position'] or 0}")
    return " ".join(words)


def _range(first: int | None, following: int | None) -> str:
    """A range that excludes its end, as a person reads it."""
    if first is None:
        return f"up to {following - 1}" if following is not None else ""
    if following is None:
        return f"{first} on"
    return f"{first} to {following - 1}" if following > first + 1 else str(first)


def _where(problem: dict[str, Any]) -> str:
    words = []
    if problem["position"] is not None:
        words.append(f"bytes {_range(problem['position'], problem['end'])}")
    if problem["first_offset"] is not None:
        words.append(f"offsets {_range(problem['first_offset'], problem['next_offset'])}")
    return ", ".join(words)


_JOURNAL_COLUMNS = (
    Column("path", "file"),
    Column("bytes", show=size_of, right=True),
    Column("journal_id", "id"),
    Column("first_lsn", "first LSN", right=True),
    Column("last_lsn", "last LSN", right=True),
    Column("rounds", right=True),
    Column("rounds_above", "above checkpoint", right=True),
    Column("bytes_used", "used", show=size_of, right=True),
    Column("entries", show=_kinds),
)
_PARTITION_COLUMNS = (
    Column("topic_id", "topic id"),
    Column("partition", right=True),
    Column("life", right=True),
    Column("start", right=True),
    Column("end", right=True),
    Column("checkpoint_end", "end at checkpoint", right=True),
    Column("segments", show=lambda segments: str(len(segments)), right=True),
    Column("quarantined_from", "quarantined from", right=True),
)
_SEGMENT_COLUMNS = (
    Column("path", "file"),
    Column("state"),
    Column("bytes", show=size_of, right=True),
    Column("batches", right=True),
    Column("records", right=True),
    Column("first_offset", "first offset", right=True),
    Column("next_offset", "next offset", right=True),
    Column("max_timestamp_ms", "newest", show=_time),
    Column("index"),
    Column("spans", right=True),
)
_SNAPSHOT_COLUMNS = (
    Column("path", "file"),
    Column("bytes", show=size_of, right=True),
    Column("epochs", right=True),
    Column("producers", right=True),
    Column("current", "at checkpoint", show=lambda current: "yes" if current else "no"),
)
_LEFTOVER_COLUMNS = (Column("path"), Column("kind"), Column("bytes", show=size_of, right=True))
_NOTE_COLUMNS = (Column("path", "file"), Column("position", "byte", right=True), Column("message", "what"))
_PROBLEM_COLUMNS = (
    Column("path", "file"),
    Column("where", show=_where),
    Column("message", "what is wrong"),
    Column("hint", "what to do"),
)
_ROUND_COLUMNS = (
    Column("lsn", "LSN", right=True),
    Column("synced_lsn", "synced by then", right=True),
    Column("above_checkpoint", "to replay", show=lambda above: "yes" if above else "no"),
    Column("path", "file"),
    Column("position", "byte", right=True),
    Column("entries", show=lambda entries: "; ".join(map(_entry, entries))),
)
_BATCH_COLUMNS = (
    Column("path", "file"),
    Column("position", "byte", right=True),
    Column("bytes", show=size_of, right=True),
    Column("first_offset", "first offset", right=True),
    Column("next_offset", "next offset", right=True),
    Column("records", right=True),
    Column("leader_epoch", "epoch", right=True),
    Column("codec"),
    Column("max_timestamp_ms", "newest", show=_time),
    Column("producer_id", "producer", right=True),
    Column("flags", show=", ".join),
    Column("crc_ok", "CRC", show=lambda ok: "ok" if ok else "wrong"),
)
