"""Only the owner may read metadata, with any umask: the database and what is beside it, images, copies."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.cluster import MirroredStore, Rows, SqliteStore, replacement
from tailrace.cluster.copying import write_copy
from tailrace.cluster.image_file import IMAGE, PREVIOUS
from tailrace.cluster.store import METADATA
from tailrace.storage.backup.copying import Pace, copy_file

OF_ALL = 0o666
CLUSTER = '{"format":1,"id":"one"}'


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in sorted(directory.iterdir())}


async def change(store: SqliteStore, directory: Path, *numbers: int) -> None:
    """A new start per number; the last one is left running."""
    for number in numbers:
        mirrored = MirroredStore(store, directory)
        await mirrored.commit(checks={}, puts={"cluster": CLUSTER, "a": str(number)})
        await mirrored.close()
        store = SqliteStore(directory / METADATA)


def test_every_file_of_the_metadata_is_for_its_owner_alone(tmp_path: Path) -> None:
    seen: dict[str, int] = {}

    async def scenario() -> None:
        await change(SqliteStore(tmp_path / METADATA), tmp_path, 1, 2)
        store = SqliteStore(tmp_path / METADATA)
        await store.commit(checks={}, puts={"a": "3"})
        seen.update(modes(tmp_path))
        await store.close()

    asyncio.run(scenario())
    assert {METADATA, METADATA + "-wal", METADATA + "-shm", IMAGE, PREVIOUS} <= seen.keys()
    assert set(seen.values()) == {0o600}


def test_files_that_an_earlier_version_left_to_the_umask_are_restricted(tmp_path: Path) -> None:
    asyncio.run(change(SqliteStore(tmp_path / METADATA), tmp_path, 1, 2))
    for each in tmp_path.iterdir():
        each.chmod(OF_ALL)
    asyncio.run(change(SqliteStore(tmp_path / METADATA), tmp_path, 3))
    assert modes(tmp_path) == {METADATA: 0o600, IMAGE: 0o600, PREVIOUS: 0o600}


def test_a_replaced_database_and_the_copy_of_the_old_one_too(tmp_path: Path) -> None:
    path = tmp_path / METADATA
    path.write_bytes(b"damaged")
    path.chmod(OF_ALL)
    replacement.replace(os.fspath(path), Rows(), kept=os.fspath(path) + ".damaged")
    assert modes(tmp_path) == {METADATA: 0o600, METADATA + ".damaged": 0o600}


def test_a_backup_and_what_is_restored_of_it_too(tmp_path: Path) -> None:
    """Files that others may read are readable in the copy as well."""
    source, backup, restored = (tmp_path / name for name in ("source", "backup", "restored"))
    for each in (source, backup, restored):
        each.mkdir()
    write_copy(source, Rows())
    (source / "0.log").write_bytes(b"records")
    for name in (METADATA, IMAGE, "0.log"):
        size = (source / name).stat().st_size
        copy_file(source / name, backup / name, size=size, pace=Pace(), advance=lambda _: None)
        copy_file(backup / name, restored / name, size=size, pace=Pace(), advance=lambda _: None, mode=0o644)
    assert modes(backup) == {METADATA: 0o400, IMAGE: 0o400, "0.log": 0o444}
    assert modes(restored) == {METADATA: 0o600, IMAGE: 0o600, "0.log": 0o644}
