"""docs/protocol/native.md against the codec: dumps, tables and limits are compared, its client is run."""

from __future__ import annotations

import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.native import NativeConfig
from tailrace.wire import native
from tailrace.wire.native import (
    Frame,
    FrameReader,
    MessageType,
    read_entries,
    read_frame,
    write_data,
    write_data_prefix,
    write_entries,
    write_frame,
)

TEXT = (Path(__file__).parents[4] / "docs" / "protocol" / "native.md").read_text(encoding="utf-8")


def example(name: str) -> str:
    (found,) = re.findall(rf"<!-- example: {name} -->\n```\w+\n(.*?)```", TEXT, re.DOTALL)
    return str(found)


def dump(name: str) -> bytes:
    """The bytes of a hex dump; its remarks begin behind two spaces."""
    return b"".join(bytes.fromhex(line.split("  ")[0]) for line in example(name).splitlines())


def test_the_documented_publish_is_what_the_codec_reads_and_writes() -> None:
    properties = {"_topic": "events", "_key": "user-7", "colour": "red"}
    whole = dump("publish")
    assert read_frame(whole[4:]) == Frame(2, 1, 1762467269888, properties, b"Hello")
    assert write_frame(2, sequence=1, timestamp=1762467269888, properties=properties, body=b"Hello") == whole


def test_the_documented_reply_is_what_the_codec_reads_and_writes() -> None:
    properties = {"_partition": "0", "_offset": "41", "_id": "3f2a9c0d1e2b-0-41"}
    whole = dump("reply")
    assert read_frame(whole[4:]) == Frame(8, 1, 1762467269895, properties, b"")
    assert write_frame(8, sequence=1, timestamp=1762467269895, properties=properties) == whole


def test_the_documented_entries_are_what_the_codec_reads_and_writes() -> None:
    entries: list[native.Entry] = [(b"", b"a"), (b"_key=k\0", b"b")]
    assert read_entries(dump("entries"), 2) == entries
    assert write_entries(entries) == dump("entries")


def test_the_documented_commit_is_what_the_codec_reads_and_writes() -> None:
    acknowledged = b"_subscription=workers\0_partition=0\0_epoch=0\0_offsets=41\0"
    properties = {"_transaction": "1001/7", "_transactional_id": "__tailrace-1-0", "_count": "1"}
    whole = dump("commit")
    assert read_entries(read_frame(whole[4:]).body, 1) == [(acknowledged, b"")]
    body = write_entries([(acknowledged, b"")])
    assert write_frame(MessageType.TXN_COMMIT, sequence=9, properties=properties, body=body) == whole


def test_the_remarks_of_a_dump_say_what_the_bytes_are() -> None:
    """Counts and sequences in words, texts in letters."""
    for line in (example("publish") + example("reply") + example("entries") + example("commit")).splitlines():
        digits, remark = line.split("  ", 1)
        data, remark = bytes.fromhex(digits), remark.strip()
        if number := re.match(r"(?:type |sequence |timestamp )?(\d+)", remark):
            assert int.from_bytes(data, "big") == int(number[1]), line
        elif remark.startswith("no "):
            assert data == bytes(4), line
        else:
            assert data == remark.replace(" NUL", "\0").encode(), line


def test_every_type_is_documented_with_its_number() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", TEXT, re.MULTILINE)
    assert [(int(number), name) for number, name in rows] == [
        (int(member), member.name) for member in MessageType
    ]


def test_the_documented_limits_are_those_of_the_codec() -> None:
    section = TEXT[TEXT.index("## 8. Limits") : TEXT.index("## 9.")]
    limits = re.findall(r"([\d,]+)( KiB| MiB)? \|$", section, re.MULTILINE)
    unit = {"": 1, " KiB": 1024, " MiB": 1024 * 1024}
    assert [int(number.replace(",", "")) * unit[name] for number, name in limits] == [
        NativeConfig().frame_bytes_max,
        native.FRAME_BYTES_MAX,
        native.PROPERTIES_BYTES_MAX,
        native.PROPERTIES_MAX,
        native.RECORD_PROPERTIES_BYTES_MAX,
        native.RECORD_PROPERTIES_MAX,
        native.OFFSET_RANGES_MAX,
    ]


class Script(socketserver.BaseRequestHandler):
    """Answers the documented client as a broker with one topic and one message would."""

    def handle(self) -> None:
        reader = FrameReader(native.FRAME_BYTES_MAX)
        while data := self.request.recv(65536):
            reader.feed(data)
            while (frame := reader.next_frame()) is not None:
                self.request.sendall(self.answer(frame))

    def answer(self, frame: Frame) -> bytes:
        server = self.server
        assert isinstance(server, Server)
        server.asked.append(frame)
        properties: dict[str, str] = {}
        before = b""
        if frame.type == MessageType.PUBLISH:
            server.body = bytes(frame.body)
            properties = {"_partition": "0", "_offset": "41", "_id": "abc-0-41"}
        elif frame.type == MessageType.PULL:
            prefix = write_data_prefix(subscription="readers", topic="events", partition=0, epoch=6)
            before = write_data(
                prefix,
                offset=41,
                timestamp=1,
                count=1,
                id_prefix="abc-0-",
                key=None,
                value=server.body,
                headers=(),
                pull=frame.sequence,
            )
            properties = {"_count": "1"}
        elif frame.type == MessageType.ACK:
            properties = {"_count": "1"}
        return before + write_frame(MessageType.ACK, sequence=frame.sequence, properties=properties)


class Server(socketserver.TCPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Script)
        self.asked: list[Frame] = []
        self.body = b""


@contextmanager
def scripted_server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_the_documented_client_runs() -> None:
    code = example("client")
    assert code.count('("localhost", 9999)') == 1
    with scripted_server() as server:
        code = code.replace('("localhost", 9999)', repr(server.server_address))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "published abc-0-41",
        "created True",
        "received Hello, World! and 1 in all",
        "acknowledged 1",
    ]
    assert [(frame.type, frame.sequence) for frame in server.asked] == [(2, 1), (3, 2), (33, 3), (8, 4)]
    assert server.asked[-1].properties == {
        "_subscription": "readers",
        "_partition": "0",
        "_epoch": "6",
        "_offsets": "41",
    }


def test_the_documented_client_has_twenty_lines_or_a_few_more() -> None:
    assert len([line for line in example("client").splitlines() if line.strip()]) <= 25
