"""`tailrace backup` and `tailrace restore` on data directories that nobody serves, and what they refuse.

What happens beside a running broker is tested in tests/crash/test_backup.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tailrace.broker.ports import PartitionRecord, TopicRecord
from tailrace.cli.main import main
from tailrace.cluster import METADATA, MirroredStore, SqliteStore, StoredMetadata
from tailrace.cluster.reading import read_metadata_file
from tailrace.cluster.record import read_image, read_producer_ids
from tailrace.model import BrokerId, Epoch, PartitionId
from tailrace.records import build_batch, read_batch
from tailrace.runtime import DirectoryLock
from tailrace.storage import LogConfig
from tailrace.storage.backup import copying, making
from tailrace.storage.segment import SegmentStorage

PARTITION = PartitionId(UUID(int=7), 0)

Tailrace = Callable[..., Any]


@pytest.fixture
def tailrace(capsys: pytest.CaptureFixture[str]) -> Tailrace:
    def call(*arguments: object, code: int = 0) -> Any:
        found = main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert found == code, printed.out + printed.err
        return json.loads(printed.out) if "json" in arguments and not code else printed.out + printed.err

    return call


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a few sealed segments, and the metadata of their topic."""
    path = tmp_path / "data"
    grow(path, 40)

    async def store() -> None:
        metadata = StoredMetadata(MirroredStore(SqliteStore(path / METADATA), path))
        node = BrokerId(1)
        await metadata.begin(node)
        partition = PartitionRecord(
            index=0, leader=node, leader_epoch=Epoch(4), replicas=(node,), isr=(node,)
        )
        await metadata.create_topic(
            TopicRecord(id=PARTITION.topic_id, name="orders", partitions=(partition,))
        )
        await metadata.close()

    asyncio.run(store())
    return path


def grow(path: Path, count: int) -> None:
    async def write() -> None:
        storage = await SegmentStorage.open(path)
        log = storage.get(PARTITION) or await storage.create(PARTITION, LogConfig())
        storage.configure(PARTITION, LogConfig(segment_bytes=4000))
        for number in range(count):
            log.append(read_batch(build_batch([(number, None, b"x" * 500, ())])), leader_epoch=Epoch(0))
        await storage.close()

    asyncio.run(write())


def logs(generation: Path) -> list[Path]:
    return sorted(generation.glob("data/*/*.log"))


def test_an_unchanged_file_is_a_link_to_the_backup_before_and_never_to_the_data(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    first = tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json")
    grow(data, 10)
    second = tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json")
    assert first["linked_files"] == 0 and second["linked_bytes"] > 0
    one, two = logs(Path(first["backup"])), logs(Path(second["backup"]))
    assert os.path.samefile(one[0], two[0]) and not os.path.samefile(one[-1], two[len(one) - 1])
    served = {each.stat().st_ino for each in data.rglob("*") if each.is_file()}
    assert not served & {each.stat().st_ino for each in (tmp_path / "b").rglob("*") if each.is_file()}
    assert all(each.stat().st_mode & 0o222 == 0 for each in two)


def test_copy_shares_nothing_with_the_backup_before(tailrace: Tailrace, data: Path, tmp_path: Path) -> None:
    tailrace("backup", tmp_path / "b", "--data-dir", data)
    row = tailrace("backup", tmp_path / "b", "--data-dir", data, "--copy", "-o", "json")
    assert row["linked_files"] == 0 and row["copied_bytes"] == row["bytes"]
    assert all(each.stat().st_nlink == 1 for each in logs(Path(row["backup"])))


def test_a_file_replaced_by_one_of_its_size_is_copied_again(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    tailrace("backup", tmp_path / "b", "--data-dir", data)
    victim = sorted(data.glob("*/*.timeindex"))[0]
    content = victim.read_bytes()
    os.replace(_written(victim.with_suffix(".other"), content), victim)
    row = tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json")
    again = Path(row["backup"]) / "data" / victim.relative_to(data)
    assert again.stat().st_nlink == 1 and again.read_bytes() == content


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_dry_run_writes_nothing(tailrace: Tailrace, data: Path, tmp_path: Path) -> None:
    assert "would copy" in tailrace("backup", tmp_path / "b", "--data-dir", data, "--dry-run")
    assert not (tmp_path / "b").exists()


def test_keep_removes_the_oldest_whole_backups(tailrace: Tailrace, data: Path, tmp_path: Path) -> None:
    rows = [tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json") for _ in range(3)]
    broken = Path(rows[0]["backup"]) / "MANIFEST.json"
    broken.chmod(0o644)
    broken.write_text(broken.read_text().replace("partitions", "partitionS", 1))
    last = tailrace("backup", tmp_path / "b", "--data-dir", data, "--keep", 2, "-o", "json")
    assert last["removed"] == [Path(rows[1]["backup"]).name]
    names = [each["name"] for each in tailrace("backup", "list", tmp_path / "b", "-o", "json")]
    assert names == [Path(each["backup"]).name for each in (rows[0], rows[2], last)]
    assert (tmp_path / "b" / "latest").resolve() == Path(last["backup"])
    tailrace("backup", "verify", tmp_path / "b")  # the links of removed backups are files of their own


def test_damage_in_the_data_is_told_kept_and_stops_the_removal_of_older_backups(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    tailrace("backup", tmp_path / "b", "--data-dir", data)
    flip(sorted(data.glob("*/*.log"))[0])
    said = tailrace("backup", tmp_path / "b", "--data-dir", data, "--keep", 1, code=1)
    assert "1 problem in the data that was backed up" in said and "no older backup was removed" in said
    states = [each["state"] for each in tailrace("backup", "list", tmp_path / "b", "-o", "json")]
    assert states == ["whole", "1 problems in the data"]


def flip(path: Path) -> None:
    """Change one bit of what a file holds."""
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("pattern", ["CHECKPOINT", "*/*.log", "*/*.index", "journal/*.journal"])
def test_one_flipped_bit_is_found_by_verify_and_refused_by_restore(
    tailrace: Tailrace, data: Path, tmp_path: Path, pattern: str
) -> None:
    row = tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json")
    victim = sorted(Path(row["backup"], "data").glob(pattern))[0]
    flip(victim)
    assert f"{victim}: it is not what was backed up" in tailrace("backup", "verify", tmp_path / "b", code=1)
    said = tailrace("restore", tmp_path / "b", "--data-dir", tmp_path / "r", code=1)
    assert "is damaged and was not restored" in said and not (tmp_path / "r").exists()


def test_a_missing_a_short_and_a_foreign_file_are_found(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    row = tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json")
    first, second, *_ = logs(Path(row["backup"]))
    first.unlink()
    second.chmod(0o644)
    os.truncate(second, 10)
    foreign = _written(first.with_name("foreign"), b"")
    said = tailrace("backup", "verify", tmp_path / "b", code=1)
    for path, what in ((first, "No such file"), (second, "it has 10 bytes"), (foreign, "does not know it")):
        assert f"{path}: {what}" in said or f"{path}: the manifest {what}" in said


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a//b", "", "a/../b", "."])
def test_a_manifest_that_points_outside_is_not_believed(name: str) -> None:
    from tailrace.storage.backup.manifest import FileEntry, Manifest, ManifestError, read_manifest
    from tailrace.storage.backup.manifest import write_manifest as write

    entry = FileEntry(name, 1, "", (1, 1))
    manifest = Manifest("2026-01-01T00:00:00Z", "d", "", "0", 1, [entry], [])
    with pytest.raises(ManifestError, match="outside"):
        read_manifest(write(manifest))


def test_an_interrupted_backup_is_resumed(
    tailrace: Tailrace, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _failing_after(3)
    with monkeypatch.context() as patch:
        patch.setattr(making, "copy_file", lambda *a, **o: (next(calls), copying.copy_file(*a, **o))[1])
        tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)
    assert tailrace("backup", "list", tmp_path / "b", "-o", "json")[0]["name"] == "partial"
    copied: list[Path] = []

    def counted(source: Path, *rest: Any, **options: Any) -> str:
        copied.append(source)
        return copying.copy_file(source, *rest, **options)

    monkeypatch.setattr(making, "copy_file", counted)
    row = tailrace("backup", tmp_path / "b", "--data-dir", data, "-o", "json")
    assert len(copied) == row["files"] - 3
    tailrace("backup", "verify", tmp_path / "b")
    assert set(os.listdir(tmp_path / "b")) == {"LOCK", Path(row["backup"]).name, "latest"}


def _failing_after(count: int) -> Iterator[None]:
    for _ in range(count):
        yield
    raise OSError(28, "No space left on device")


def test_what_cannot_be_backed_up_is_refused_with_the_way_out(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    inside = tailrace("backup", data / "b", "--data-dir", data, code=2)
    assert "one in the other" in inside
    assert "no data directory" in tailrace("backup", tmp_path / "b", "--data-dir", tmp_path / "no", code=3)
    (tmp_path / "empty").mkdir()
    assert "no log is kept" in tailrace("backup", tmp_path / "b", "--data-dir", tmp_path / "empty", code=1)
    grow(tmp_path / "other", 1)
    assert "is a data directory" in tailrace("backup", tmp_path / "other", "--data-dir", data, code=1)
    assert "is no rate" in tailrace("backup", tmp_path / "b", "--data-dir", data, "--rate", "fast", code=2)
    lock = DirectoryLock(os.fspath(data))
    try:
        assert "--http HOST:PORT" in tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)
        (data / "tailrace.ports.json").write_text('{"pid": 1, "kafka": 2, "native": 3, "http": null}')
        assert "no HTTP listener" in tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)
    finally:
        lock.release()


def test_two_backups_do_not_write_to_one_directory(tailrace: Tailrace, data: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    lock = DirectoryLock(os.fspath(tmp_path / "b"))
    try:
        assert "another backup writes to" in tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)
    finally:
        lock.release()


def test_restore_takes_an_empty_directory_that_nobody_uses(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    tailrace("backup", tmp_path / "b", "--data-dir", data)
    target = tmp_path / "r"
    assert "would restore" in tailrace("restore", tmp_path / "b", "--data-dir", target, "--dry-run")
    assert not target.exists()
    assert "is not empty" in tailrace("restore", tmp_path / "b", "--data-dir", data, code=1)
    target.mkdir()
    lock = DirectoryLock(os.fspath(target))
    try:
        assert "in use" in tailrace("restore", tmp_path / "b", "--data-dir", target, code=1)
    finally:
        lock.release()
    assert "out of range" in tailrace("restore", tmp_path / "b", "--data-dir", target)
    assert "all as it was written" in tailrace("log", "verify", target)
    assert "is not empty" in tailrace("restore", tmp_path / "b", "--data-dir", target, code=1)
    assert "no whole backup" in tailrace("restore", tmp_path, "--data-dir", tmp_path / "s", code=1)
    for command in (
        ("restore", tmp_path / "no", "--data-dir", tmp_path / "s"),
        ("backup", "list", tmp_path / "no"),
    ):
        assert "tailrace backup" in tailrace(*command, code=3)


def test_a_restored_broker_outruns_the_one_that_was_backed_up(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    """Its epochs and producer ids are greater, and its topics the same."""
    tailrace("backup", tmp_path / "b", "--data-dir", data)
    tailrace("restore", tmp_path / "b", "--data-dir", tmp_path / "r")
    before, after = (read_metadata_file(each / METADATA).rows for each in (data, tmp_path / "r"))
    old, new = (read_image(each.entries) for each in (before, after))
    assert new.cluster_id == old.cluster_id
    assert [(each.id, each.name) for each in new.topics] == [(each.id, each.name) for each in old.topics]
    assert new.topics[0].partitions[0].leader_epoch > old.topics[0].partitions[0].leader_epoch
    assert read_producer_ids(after.entries) > read_producer_ids(before.entries)
    assert after.revision > before.revision


def test_damaged_metadata_is_told_and_restored_as_it_is(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    (data / METADATA).write_bytes(b"not a database" * 100)
    assert "metadata.sqlite" in tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)
    assert "as it was backed up" in tailrace("restore", tmp_path / "b", "--data-dir", tmp_path / "r")
    assert (tmp_path / "r" / METADATA).read_bytes() == (data / METADATA).read_bytes()


def test_a_damaged_checkpoint_with_a_whole_copy_is_backed_up(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    flip(data / "CHECKPOINT")
    said = tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)
    assert "CHECKPOINT" in said and "The backup holds it as it is" in said
    flip(data / "CHECKPOINT.copy")
    assert "is damaged" in tailrace("backup", tmp_path / "b", "--data-dir", data, code=1)


@contextmanager
def broker_that_says(answers: list[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """An HTTP listener with these answers, one after the other; the last one again and again."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_POST = do_PUT = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def held(path: Path, **facts: Any) -> tuple[int, dict[str, Any]]:
    view = {"cut": "cut-1", "path": str(path), "cluster_id": "c", "lease_s": 600.0, "spoiled": False}
    return (200 if facts else 201), {**view, **facts}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (held(Path("/"), spoiled=True), "truncated while it was copied"),
        ((404, {"error": {"message": "its lease has ended"}}), "its lease has ended"),
    ],
)
def test_files_that_the_broker_let_go_before_the_end_make_no_backup(
    tailrace: Tailrace, data: Path, tmp_path: Path, answer: tuple[int, dict[str, Any]], words: str
) -> None:
    with broker_that_says([held(data), answer]) as address:
        said = tailrace("backup", tmp_path / "b", "--data-dir", data, "--http", address, code=1)
    assert words in said and "Run it again" in said
    assert [each["name"] for each in tailrace("backup", "list", tmp_path / "b", "-o", "json")] == ["partial"]


@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [
        (held(Path("/nowhere/cut-1")), "Run the backup on the broker's machine", 3),
        ((403, {"error": {"message": "may not alter"}}), "may not alter", 4),
        ((404, {}), "an older version", 1),
        ((503, {"error": {"message": "4 backups are under way"}}), "4 backups are under way", 1),
        ((500, {}), "HTTP status 500", 1),
    ],
)
def test_a_broker_that_refuses_is_quoted(
    tailrace: Tailrace, data: Path, tmp_path: Path, answer: tuple[int, dict[str, Any]], words: str, code: int
) -> None:
    with broker_that_says([answer]) as address:
        said = tailrace("backup", tmp_path / "b", "--data-dir", data, "--http", address, code=code)
    assert words in said and not (tmp_path / "b").exists()


def test_nobody_at_the_address_is_an_error_with_the_way_out(
    tailrace: Tailrace, data: Path, tmp_path: Path
) -> None:
    said = tailrace("backup", tmp_path / "b", "--data-dir", data, "--http", "127.0.0.1:1", code=1)
    assert "does not answer" in said and "--http HOST:PORT" in said
    assert "is not HOST:PORT" in tailrace(
        "backup", tmp_path / "b", "--data-dir", data, "--http", "here:there", code=2
    )
