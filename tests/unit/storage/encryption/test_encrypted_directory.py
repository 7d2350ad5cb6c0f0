"""A data directory of the real engine, encrypted: what a thief finds, and what damage comes to."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import BrokerError, Epoch, LogDamaged, Offset, PartitionId, StorageError
from tailrace.records import build_batch, crc32c, iter_batches, read_batch
from tailrace.security.keys import KeyEncryptionKey
from tailrace.storage import LogConfig
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.keys_file import KEYS, KEYS_COPY
from tailrace.storage.encryption.layout import is_encrypted
from tailrace.storage.encryption.rotation import rotate_directory
from tailrace.storage.encryption.stored_batch import DataKey
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.inspection import verify_directory
from tailrace.storage.segment.rewriting import is_before, is_plain, list_segments, rewrite_directory

KEY, NEW, OTHER = (KeyEncryptionKey(bytes([number]) * 32) for number in (1, 2, 3))
ENCRYPTED = Encryption(keys=(KEY,))
FIRST, SECOND = (PartitionId(UUID(int=7), number) for number in (0, 1))
SMALL = DirectoryConfig(
    free_bytes_min=0,
    tail_bytes_max=0,
    apply_bytes=1,
    inline_bytes_max=2000,
    journal_file_bytes=1 << 20,
    journal_bytes_max=3 << 20,
)
LOG = LogConfig(segment_bytes=4000, index_interval_bytes=200)
SECRET = b"known plaintext"
COUNT = 30


def run(
    path: Path, work: Callable[[SegmentStorage], Awaitable[None]], encryption: Encryption | None = ENCRYPTED
) -> None:
    async def body() -> None:
        storage = await SegmentStorage.open(path, config=SMALL, encryption=encryption)
        try:
            await work(storage)
        finally:
            await storage.close()

    asyncio.run(body())


async def fill(storage: SegmentStorage, partition_id: PartitionId = FIRST, count: int = COUNT) -> SegmentLog:
    """Small batches that go into the journal, and some that are written by reference."""
    log = storage.get(partition_id) or await storage.create(partition_id, LOG)
    storage.configure(partition_id, LOG)
    for number in range(count):
        value = SECRET + b" %d " % number * (300 if number % 10 == 9 else 1)
        batch = read_batch(build_batch([(1000 + number, b"secret key", value, ())]))
        log.append(batch, leader_epoch=Epoch(1))
        if number % 3 == 0:
            await log.wait_durable(log.end_offset)
    await log.wait_durable(log.end_offset)
    return log


async def read_all(storage: SegmentStorage, partition_id: PartitionId = FIRST) -> list[bytes]:
    log = storage.get(partition_id)
    assert log is not None
    place, found = log.start_offset, []
    while place < log.end_offset:
        piece = await log.read(place, bytes_max=3000, up_to=log.end_offset)
        data = await piece.load()
        assert len(data) == piece.size
        found += [bytes(batch.data) for batch in iter_batches(data)]
        place = piece.next_offset
    return found


def make(path: Path, encryption: Encryption | None = ENCRYPTED, count: int = COUNT) -> list[bytes]:
    found: list[bytes] = []

    async def work(storage: SegmentStorage) -> None:
        await fill(storage, count=count)
        found.extend(await read_all(storage))

    run(path, work, encryption)
    return found


def check(path: Path, expected: list[bytes], encryption: Encryption | None = ENCRYPTED) -> None:
    async def work(storage: SegmentStorage) -> None:
        assert await read_all(storage) == expected

    run(path, work, encryption)


def digest(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): sha256(each.read_bytes()).digest()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != "LOCK"
    }


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*-*-*/*.log"))


# ---- what a thief finds


def test_no_file_holds_known_plaintext(tmp_path: Path) -> None:
    async def work(storage: SegmentStorage) -> None:
        await fill(storage)
        await storage.checkpoint()
        await fill(storage, count=7)  # in the journal alone

    run(tmp_path, work)
    contents = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    assert len(contents) > 10
    for needle in (SECRET, b"secret key"):
        assert not [str(path) for path, data in contents.items() if needle in data]
    assert all(is_encrypted(batch) for path in logs(tmp_path) for batch in iter_batches(contents[path]))


def test_a_plain_directory_would_show_it(tmp_path: Path) -> None:
    make(tmp_path, None)
    assert any(SECRET in path.read_bytes() for path in logs(tmp_path))


def test_readers_get_the_bytes_that_were_produced_also_after_a_start(tmp_path: Path) -> None:
    found = make(tmp_path)
    assert len(found) == COUNT and all(SECRET in each for each in found)
    check(tmp_path, found)


def test_a_large_batch_and_reads_from_the_middle(tmp_path: Path) -> None:
    async def work(storage: SegmentStorage) -> None:
        log = await fill(storage)
        await storage.checkpoint()
        for offset in range(log.end_offset):
            piece = await log.read(Offset(offset), bytes_max=1, up_to=log.end_offset)
            batches = list(iter_batches(await piece.load()))
            assert batches[0].base_offset == offset
            found = await log.find_timestamp(1000 + offset, up_to=log.end_offset)
            assert found is not None and found.offset == offset

    run(tmp_path, work)


# ---- keys


@pytest.mark.parametrize("encryption", [None, Encryption(keys=(OTHER,))], ids=["no key", "a wrong key"])
def test_without_its_key_a_directory_does_not_open_and_stays_as_it_is(
    tmp_path: Path, encryption: Encryption | None
) -> None:
    make(tmp_path)
    before = digest(tmp_path)
    with pytest.raises(StorageError, match=KEY.key_id):
        check(tmp_path, [], encryption)
    assert digest(tmp_path) == before


def test_lost_keys_stop_the_start(tmp_path: Path) -> None:
    make(tmp_path)
    for name in (KEYS, KEYS_COPY):
        (tmp_path / name).unlink()
    for encryption in (ENCRYPTED, None):
        with pytest.raises(StorageError, match=r"KEYS.* is missing"):
            check(tmp_path, [], encryption)
    assert not (tmp_path / KEYS).exists()  # new ones would hide that they were lost


def test_an_older_build_refuses_the_directory(tmp_path: Path) -> None:
    make(tmp_path)
    assert (tmp_path / "CHECKPOINT").read_bytes()[:8] == b"TRCHECK2"
    plain = tmp_path / "plain"
    make(plain, None)
    assert (plain / "CHECKPOINT").read_bytes()[:8] == b"TRCHECK1"


def test_rotation_needs_both_keys_once_and_then_the_new_one(tmp_path: Path) -> None:
    found = make(tmp_path)
    both = Encryption(keys=(NEW, KEY))
    planned = asyncio.run(rotate_directory(tmp_path, both, dry_run=True))
    check(tmp_path, found)
    done = asyncio.run(rotate_directory(tmp_path, both, dry_run=False))
    assert planned is not None and done is not None
    assert (done.before, done.after) == (KEY.key_id, NEW.key_id)
    with pytest.raises(StorageError, match=NEW.key_id):
        check(tmp_path, found)
    check(tmp_path, found, Encryption(keys=(NEW,)))


def test_a_start_with_both_keys_rotates(tmp_path: Path) -> None:
    found = make(tmp_path)
    check(tmp_path, found, Encryption(keys=(NEW, KEY)))
    check(tmp_path, found, Encryption(keys=(NEW,)))


def test_rotation_during_writes(tmp_path: Path) -> None:
    async def work(storage: SegmentStorage) -> None:
        keyring = storage.directory.keyring
        assert keyring is not None
        writing = [asyncio.ensure_future(fill(storage, each)) for each in (FIRST, SECOND)]
        for key in (NEW, KEY, NEW):
            await asyncio.sleep(0)
            await keyring.rewrap(key)
        await asyncio.gather(*writing)

    run(tmp_path, work)

    async def look(storage: SegmentStorage) -> None:
        for each in (FIRST, SECOND):
            assert len(await read_all(storage, each)) == COUNT

    run(tmp_path, look, Encryption(keys=(NEW,)))


# ---- damage


def test_any_flipped_bit_of_a_segment_is_an_error_and_never_data(tmp_path: Path) -> None:
    found = make(tmp_path, count=4)
    path = logs(tmp_path)[0]
    whole = path.read_bytes()

    async def work(storage: SegmentStorage) -> None:
        for position in range(0, len(whole), 3):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 16]) + whole[position + 1 :])
            with pytest.raises(LogDamaged):
                assert await read_all(storage) == found
        path.write_bytes(whole)
        assert await read_all(storage) == found

    run(tmp_path, lambda storage: _seal_and(storage, work))


async def _seal_and(storage: SegmentStorage, work: Callable[[SegmentStorage], Awaitable[None]]) -> None:
    """Have what was written in a closed span, and out of memory."""
    log = storage.get(FIRST)
    assert log is not None
    segment = log.applied_segment
    assert segment is not None and segment.index is not None
    segment.index.close_open(log.end_offset)
    log.evict_tail(1 << 30)
    await work(storage)


def test_ciphertext_that_was_changed_with_its_checksums_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    path = logs(tmp_path)[0]
    data = bytearray(path.read_bytes())
    first = read_batch(data)
    data[first.size - 1] ^= 1
    data[17:21] = crc32c(data[21 : first.size]).to_bytes(4, "big")
    path.write_bytes(data)
    for suffix in ("index", "timeindex"):
        path.with_suffix(f".{suffix}").unlink()  # made again, with right checksums of wrong bytes
    with pytest.raises(LogDamaged, match="is not what key"):
        check(tmp_path, [])


def swap_two_segments(tmp_path: Path) -> None:
    """Two logs, and the first segment of each in the place of the other's, with its index."""

    async def work(storage: SegmentStorage) -> None:
        for each in (FIRST, SECOND):
            await fill(storage, each)

    run(tmp_path, work)
    one, other = (next(iter(sorted(each.glob("*.log")))) for each in sorted(tmp_path.glob("*-[01]-*")))
    for suffix in (".log", ".index", ".timeindex"):
        aside = tmp_path / "aside"
        shutil.move(one.with_suffix(suffix), aside)
        shutil.move(other.with_suffix(suffix), one.with_suffix(suffix))
        shutil.move(aside, other.with_suffix(suffix))


def test_two_files_that_were_exchanged_are_noticed(tmp_path: Path) -> None:
    swap_two_segments(tmp_path)
    with pytest.raises(LogDamaged, match="belongs to another segment"):
        check(tmp_path, [])


def test_without_the_place_in_the_aad_they_would_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with keys that do not know their segment: the AAD alone is left, and is taken out next."""
    from tailrace.storage.encryption.keyring import Keyring

    def any_key(self: Keyring, key_id: int, life: int, base: int) -> DataKey:
        secret = self._secret(self._records[key_id])
        return DataKey(secret, key_id=key_id, directory_id=self.directory_id, life=life, base=base)

    monkeypatch.setattr(Keyring, "key", any_key)
    swap_two_segments(tmp_path)
    with pytest.raises(LogDamaged, match="is not what key"):
        check(tmp_path, [])
    real = DataKey.__init__

    def nowhere(
        self: DataKey, secret: bytes, *, key_id: int, directory_id: bytes, life: int, base: int
    ) -> None:
        real(self, secret, key_id=key_id, directory_id=directory_id, life=0, base=0)

    monkeypatch.setattr(DataKey, "__init__", nowhere)
    again = tmp_path / "again"
    again.mkdir()
    swap_two_segments(again)

    async def work(storage: SegmentStorage) -> None:
        assert len(await read_all(storage)) == COUNT  # served, out of the other log

    run(again, work)


def test_two_batches_that_were_exchanged_are_noticed(tmp_path: Path) -> None:
    make(tmp_path)
    path = logs(tmp_path)[0]
    data = path.read_bytes()
    first = read_batch(data)
    second = read_batch(data, first.size)
    assert first.size == second.size
    path.write_bytes(data[first.size : 2 * first.size] + data[: first.size] + data[2 * first.size :])
    for suffix in ("index", "timeindex"):
        path.with_suffix(f".{suffix}").unlink()
    with pytest.raises(BrokerError):
        check(tmp_path, [])


# ---- directories that were plain, and are again


def test_a_plain_directory_is_encrypted_from_its_next_segments_on(tmp_path: Path) -> None:
    before = make(tmp_path, None)
    plain = {path: path.read_bytes() for path in logs(tmp_path)}
    after = make(tmp_path)
    assert after[: len(before)] == before and len(after) == 2 * COUNT
    assert all(path.read_bytes()[: len(data)] == data for path, data in plain.items())
    kinds = {each.path: each.encrypted for each in list_segments(tmp_path)}
    assert set(kinds.values()) == {False, True}
    check(tmp_path, after)


def test_encryption_that_is_turned_off_leaves_everything_readable(tmp_path: Path) -> None:
    make(tmp_path)
    off = Encryption(keys=(KEY,), enabled=False)
    found = make(tmp_path, off)
    assert len(found) == 2 * COUNT
    assert [each.encrypted for each in list_segments(tmp_path)][-1] is False
    check(tmp_path, found, off)
    check(tmp_path, found)


def test_what_is_plain_is_encrypted_on_demand(tmp_path: Path) -> None:
    make(tmp_path, None)
    found = make(tmp_path)
    done, left = asyncio.run(rewrite_directory(tmp_path, ENCRYPTED, is_plain, advance=lambda _: None))
    assert done and not left
    assert all(each.encrypted for each in list_segments(tmp_path))
    assert not any(SECRET in path.read_bytes() for path in logs(tmp_path))
    check(tmp_path, found)
    assert asyncio.run(rewrite_directory(tmp_path, ENCRYPTED, is_plain, advance=lambda _: None)) == ([], [])


def test_segments_get_new_data_keys(tmp_path: Path) -> None:
    found = make(tmp_path)
    before = {each.path: each.key_id for each in list_segments(tmp_path)}
    limit = max(before.values()) + 1
    done, left = asyncio.run(rewrite_directory(tmp_path, ENCRYPTED, is_before(limit), advance=lambda _: None))
    after = {each.path: each.key_id for each in list_segments(tmp_path)}
    assert done and len(left) == 1  # the newest one
    assert all(after[path] >= limit for path in done)
    check(tmp_path, found)


# ---- looking without the key


def test_a_verification_needs_no_key_and_finds_damage(tmp_path: Path) -> None:
    make(tmp_path)
    assert not verify_directory(tmp_path).problems
    path = logs(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    assert any(each.path.endswith(path.name) for each in verify_directory(tmp_path).problems)
