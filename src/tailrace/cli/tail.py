"""`tailrace tail`: shows a topic's last records, or those from an offset or a time on, and follows it.

A record is a line for people, a JSON object, or what `--format` says. To a terminal nothing is written that
could steer it; to a file or a pipe `--format` writes keys and values byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

import rich_click as click

from tailrace.cli.connection import Cluster, connection_option
from tailrace.cli.encryption import encryption_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Output, examples, output_option
from tailrace.model import escape

if TYPE_CHECKING:
    from uuid import UUID

    from tailrace.client.admin import Extent
    from tailrace.client.consumer import Consumer
    from tailrace.client.kafka import KafkaClient
    from tailrace.model import TopicPartition
    from tailrace.records import Record
    from tailrace.security.messages import Encryption

Show: TypeAlias = Callable[["TopicPartition", "Record"], None]

_LAST = 10
_POLL_S = 1.0
_POLL_RECORDS = 500
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\", "0": b"\0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """What to show: from where, to where, and how many."""

    last: int | None = None  # the last so many of the topic; then `start` is not given
    start: str | None = None  # an offset, a count back from the end, earliest or latest
    since: str | None = None
    until: str | None = None
    count_max: int | None = None
    follow: bool = True


@click.command(
    name="tail",
    epilog=examples(
        "tailrace tail orders",
        "tailrace tail orders --from-beginning -n 20",
        "tailrace tail orders -p 0 --offset -100 --no-follow",
        "tailrace tail orders --since 10m -o jsonl | jq .value",
        "tailrace tail orders --since 2026-11-16T09:00 --until 2026-11-16T09:05",
        r"tailrace tail orders --format '%t [%p] at %o: %k -> %s\n'",
    ),
)
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="From the first record that is left.")
@click.option(
    "--offset",
    metavar="N|-N|earliest|latest",
    help="From this offset of each partition; -N: N before its end. Past every end is an error.",
)
@click.option("--since", metavar="TIME", help="From a time on: 10m, 2h or 3d ago, or 2026-11-16T09:00.")
@click.option("--until", metavar="TIME", help="Up to a time, which is not included; does not follow.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="May be repeated."
)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=0),
    metavar="COUNT",
    help=f"Without a start: begin with the last COUNT records ({_LAST}). With one: stop after COUNT.",
)
@click.option("--follow/--no-follow", default=True, help="Wait for new records, or stop at the end.")
@click.option(
    "-f",
    "--format",
    "template",
    metavar="TEXT",
    help=r"%t topic, %p partition, %o offset, %k key, %s value, %T timestamp in ms, %h headers,"
    r" %K and %S sizes, %% percent, \n \t",
)
@encryption_option
@connection_option
@output_option
def command(
    topic: str,
    from_beginning: bool,
    offset: str | None,
    since: str | None,
    until: str | None,
    partitions: tuple[int, ...],
    count: int | None,
    follow: bool,
    template: str | None,
    cluster: Cluster,
    output: Output,
    encryption: Encryption | None,
) -> int:
    """Show a topic's records, and follow it.

    Starts with the last records of the topic and waits for new ones, until Ctrl-C. Nothing is committed and
    no group is joined: looking changes nothing.
    """
    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --since exclude each other.")
    started = from_beginning or offset is not None or since is not None
    wanted = _Range(
        last=None if started else _LAST if count is None else count,
        start="earliest" if from_beginning else offset,
        since=since,
        until=until,
        count_max=count if started else None,
        follow=follow and until is None,
    )
    if output.format == "json" and wanted.follow:
        raise click.UsageError("-o json prints one list at the end: add --no-follow, or use -o jsonl.")
    shown = _Shown(output, template)
    try:
        cluster.run(lambda client: _tail(client, topic, partitions, wanted, shown.add, encryption))
    except KeyboardInterrupt:
        click.echo(f"\n{_records(shown.count)}", err=True)
        return ExitCode.OK
    shown.end()
    return ExitCode.OK


# ---- reading


async def _tail(
    client: KafkaClient,
    topic: str,
    only: Sequence[int],
    wanted: _Range,
    show: Show,
    encryption: Encryption | None,
) -> None:
    from tailrace.client.consumer import Consumer, ConsumerConfig
    from tailrace.client.fetcher import FetchConfig

    targets = await _targets(client, topic, only)
    topic_id = (await client.topic(topic)).topic_id
    config = ConsumerConfig(reset="earliest", fetch=FetchConfig(read_committed=True))
    async with Consumer(client, config, encryption=encryption) as consumer:
        consumer.assign(targets)
        if wanted.last is not None:
            ends = await _show_last(client, consumer, targets, topic_id, wanted, show)
            starts = ends
        else:
            starts = await _starts(client, targets, wanted)
            ends = await _ends(client, targets, wanted)
        for target, start in starts.items():
            consumer.seek(target, start)
        if wanted.follow:
            await _follow(consumer, wanted.count_max, show)
        else:
            await _show_to(client, consumer, ends, topic_id, wanted.count_max, show)


async def _targets(client: KafkaClient, topic: str, only: Sequence[int]) -> list[TopicPartition]:
    from tailrace.model import TopicPartition

    info = await client.topic(topic)
    if missing := [each for each in only if each not in info.partitions]:
        raise CommandFailed(
            f"topic {topic} has no partition {missing[0]}, only 0 to {len(info.partitions) - 1}",
            exit_code=ExitCode.NOT_FOUND,
        )
    return [TopicPartition(topic, each) for each in (only or info.partitions)]


async def _show_last(
    client: KafkaClient,
    consumer: Consumer,
    targets: Sequence[TopicPartition],
    topic_id: UUID,
    wanted: _Range,
    show: Show,
) -> dict[TopicPartition, int]:
    """Show the last records of the topic, the oldest first; the offsets behind them."""
    from tailrace.client.admin import extents

    assert wanted.last is not None
    ends = await _ends(client, targets, wanted)
    reach = await extents(client, targets)
    for target, end in ends.items():
        consumer.seek(target, max(reach[target].start, end - wanted.last))
    found: list[tuple[int, TopicPartition, Record]] = []
    newest: dict[TopicPartition, int] = {}

    def keep(target: TopicPartition, record: Record) -> None:
        # Times may go back within a partition, whose order is that of its offsets: what comes late is late.
        newest[target] = max(newest.get(target, record.timestamp), record.timestamp)
        found.append((newest[target], target, record))

    if wanted.last:
        await _show_to(client, consumer, ends, topic_id, None, keep)
    found.sort(key=lambda each: each[0])
    for _time_ms, target, record in found[-wanted.last :] if wanted.last else []:
        show(target, record)
    return ends


async def _starts(
    client: KafkaClient, targets: Sequence[TopicPartition], wanted: _Range
) -> dict[TopicPartition, int]:
    from tailrace.client.admin import extents

    reach = await extents(client, targets)
    if wanted.since is not None:
        since_ms, now_ms = _moment(wanted.since), _now_ms()
        found = await client.list_offsets(dict.fromkeys(targets, since_ms), read_committed=True)
        if since_ms > now_ms and all(each.offset < 0 for each in found.values()):
            click.echo(f"warning: --since {wanted.since} is in the future: new records are shown", err=True)
        return {
            target: each.offset if each.offset >= 0 else reach[target].end for target, each in found.items()
        }
    start = wanted.start or "earliest"
    if start in ("earliest", "latest"):
        return {target: each.start if start == "earliest" else each.end for target, each in reach.items()}
    try:
        number = int(start)
    except ValueError:
        raise click.BadParameter(
            f"{start!r} is not a number, earliest or latest", param_hint="--offset"
        ) from None
    if number < 0:  # fewer than that many records are all there is of "the last 1000"
        return {target: max(each.end + number, each.start) for target, each in reach.items()}
    starts, moves = plan_offset(number, reach)
    for move in moves:
        click.echo(f"warning: {move}", err=True)
    return starts


def plan_offset(
    offset: int, reach: Mapping[TopicPartition, Extent]
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Where to begin in each partition, and a sentence for each that does not have the offset.

    CommandFailed if it lies past the end of every one: then nobody would see why nothing comes.
    """
    short = {target: each for target, each in reach.items() if offset > each.end}
    if len(short) == len(reach):
        ends = ", ".join(f"{target} ends at {each.end}" for target, each in sorted(reach.items()))
        raise CommandFailed(
            f"there is no offset {offset}: {ends}. Try: --offset latest", exit_code=ExitCode.NOT_FOUND
        )
    moves = [f"{target} ends at {each.end}: it is shown from there" for target, each in sorted(short.items())]
    moves += [
        f"{target} begins at {each.start}, what was before is gone: it is shown from there"
        for target, each in sorted(reach.items())
        if offset < each.start
    ]
    return {target: min(max(offset, each.start), each.end) for target, each in reach.items()}, moves


async def _ends(
    client: KafkaClient, targets: Sequence[TopicPartition], wanted: _Range
) -> dict[TopicPartition, int]:
    """Where each partition ends now, or at the time where to stop."""
    from tailrace.client.offsets import LATEST

    now = await client.list_offsets(dict.fromkeys(targets, LATEST), read_committed=True)
    ends = {target: each.offset for target, each in now.items()}
    if wanted.until is not None:
        found = await client.list_offsets(dict.fromkeys(targets, _moment(wanted.until)))
        ends |= {target: each.offset for target, each in found.items() if each.offset >= 0}
    return ends


async def _follow(consumer: Consumer, count_max: int | None, show: Show) -> None:
    """Show records from the positions on, for ever or until there were so many."""
    left = sys.maxsize if count_max is None else count_max
    while left > 0:
        polled = await consumer.poll(_POLL_S, records_max=min(left, _POLL_RECORDS))
        for target, records in polled.items():
            for record in records:
                show(target, record)
                left -= 1


async def _show_to(
    client: KafkaClient,
    consumer: Consumer,
    ends: dict[TopicPartition, int],
    topic_id: UUID,
    count_max: int | None,
    show: Show,
) -> None:
    """Show records from the positions up to the ends, and no more than so many."""
    left = sys.maxsize if count_max is None else count_max
    while left > 0 and await _pause_finished(consumer, ends):
        polled = await consumer.poll(_POLL_S, records_max=min(left, _POLL_RECORDS))
        if not polled:
            await _check_there(client, next(iter(ends)).topic, topic_id)
        for target, records in polled.items():
            for record in records:
                if record.offset < ends[target]:
                    show(target, record)
                    left -= 1


async def _check_there(client: KafkaClient, topic: str, topic_id: UUID) -> None:
    """Nothing came: an error if nothing will, because the broker is gone, or the topic is another one."""
    client.cluster.topics.pop(topic, None)  # what we know of it is what is in doubt
    if (await client.topic(topic)).topic_id != topic_id:
        raise CommandFailed(
            f"topic {topic} was deleted and made anew meanwhile", exit_code=ExitCode.NOT_FOUND
        )


async def _pause_finished(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Stop reading the partitions that have reached their end; whether any is left."""
    done = [target for target, end in ends.items() if await consumer.position(target) >= end]
    consumer.pause(done)
    if len(done) == len(ends):
        consumer.resume(done)
        return False
    return True


def _moment(text: str) -> int:
    from tailrace.wire.json.moment import parse_moment

    return parse_moment(text, now_ms=_now_ms())


def _now_ms() -> int:
    from tailrace.runtime import SystemClock

    return SystemClock().now_ms()


# ---- showing


class _Shown:
    """Writes records as they come, in one of the ways to write them."""

    def __init__(self, output: Output, template: str | None) -> None:
        self.count = 0
        self._output = output
        self._rows: list[dict[str, object]] = []
        self._terminal = sys.stdout.isatty()
        self._write: Show
        if template is not None:
            self._pieces = parse_template(template)
            self._write = self._formatted
        elif output.format == "table":
            self._write = self._line
        else:
            self._write = self._row

    def add(self, target: TopicPartition, record: Record) -> None:
        self._write(target, record)
        self.count += 1

    def end(self) -> None:
        if self._output.format == "json":
            self._output.rows(self._rows, columns=())

    def _row(self, target: TopicPartition, record: Record) -> None:
        from tailrace.wire.json.record_json import record_row

        row = record_row(*target, record)
        if self._output.format == "json":
            self._rows.append(row)
        else:
            self._output.rows([row], columns=())
            sys.stdout.flush()

    def _line(self, target: TopicPartition, record: Record) -> None:
        key = "-" if record.key is None else readable(record.key)
        value = "(tombstone)" if record.value is None else readable(record.value)
        words = [
            click.style(_time(record.timestamp), dim=True),
            click.style(f"{target.partition}@{record.offset}", fg="cyan"),
            click.style(key, bold=record.key is not None, dim=record.key is None),
            click.style(value, dim=record.value is None),
        ]
        if record.headers:
            words.append(click.style(_headers(record.headers), dim=True))
        click.echo("  ".join(words))

    def _formatted(self, target: TopicPartition, record: Record) -> None:
        data = b"".join(
            piece if isinstance(piece, bytes) else self._shown(piece(target, record))
            for piece in self._pieces
        )
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def _shown(self, data: bytes) -> bytes:
        return readable(data).encode() if self._terminal else data


Piece: TypeAlias = "bytes | Callable[[TopicPartition, Record], bytes]"


def parse_template(template: str) -> list[Piece]:
    """The pieces of a format: text as it is, and functions of a record."""
    pieces: list[Piece] = []
    at = 0
    while at < len(template):
        char = template[at]
        if char not in "%\\":
            pieces.append(char.encode("utf-8", "surrogateescape"))
            at += 1
            continue
        token = template[at + 1 : at + 2]
        known = _TOKENS.get(token) if char == "%" else _ESCAPES.get(token)
        if known is None:
            raise click.BadParameter(
                f"{char + token!r} is not known. There are %{' %'.join(_TOKENS)} and \\n \\t \\r \\0 \\\\",
                param_hint="--format",
            )
        pieces.append(known)
        at += 2
    return pieces


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


_TOKENS: dict[str, Piece] = {
    "t": lambda target, _record: target.topic.encode(),
    "p": lambda target, _record: b"%d" % target.partition,
    "o": lambda _target, record: b"%d" % record.offset,
    "k": lambda _target, record: record.key or b"",
    "s": lambda _target, record: record.value or b"",
    "T": lambda _target, record: b"%d" % record.timestamp,
    "h": lambda _target, record: _headers(record.headers).encode(),
    "K": lambda _target, record: _size(record.key),
    "S": lambda _target, record: _size(record.value),
    "%": b"%",
}


def readable(data: bytes) -> str:
    """Bytes as one line of text; what is no text, or would steer a terminal, is written out."""
    return escape(data.decode("utf-8", "backslashreplace"))


def _headers(headers: Iterable[tuple[str, bytes | None]]) -> str:
    return ",".join(
        escape(name) if value is None else f"{escape(name)}={readable(value)}" for name, value in headers
    )


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
