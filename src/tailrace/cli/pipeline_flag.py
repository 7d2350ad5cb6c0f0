"""The flags of `tailrace pipeline run`: one for every field of a config, with the words that teach it.

They stand here and not in the configs, because help must not import Spark; a test holds the two together. A
flag passes on what was typed and only if it was typed: what it means, and what holds without it, is the
config's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import rich_click as click

Kind = Literal["value", "list", "pairs", "switch", "argument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One field of a config on the command line."""

    field: str
    help: str
    metavar: str = ""
    name: str = ""  # --field-name, if empty
    default: str = ""  # as a person writes it
    kind: Kind = "value"

    @property
    def spelling(self) -> str:
        """As it is typed."""
        if self.kind == "argument":
            return self.metavar
        return self.name.partition("/")[0] or f"--{self.field.replace('_', '-')}"

    def parameter(self) -> click.Parameter:
        """For click. Nothing is required there: a declared pipeline of the same name may give it."""
        if self.kind == "argument":
            return click.Argument([self.field], required=False, metavar=self.metavar)
        shown: Any = {"show_default": self.default} if self.default else {}
        if self.kind == "switch":
            names = self.name or self.spelling
            return click.Option([self.field, names], is_flag=True, default=None, help=self.help, **shown)
        return click.Option(
            [self.field, self.spelling],
            multiple=self.kind in ("list", "pairs"),
            metavar=self.metavar,
            help=self.help,
            **shown,
        )


_LAKE = Flag(field="lake", metavar="LAKE", help="The lake's folder.")
_FILE_BYTES = Flag(
    field="file_bytes",
    metavar="BYTES",
    default="268435456",
    help="About how large a file may become. Readers like few large ones.",
)
_COMPRESSION = Flag(
    field="compression", metavar="zstd|snappy|gzip|lz4|none", default="zstd", help="Of the Parquet files."
)
_ONCE = Flag(
    field="once",
    kind="switch",
    help="Do what there is to do now, and end. Without it the run goes on until Ctrl-C or `pipeline stop`.",
)

_EVERY = Flag(
    field="every_s",
    metavar="SECONDS",
    default="once",
    help="Do it again so long after its end, until Ctrl-C or `pipeline stop`. It then waits for a lake that "
    "is not there yet.",
)

FLAGS: Mapping[str, Sequence[Flag]] = {
    "archive": (
        Flag(
            field="topic",
            kind="list",
            metavar="TOPIC",
            help="What to archive; several with commas, or again.",
        ),
        Flag(
            field="to",
            metavar="LAKE",
            help="The lake's folder, made if it is not there. It knows how far it is: a run goes on where "
            "the last one ended.",
        ),
        _ONCE,
        Flag(
            field="format",
            metavar="parquet|delta|iceberg",
            default="what the lake is, parquet for a new one",
            help="How the lake keeps its books: Parquet files with a manifest, or a Delta or Iceberg table.",
        ),
        Flag(
            field="starting",
            metavar="earliest|latest|TIME",
            default="earliest",
            help="Where to begin with partitions that the lake does not have yet; a time is written as "
            "2026-11-16T03:00.",
        ),
        Flag(
            field="batch_rows",
            metavar="COUNT",
            default="2000000",
            help="How many records a commit has at most, of all partitions together.",
        ),
        _FILE_BYTES,
        Flag(
            field="interval_s",
            metavar="SECONDS",
            default="5.0",
            help="Without --once: the least time between commits, unless a full batch waits. Longer makes "
            "fewer and larger files.",
        ),
        _COMPRESSION,
        Flag(
            field="read_committed",
            kind="switch",
            name="--read-committed/--read-uncommitted",
            default="read-committed",
            help="Leave out records of transactions that were aborted or are still open.",
        ),
        Flag(
            field="fail_on_data_loss",
            kind="switch",
            name="--fail-on-data-loss/--no-fail-on-data-loss",
            default="no-fail-on-data-loss",
            help="Fail where retention removed records that the lake lacks, or go on and keep which are "
            "missing. The exit code is 6 either way.",
        ),
        Flag(
            field="group",
            metavar="GROUP",
            default="tailrace-archive-FOLDER",
            help="The consumer group that shows how far the lake is; retention.archive.wait of a topic waits "
            "for it. Lakes of one topic need groups of their own.",
        ),
    ),
    "replay": (
        Flag(field="lake", name="--from", metavar="LAKE", help="The lake's folder."),
        Flag(field="topic", metavar="TOPIC", help="Whose records to give back."),
        Flag(
            field="to_topic",
            metavar="TOPIC",
            default="TOPIC-replay",
            help="Where to; made if it is not there. Nobody else may write it: what it has tells where the "
            "next run goes on.",
        ),
        Flag(field="since", metavar="TIME", help="Only records from this time on, such as 2026-11-16T03:00."),
        Flag(field="until", metavar="TIME", help="Only records before this time."),
        Flag(field="since_offset", metavar="OFFSET", help="Only records from this offset on."),
        Flag(field="until_offset", metavar="OFFSET", help="Only records before this offset."),
        Flag(field="key", metavar="KEY", help="Only records with this key."),
        Flag(
            field="speed",
            metavar="max|1x|10x",
            default="max",
            help="As fast as possible, or as the records came, so many times faster.",
        ),
        Flag(
            field="partitions",
            metavar="same|COUNT",
            default="same",
            help="same: each record into the partition it came from. A number: by key into so many.",
        ),
    ),
    "sql": (
        Flag(
            field="query",
            kind="argument",
            metavar="QUERY",
            help="Topics are views: SELECT ... FROM STREAM orders.",
        ),
        Flag(
            field="to",
            metavar="console|topic:T|LAKE",
            default="console",
            help="Where the rows go: this terminal, a topic, or a folder of Parquet files.",
        ),
        Flag(
            field="checkpoint",
            metavar="DIR",
            default="none for the console, else one that belongs to the query",
            help="Where Spark keeps how far a stream has come. Deleting it means starting over.",
        ),
        Flag(
            field="name",
            metavar="NAME",
            default="made of the query's text, without regard to white space and comments",
            help="Of a query to a topic: under this name its progress is found again, even if the query "
            "changes.",
        ),
        Flag(
            field="state",
            metavar="DIR",
            default="the data directory if this machine has one, else ~/.local/state/tailrace",
            help="Where queries to topics keep their progress. In a container, name a volume.",
        ),
        Flag(
            field="schema",
            kind="pairs",
            metavar="TOPIC=COLUMNS|FILE|URL",
            default="[schemas.TOPIC] of tailrace.toml, else guessed from the newest records",
            help="The types of a topic's data: columns such as 'order STRING, total DECIMAL(12,2)', a file "
            "with them (.ddl, .sql, .txt), with a JSON Schema (.json), an Avro schema (.avsc) or a compiled "
            "Protobuf schema (.desc#MESSAGE), or the address of a schema registry.",
        ),
        Flag(
            field="bad_rows",
            metavar="fail|null|topic:T",
            default="fail",
            help="What becomes of a value that does not fit its type: the query fails, data is null, or the "
            "record goes to a topic. The last two are counted.",
        ),
        Flag(
            field="widen",
            kind="switch",
            help="Take other types than those that the query began with: the declared ones, or for guessed "
            "ones such as hold the newest records too.",
        ),
        _ONCE,
        Flag(
            field="output_mode",
            metavar="append|update|complete",
            default="what the query needs",
            help="What is written of an aggregation: rows that are final, rows that changed, or all of them.",
        ),
        Flag(field="trigger_s", metavar="SECONDS", help="The least time between two batches."),
        Flag(
            field="batch_rows",
            metavar="COUNT",
            default="2000000",
            help="How many records of each topic a batch of a stream has at most.",
        ),
        Flag(
            field="starting",
            metavar="earliest|latest",
            default="earliest",
            help="Where a stream without a checkpoint begins.",
        ),
        Flag(
            field="fail_on_data_loss",
            kind="switch",
            name="--fail-on-data-loss/--no-fail-on-data-loss",
            default="fail-on-data-loss",
            help="Fail where records are gone that were to be read, or go on with what is there.",
        ),
        Flag(
            field="watermark",
            metavar="DURATION",
            default="10 minutes",
            help="How late records may come: windows that are older than that are final.",
        ),
        Flag(
            field="rows_shown",
            metavar="COUNT",
            default="20",
            help="Rows of each batch on the console, at most.",
        ),
    ),
    "compact": (
        _LAKE,
        Flag(
            field="topic",
            kind="list",
            metavar="TOPIC",
            default="all",
            help="Only these; several with commas, or again.",
        ),
        _FILE_BYTES,
        Flag(field="retain_days", metavar="DAYS", help="Drop whole days that are older than so many."),
        Flag(
            field="snapshot",
            metavar="DIR",
            help="Also write the newest record of each key into this folder, outside of the lake.",
        ),
        Flag(
            field="grace_h",
            metavar="HOURS",
            default="24.0",
            help="How long files stay that were replaced: whoever reads them may finish.",
        ),
        _COMPRESSION,
        _EVERY,
    ),
    "report": (
        _LAKE,
        Flag(
            field="out", metavar="FILE", default="report.html", help="The page; it needs nothing but itself."
        ),
        Flag(
            field="topic",
            kind="list",
            metavar="TOPIC",
            default="all",
            help="Only these; several with commas, or again.",
        ),
        _EVERY,
    ),
}

EXAMPLES: Mapping[str, Sequence[str]] = {
    "archive": (
        "tailrace pipeline run archive --topic orders --to ./lake --once",
        "tailrace pipeline run archive --topic orders,payments --to ./lake",
        "tailrace pipeline run archive --topic orders --to ./delta --format delta --master spark://head:7077",
    ),
    "replay": (
        "tailrace pipeline run replay --from ./lake --topic orders",
        "tailrace pipeline run replay --from ./lake --topic orders --to-topic again --since 2026-11-16",
        "tailrace pipeline run replay --from ./lake --topic orders --speed 10x",
    ),
    "sql": (
        'tailrace pipeline run sql "SELECT key, count(*) AS n FROM STREAM orders GROUP BY key"',
        'tailrace pipeline run sql "SELECT key, value FROM STREAM orders" --to topic:copy --name copy',
        'tailrace pipeline run sql "SELECT sum(data.total) AS t FROM STREAM orders" '
        "--schema orders='total DECIMAL(12,2)' --bad-rows topic:rejected",
    ),
    "compact": (
        "tailrace pipeline run compact --lake ./lake",
        "tailrace pipeline run compact --lake ./lake --retain-days 90 --snapshot ./latest",
        "tailrace pipeline run compact --lake ./lake --every-s 3600",
    ),
    "report": (
        "tailrace pipeline run report --lake ./lake --out report.html",
        "tailrace pipeline run report --lake ./lake --bootstrap 127.0.0.1:9092",
    ),
}


def given_values(flags: Sequence[Flag], options: Mapping[str, Any]) -> dict[str, object]:
    """What was typed, by field; commas part lists, and `=` parts a pair's name from its value."""
    given: dict[str, object] = {}
    for flag in flags:
        value = options[flag.field]
        if flag.kind == "list":
            value = ",".join(value) or None
        elif flag.kind == "pairs":
            value = dict(_pair(flag, each) for each in value) or None
        if value is not None:
            given[flag.field] = value
    return given


def _pair(flag: Flag, text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found or not name.strip():
        raise click.UsageError(f"{flag.spelling} {text!r} is not {flag.metavar}")
    return name.strip(), value


def spell_of(flags: Sequence[Flag]) -> Mapping[str, str]:
    """How the fields are typed, for messages."""
    return {flag.field: flag.spelling for flag in flags}
