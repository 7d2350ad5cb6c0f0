"""What the curves send, to an embedded broker; and one tiny curve from the command line to the page."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.command import command
from bench.load import MB
from bench.measure import Durations
from bench.report import read_json
from bench.scaling import connections, consumers, groups, log_size, partitions
from bench.scaling.bed import Bed, wait_until
from bench.scaling.push import Line, push
from bench.server import TailraceServer
from click.testing import CliRunner

from tailrace.bench.wire import FixedReader, LoadError
from tailrace.bench.wire.kafka import batch_bytes
from tailrace.bench.wire.topic import admin, connect, read_exactly
from tailrace.records import read_batch

HELLO_REPLY = struct.pack(">ii", 4, 1)  # enough for who does not look into it
TINY_S = Durations(warm_s=0.0, seconds=0.5, client_s=0.0, latency_s=0.0)


class Embedded(TailraceServer):
    """A broker in this process, in the place of one of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(fsync="commit")
        self.port = port

    @property
    def pid(self) -> int:
        return os.getpid()


@pytest.fixture
def bed(address: tuple[str, int], tmp_path: Path) -> Bed:
    host, port = address
    made = Bed(Embedded(port), tmp_path, TINY_S)
    made.host = host
    return made


def make_topic(bed: Bed, name: str, *, count: int = 1) -> None:
    with admin(bed.host, bed.port) as client:
        client.create(name, partitions=count, configs={})


def test_producers_reach_every_partition(bed: Bed) -> None:
    make_topic(bed, "t", count=40)

    found = bed.drive(partitions.spread_lanes(bed, "t", 40))

    assert isinstance(found["count"], int) and found["count"] > 0
    assert bed.leads("t", 40) and not bed.leads("t", 41)


def test_idle_connections_are_as_many_as_were_asked_for(bed: Bed) -> None:
    opened, why = connections.open_idle(bed.host, bed.port, 50)
    for sock in opened:
        sock.close()

    assert (len(opened), why) == (50, "")


def test_a_bound_on_open_files_is_told_and_leaves_room(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    files = iter(range(40))

    def bounded(host: str, port: int) -> socket.socket:
        if next(files, None) is None:
            raise LoadError("too many open files")
        return connect(host, port)

    monkeypatch.setattr(connections, "connect", bounded)

    opened, why = connections.open_idle(bed.host, bed.port, 500)
    for sock in opened:
        sock.close()

    assert (len(opened), why) == (40 - 32, "too many open files")


def test_a_broker_that_closes_new_connections_bounds_them_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        port = listening.getsockname()[1]

        def refuse() -> None:
            for _ in range(40):
                sock, _peer = listening.accept()
                sock.sendall(HELLO_REPLY)
                answered.append(sock)
            listening.accept()[0].close()

        answered: list[socket.socket] = []
        peer = threading.Thread(target=refuse)
        peer.start()
        opened, why = connections.open_idle("127.0.0.1", port, 500)
        peer.join(60)
    for sock in (*opened, *answered):
        sock.close()

    assert len(opened) == 41 - 32 and "took no more than 40" in why


def test_a_record_is_delivered_to_everybody_who_waits(bed: Bed) -> None:
    found = consumers.deliver(bed, 3)

    assert isinstance(found["live_p99_ms"], float) and found["live_p99_ms"] > 0


def test_a_log_is_filled_found_by_time_and_read_back(bed: Bed) -> None:
    batch = batch_bytes(MB)
    records = read_batch(memoryview(batch)).last_offset_delta + 1
    make_topic(bed, "scaling-log-size")
    first_ms = time.time_ns() // 1_000_000 - 60_000  # an old log would be deleted

    assert log_size.fill(bed, batch, batches=6, first_ms=first_ms) > 0
    found = log_size.seek_times(bed, batches=6, records=records, first_ms=first_ms)
    with admin(bed.host, bed.port) as client, pytest.raises(LoadError, match="where 1 was due"):
        log_size.seek(client, first_ms, expected=1)

    assert set(found) == {"seek_ms", "seek_cold_ms"}
    assert log_size.read_cold(bed, records=records, batches=6) > 0


def test_dropping_pages_passes_over_directories_and_leaves_files_alone(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"kept")

    log_size.drop_pages(tmp_path)

    assert (tmp_path / "deep" / "file").read_bytes() == b"kept"


@pytest.mark.parametrize("count", [1, 40])
def test_groups_are_as_many_as_committed_and_their_positions_are_there(bed: Bed, count: int) -> None:
    make_topic(bed, "scaling-groups")
    names = groups.group_names(count)

    groups.create_groups(bed, names)

    assert groups.count_groups(bed) == count
    for name in names:
        groups.sample_reply(bed, groups.fetch_frame(name), groups.check_fetched)


def test_a_position_that_was_never_committed_is_no_good_answer(bed: Bed) -> None:
    make_topic(bed, "scaling-groups")

    with pytest.raises(LoadError, match="is not there"):
        groups.sample_reply(bed, groups.fetch_frame("nobody"), groups.check_fetched)


def test_a_refused_commit_is_no_good_answer(bed: Bed) -> None:
    with pytest.raises(LoadError, match="answered with error 3"):  # there is no such topic
        groups.sample_reply(bed, groups.commit_frame("g"), groups.check_committed)


# ---- push, against the other end of a socket pair


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def line(sock: socket.socket, *frames: bytes, in_flight: int = 1) -> Line:
    reader = FixedReader(reply_bytes=2, begins=b"ok")
    return Line(sock=sock, frames=iter(frames), reader=reader, in_flight=in_flight)


def test_a_push_ends_with_the_last_answer_and_closes(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"okok")

    assert push([line(ours, b"first,", b"second", in_flight=2)]) >= 0

    assert ours.fileno() == -1
    assert theirs.recv(100) == b"first,second"


def test_nothing_to_push_is_nothing_to_wait_for(pair: tuple[socket.socket, socket.socket]) -> None:
    push([line(pair[0])])

    assert pair[0].fileno() == -1


def test_a_frame_larger_than_the_socket_takes_leaves_in_pieces(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    frame = bytes(8_000_000)

    def answer() -> None:
        read_exactly(theirs, len(frame))
        theirs.sendall(b"ok")

    peer = threading.Thread(target=answer)
    peer.start()
    push([line(ours, frame)])
    peer.join(60)

    assert not peer.is_alive()


@pytest.mark.parametrize(
    ("replies", "why"), [(b"ok", "closed"), (b"no", "begins with"), (b"okok", "more replies")]
)
def test_a_push_that_is_not_answered_as_it_should_fails(
    pair: tuple[socket.socket, socket.socket], replies: bytes, why: str
) -> None:
    ours, theirs = pair
    theirs.sendall(replies)
    theirs.shutdown(socket.SHUT_WR)

    with pytest.raises(LoadError, match=why):
        push([line(ours, b"x", b"x")])

    assert ours.fileno() == -1


def test_a_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.scaling.bed._WAIT_S", 0.0)

    wait_until(lambda: True, what="nothing")
    with pytest.raises(LoadError, match="waited 0 s for rain"):
        wait_until(lambda: False, what="rain")


@pytest.mark.slow
def test_a_curve_from_the_command_line_has_points_and_leaves_nothing_behind(tmp_path: Path) -> None:
    out, place = tmp_path / "out", tmp_path / "place"
    place.mkdir()
    arguments = ["--quick", "--only", "scaling-groups,scaling-part", "--seconds", "0.3"]

    done = CliRunner().invoke(command, [*arguments, "--dir", str(place), "--out", str(out)])

    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in out.iterdir()) == [
        f"scaling-quick.{end}" for end in ("html", "json", "md")
    ]
    report = read_json(out / "scaling-quick.json")
    assert [row["name"] for row in report.scaling] == ["partitions", "groups"]
    for row in report.scaling:
        assert row["missing"] == []
        for point in row["points"]:  # type: ignore[attr-defined]
            assert {each["key"] for each in row["figures"]} <= set(point)  # type: ignore[attr-defined]
    assert report.servers == {} and report.samples == []
    assert "last / first" in done.output
    assert list(place.iterdir()) == []
