"""`tailrace produce`: sends records from arguments, from standard input or from a file.

With `--destination` and `--message` it publishes through the native listener instead; `tailrace.cli.publish`
does that.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import rich_click as click
from click.core import ParameterSource

from tailrace.cli.connection import Cluster, connection_option
from tailrace.cli.encryption import encryption_option
from tailrace.cli.exit import CommandFailed
from tailrace.cli.native import DEFAULT_NODE, NODE_VARIABLE, NativeNode, NodeType
from tailrace.cli.output import Output, examples, output_option
from tailrace.cli.publish import Outgoing, argument_bytes, parse_properties, publish_all
from tailrace.model import escape

if TYPE_CHECKING:
    from tailrace.client.accumulator import RecordMetadata
    from tailrace.client.kafka import KafkaClient
    from tailrace.model.address import Address
    from tailrace.security.messages import Encryption
    from tailrace.wire.json.record_json import ParsedRecord

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_READ_BYTES = 64 * 1024
_CHUNKS_AHEAD = 16
_LINE_BYTES_MAX = 128 * 1024 * 1024
_NATIVE = frozenset(
    {
        "destination",
        "encryption_active",
        "encryption_keys",
        "encryption_policy",
        "headers",
        "key",
        "messages",
        "node",
        "output",
        "partition",
        "timeout",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """How input becomes records."""

    key: bytes | None
    delimiter: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    jsonl: bool


@dataclass(slots=True)
class _Tally:
    """What has arrived so far, by partition: how many, and the first and last offset."""

    count: int = 0
    parts: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, done: RecordMetadata) -> None:
        self.count += 1
        count, first, _last = self.parts.get(done.partition, (0, done.offset, 0))
        self.parts[done.partition] = (count + 1, first, done.offset)


@click.command(
    name="produce",
    epilog=examples(
        "tailrace produce orders 'first order' 'second order'",
        "tailrace produce orders -k customer-7 -H source=web 'an order'",
        "cat orders.txt | tailrace produce orders -K : -z zstd",
        "tailrace tail orders --no-follow -o jsonl | tailrace produce copy --input jsonl",
        "tailrace produce users -k user-7 --tombstone",
        "tailrace produce --node localhost:9999 --destination test-queue --message 'Hello'",
    ),
)
@click.argument("topic", required=False)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("-k", "--key", help="Key of every record.")
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Lines are KEY, this, VALUE.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Default: chosen by the key.")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read records from a file instead of standard input.",
)
@click.option(
    "--input",
    "input_format",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    show_default=True,
    help="A value per line, or a JSON object per line as `tailrace tail -o jsonl` prints them.",
)
@click.option(
    "--tombstone", is_flag=True, help="Send one record without a value: compaction forgets its key."
)
@click.option(
    "-z", "--compression", type=click.Choice(_CODECS), default="none", show_default=True, help="Codec."
)
@click.option(
    "--acks",
    type=click.Choice(["all", "1", "0"]),
    default="all",
    show_default=True,
    help="Whose acknowledgement to wait for: that of all replicas, of the leader, or nobody's.",
)
@click.option("--destination", metavar="NAME", help="Publish to this topic through the native listener.")
@click.option("--message", "messages", multiple=True, metavar="TEXT", help="With --destination; repeatable.")
@click.option(
    "--node",
    type=NodeType(),
    metavar="HOST:PORT",
    show_default=f"${NODE_VARIABLE}, else {DEFAULT_NODE}",
    help="With --destination: the native listener.",
)
@encryption_option
@connection_option
@output_option
def command(
    topic: str | None,
    values: tuple[str, ...],
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    path: Path | None,
    input_format: str,
    tombstone: bool,
    compression: str,
    acks: str,
    destination: str | None,
    messages: tuple[str, ...],
    node: Address | None,
    cluster: Cluster,
    output: Output,
    encryption: Encryption | None,
) -> None:
    """Send records to a topic.

    Every VALUE is a record; without one, every line of standard input is. A topic that does not exist is
    created if the broker allows it. The command ends when every record has arrived.
    """
    given = _named()
    if given & {"destination", "messages", "node"}:
        _check_native(given)
        assert destination is not None
        native = _native_node(node, cluster.timeout_s if "timeout" in given else None, encryption)
        _publish(native, destination, messages, headers, key=key, partition=partition, output=output)
        return
    if topic is None:
        raise click.UsageError("Missing argument 'TOPIC'.")
    topic.encode()  # a name that is no text is refused before anything is read or sent
    shape = _Shape(
        key=None if key is None else argument_bytes(key),
        delimiter=_delimiter(key_delimiter, key=key),
        headers=[_header(each) for each in headers],
        partition=partition,
        jsonl=input_format == "jsonl",
    )
    if sum((bool(values), path is not None, tombstone)) > 1:
        raise click.UsageError("values, --file and --tombstone exclude each other.")
    if tombstone and key is None:
        raise click.UsageError("--tombstone needs --key: it is the key that is to be forgotten.")

    async def work(client: KafkaClient) -> _Tally:
        with _source(path, values, tombstone=tombstone) as records:
            return await _send_all(
                client,
                topic,
                records(shape),
                output,
                compression=compression,
                acks=acks,
                encryption=encryption,
            )

    tally = cluster.run(work)
    if output.format == "table":
        _show(topic, tally, output)


# ---- through the native listener


def _named() -> set[str]:
    """The parameters that stand on the command line."""
    context = click.get_current_context()
    assert context is not None
    return {
        name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def _check_native(given: set[str]) -> None:
    if not {"destination", "messages"} <= given:
        raise click.UsageError("--node, --destination and --message go together.")
    if "topic" in given:
        raise click.UsageError("TOPIC and --destination exclude each other.")
    if foreign := given - _NATIVE:
        words = ", ".join(sorted(foreign))
        raise click.UsageError(
            f"--destination goes with --key, --header and --partition, and not with {words}."
        )


def _native_node(node: Address | None, timeout_s: float | None, encryption: Encryption | None) -> NativeNode:
    address = node or NodeType().convert(os.environ.get(NODE_VARIABLE) or DEFAULT_NODE, None, None)
    return NativeNode(address, timeout_s, encryption)


def _publish(
    node: NativeNode,
    topic: str,
    messages: tuple[str, ...],
    headers: tuple[str, ...],
    *,
    key: str | None,
    partition: int | None,
    output: Output,
) -> None:
    outgoing = Outgoing(
        key=None if key is None else argument_bytes(key),
        partition=partition,
        properties=parse_properties(headers, option="--header"),
    )
    publish_all(node, topic, messages, outgoing, output)


# ---- where records come from


@contextmanager
def _source(
    path: Path | None, values: tuple[str, ...], *, tombstone: bool
) -> Iterator[Callable[[_Shape], AsyncIterator[ParsedRecord]]]:
    if tombstone:
        yield _tombstone
    elif values:
        yield lambda shape: _given(values, shape)
    elif path is not None:
        with path.open("rb", buffering=0) as stream:
            yield lambda shape: _read(stream, shape)
    else:
        if sys.stdin.isatty():
            click.echo("one record per line; Ctrl-D ends", err=True)
        # Below the buffer: Python aborts at its end if a thread still waits for input inside of that.
        unbuffered = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        yield lambda shape: _read(unbuffered, shape)


async def _tombstone(shape: _Shape) -> AsyncIterator[ParsedRecord]:
    from tailrace.wire.json.record_json import ParsedRecord

    yield ParsedRecord(value=None, key=shape.key, partition=shape.partition, headers=shape.headers)


async def _given(values: tuple[str, ...], shape: _Shape) -> AsyncIterator[ParsedRecord]:
    for value in values:
        yield _record(argument_bytes(value), shape, where="")


async def _read(stream: io.RawIOBase | BinaryIO, shape: _Shape) -> AsyncIterator[ParsedRecord]:
    number = 0
    async for line in _lines(stream):
        number += 1
        yield _record(line, shape, where=f"line {number}: ")


def _record(line: bytes, shape: _Shape, *, where: str) -> ParsedRecord:
    from tailrace.wire.json.record_json import BadRecord, ParsedRecord, parse_record

    if shape.jsonl:
        try:
            record = parse_record(line)
        except BadRecord as error:
            raise CommandFailed(f"{where}{error}") from error
        record.key = shape.key if record.key is None else record.key
        # The partition that a record was read from is no reason to write it to the same number elsewhere.
        record.partition = shape.partition
        record.headers += shape.headers
        return record
    key, value = shape.key, line
    if shape.delimiter is not None:
        before, found, value = line.partition(shape.delimiter)
        if not found:
            shown = shape.delimiter.decode("utf-8", "backslashreplace")
            raise CommandFailed(f"{where}there is no {shown!r} between key and value")
        key = before
    return ParsedRecord(value=value, key=key, partition=shape.partition, headers=shape.headers)


async def _lines(stream: io.RawIOBase | BinaryIO) -> AsyncIterator[bytes]:
    """Lines as they come, read by a thread of its own: Ctrl-C must not wait for somebody to press enter."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_CHUNKS_AHEAD)  # which bounds the queue, for the thread that fills it
    is_over = threading.Event()

    def feed() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and not isinstance(chunk, OSError):
            try:
                chunk = stream.read(_READ_BYTES) or b""
            except OSError as error:
                chunk = error
            except ValueError:
                return  # the file is closed, by whoever has met an error in what was read of it
            room.acquire()
            if is_over.is_set():
                return
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is gone, and with it whoever wanted lines

    threading.Thread(target=feed, name="reading input", daemon=True).start()
    rest = b""
    try:
        while chunk := await chunks.get():
            room.release()
            if isinstance(chunk, OSError):
                raise chunk
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                raise CommandFailed(f"a line is longer than {_LINE_BYTES_MAX} bytes")
            for line in lines:
                yield line.removesuffix(b"\r")
        if rest:
            yield rest
    finally:
        is_over.set()
        room.release()


# ---- where they go


async def _send_all(
    client: KafkaClient,
    topic: str,
    records: AsyncIterator[ParsedRecord],
    output: Output,
    *,
    compression: str,
    acks: str,
    encryption: Encryption | None,
) -> _Tally:
    from tailrace.client.producer import Producer, ProducerConfig
    from tailrace.records import Compression

    config = ProducerConfig(
        acks=-1 if acks == "all" else int(acks),
        idempotent=acks == "all",
        compression=Compression[compression.upper()],
        delivery_timeout_s=client.request_timeout_s,
    )
    tally, pending = _Tally(), deque[asyncio.Future["RecordMetadata"]]()
    rows: list[dict[str, object]] = []

    def report(done: RecordMetadata) -> None:
        tally.add(done)
        if output.format == "jsonl":
            output.rows([done._asdict()], columns=())
        elif output.format == "json":
            rows.append(done._asdict())

    async with Producer(client, config, encryption=encryption) as producer:
        async for record in records:
            future = await producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp,
            )
            pending.append(future)
            while pending and pending[0].done():
                report(pending.popleft().result())
        await producer.flush()
        for future in pending:
            report(await future)
    if output.format == "json":
        output.record({"topic": topic, "count": tally.count, "records": rows})
    return tally


def _show(topic: str, tally: _Tally, output: Output) -> None:
    if not tally.count:
        click.echo(f"no records for {topic}")
        return
    for partition, (count, first, last) in sorted(tally.parts.items()):
        if last < 0:
            where = "offset unknown"
        else:
            where = f"offset {first}" if count == 1 else f"offsets {first} to {last}"
        records = "1 record" if count == 1 else f"{count:,} records"
        click.echo(f"{records} to {escape(topic)} partition {partition}, {where}", file=output.stream)


def _delimiter(text: str | None, *, key: str | None) -> bytes | None:
    if text is None:
        return None
    if key is not None:
        raise click.UsageError("--key and --key-delimiter exclude each other.")
    if not text:
        raise click.BadParameter("it is empty", param_hint="--key-delimiter")
    return argument_bytes(text.replace("\\t", "\t"))


def _header(text: str) -> tuple[str, bytes | None]:
    name, found, value = text.partition("=")
    if not found or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, argument_bytes(value)
