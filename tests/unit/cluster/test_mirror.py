"""The image of a store: it follows the store, commits share a write, and a full disk refuses no commit."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tailrace.cluster import MemoryStore, MirroredStore, Rows, mirror
from tailrace.cluster.image_file import IMAGE, PREVIOUS, load, load_newest, read_image, save, write_image
from tailrace.cluster.replacement import replace
from tailrace.cluster.store import METADATA, Entry
from tailrace.model import StorageError

CLUSTER = '{"format":1,"id":"one"}'


def use(directory: Path, store: MemoryStore, work: Callable[[MirroredStore], Awaitable[None]]) -> None:
    async def scenario() -> None:
        mirrored = MirroredStore(store, directory)
        try:
            await work(mirrored)
        finally:
            await mirrored.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


async def put(mirrored: MirroredStore) -> None:
    await mirrored.commit(checks={}, puts={"cluster": CLUSTER, "a": '"ü"', "b": "[1,2]"})
    await mirrored.commit(checks={}, puts={"a": "{}"}, deletes=["b"])


def test_a_store_that_is_closed_leaves_its_whole_content(tmp_path: Path) -> None:
    store = MemoryStore()
    use(tmp_path, store, put)
    assert load(tmp_path, IMAGE) == asyncio.run(store.read())


def test_commits_of_one_moment_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(mirror, "save", lambda _, data: written.append(data))

    async def work(mirrored: MirroredStore) -> None:
        for number in range(50):
            await mirrored.commit(checks={}, puts={"cluster": CLUSTER, "a": str(number)})

    use(tmp_path, MemoryStore(), work)
    assert len(written) < 10
    newest = read_image(written[-1])
    assert newest is not None and newest.entries["a"] == Entry("49", 50)


def test_a_disk_that_refuses_the_image_refuses_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = MemoryStore()
    with monkeypatch.context() as patched:
        patched.setattr(mirror, "save", full)
        use(tmp_path, store, put)
    assert "No space left" in caplog.text and not (tmp_path / IMAGE).exists()
    use(tmp_path, store, put)
    assert load(tmp_path, IMAGE) == asyncio.run(store.read())


def test_a_damaged_image_does_not_replace_the_one_before_it(tmp_path: Path) -> None:
    store = MemoryStore()
    use(tmp_path, store, put)
    use(tmp_path, store, put)
    before = (tmp_path / PREVIOUS).read_bytes()
    (tmp_path / IMAGE).write_bytes(b"{}")
    assert load_newest(tmp_path) == (PREVIOUS, read_image(before))
    use(tmp_path, store, put)
    assert (tmp_path / PREVIOUS).read_bytes() == before
    assert load(tmp_path, IMAGE) == asyncio.run(store.read())


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (Rows(), "missing or empty"),
        (Rows(revision=9, entries={"cluster": Entry('{"format":1,"id":"two"}', 9)}), "of cluster two"),
        (Rows(revision=1, entries={"cluster": Entry(CLUSTER, 1)}), "the later one 2"),
    ],
)
def test_a_store_that_is_not_the_one_of_the_image_is_refused(tmp_path: Path, rows: Rows, reason: str) -> None:
    (tmp_path / IMAGE).write_bytes(write_image(Rows(revision=2, entries={"cluster": Entry(CLUSTER, 1)})))
    with pytest.raises(StorageError, match=f"{reason}.*rebuild-metadata {tmp_path}"):
        mirror.check_not_older(
            rows, Rows(revision=2, entries={"cluster": Entry(CLUSTER, 1)}), directory=tmp_path
        )

    class Given(MemoryStore):
        async def read(self, prefix: str = "") -> Rows:
            return rows

    async def work(mirrored: MirroredStore) -> None:
        with pytest.raises(StorageError, match=reason):
            await mirrored.commit(checks={}, puts={"a": "1"})

    use(tmp_path, Given(), work)


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", write_image(Rows(revision=1))[:-1], write_image(Rows()).replace(b"1", b"2")],
)
def test_a_file_that_is_no_image_is_none(content: bytes) -> None:
    assert read_image(content) is None


def test_an_image_and_a_replaced_database_are_synced_before_they_get_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may keep a name and lose what was written to the file, if that was not synced."""
    calls: list[str] = []
    fsync, put, rename = os.fsync, os.replace, os.rename

    def synced(descriptor: int) -> None:
        calls.append(f"sync {os.fstat(descriptor).st_ino}")
        fsync(descriptor)

    def named(move: Callable[[str, str], None]) -> Callable[[str, str], None]:
        def noted(source: str, target: str) -> None:
            calls.append(f"name {os.stat(source).st_ino} {Path(target).name}")
            move(source, target)

        return noted

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named(put))
    monkeypatch.setattr(os, "rename", named(rename))
    save(tmp_path, write_image(Rows()))
    path = str(tmp_path / METADATA)
    replace(path, Rows(), kept=path)
    for file in (IMAGE, METADATA):
        inode = (tmp_path / file).stat().st_ino
        first_name = next(n for n, call in enumerate(calls) if call.startswith(f"name {inode} "))
        assert f"sync {inode}" in calls[:first_name], file
