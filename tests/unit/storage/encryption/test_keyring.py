"""The data keys of a directory, on a simulated disk: saved before they count, in two files, under one key."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from tests.unit.storage.encryption.test_stored_batch import make_batch

from tailrace.model import LogDamaged, StorageError
from tailrace.security.keys import KeyEncryptionKey, UnwrapError
from tailrace.storage.encryption.keyring import Keyring
from tailrace.storage.encryption.keys_file import HEADER_BYTES, KEYS, KEYS_COPY, RECORD_BYTES, read_keys
from tailrace.storage.encryption.stored_batch import BATCHES_MAX, NotAuthentic
from tailrace.testing.simulation import Crash, SimulatedDisk, SimulatedLoop

_T = TypeVar("_T")

OLD, NEW, OTHER = (KeyEncryptionKey(bytes([number]) * 32) for number in (1, 2, 3))


def run(work: Callable[[], Awaitable[_T]]) -> _T:
    async def body() -> _T:
        return await work()

    return SimulatedLoop().run(body())


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(5))


def wrapped_by(disk: SimulatedDisk, path: str) -> str:
    found = read_keys(disk.content(path))
    assert found is not None
    return found.header.wrapped_by


async def open_ring(disk: SimulatedDisk, *keys: KeyEncryptionKey) -> Keyring:
    ring = await Keyring.open(disk, keys or (OLD,), draw=random.Random(9).randbytes)
    await ring.rewrite()
    return ring


def test_a_key_that_was_saved_opens_what_it_encrypted(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        ring.cipher(3).encrypt(make_batch(), 0)
        await ring.save()
        assert not ring.unsaved
        disk.power_cut()

    run(scenario)

    async def again() -> None:
        ring = await open_ring(disk)
        assert len(ring) == 1

    run(again)


def test_a_key_is_not_used_again_after_a_start(disk: SimulatedDisk) -> None:
    async def life() -> int:
        ring = await open_ring(disk)
        key = ring.writer(3, 0)
        assert key.counter == 0 and ring.writer(3, 0) is key
        await ring.save()
        disk.kill()
        return key.key_id

    assert len({run(life) for _ in range(5)}) == 5


def test_a_used_up_key_is_replaced(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        first = ring.writer(3, 0)
        first.counter = BATCHES_MAX
        assert ring.writer(3, 0).key_id != first.key_id

    run(scenario)


@pytest.mark.parametrize("lost", [KEYS, KEYS_COPY])
@pytest.mark.parametrize("how", ["removed", "header", "record"])
def test_one_of_the_two_files_is_enough(disk: SimulatedDisk, lost: str, how: str) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        stored = ring.cipher(3).encrypt(make_batch(), 0)
        await ring.save()
        if how == "removed":
            await disk.remove(lost)
        else:
            disk.flip_bit(lost, position=3 if how == "header" else HEADER_BYTES + 5, bit=1)
        again = await open_ring(disk)
        assert bytes(again.cipher(3).decrypt(stored, 0).data) == bytes(make_batch().data)
        assert disk.content(KEYS) == disk.content(KEYS_COPY)

    run(scenario)


def test_both_files_unreadable_stop_the_start(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        await open_ring(disk)
        for path in (KEYS, KEYS_COPY):
            disk.flip_bit(path, position=3, bit=1)
        with pytest.raises(StorageError, match="unreadable, and so is its copy"):
            await open_ring(disk)

    run(scenario)


def test_a_wrong_key_is_refused_by_its_name(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        await open_ring(disk, OLD)
        with pytest.raises(StorageError) as refused:
            await Keyring.open(disk, (OTHER,))
        assert OLD.key_id in str(refused.value) and OTHER.key_id in str(refused.value)

    run(scenario)


def test_a_key_does_not_open_batches_of_another_segment(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        stored = ring.cipher(3).encrypt(make_batch(), 0)
        for life, base in ((4, 0), (3, 100)):
            with pytest.raises(LogDamaged, match="belongs to another segment"):
                ring.cipher(life).decrypt(stored, base)

    run(scenario)


def test_records_that_were_exchanged_do_not_unwrap(disk: SimulatedDisk) -> None:
    """The wrapped bytes of one record in the place of another's."""
    first, second = OLD.wrap(bytes(32), b"one", draw=random.randbytes), b"two"
    assert OLD.unwrap(first, b"one") == bytes(32)
    with pytest.raises(UnwrapError):
        OLD.unwrap(first, second)


def test_an_unknown_key_is_named(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        with pytest.raises(NotAuthentic, match="key 99 is not in KEYS"):
            ring.key(99, 3, 0)

    run(scenario)


def test_rewrapping_changes_the_key_and_nothing_else(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk, OLD)
        stored = ring.cipher(3).encrypt(make_batch(), 0)
        await ring.save()
        await ring.rewrap(NEW)
        later = ring.cipher(3).encrypt(make_batch(), 100)
        await ring.save()
        with pytest.raises(StorageError):
            await Keyring.open(disk, (OLD,))
        again = await open_ring(disk, NEW)
        for each, base in ((stored, 0), (later, 100)):
            assert bytes(again.cipher(3).decrypt(each, base).data) == bytes(make_batch().data)

    run(scenario)


def test_a_rotation_that_is_killed_anywhere_ends_with_the_old_key_or_the_new(disk: SimulatedDisk) -> None:
    outcomes: set[str] = set()
    for call in range(1, 40):
        disk = SimulatedDisk(random.Random(call))

        async def begin(disk: SimulatedDisk = disk, call: int = call) -> None:
            ring = await open_ring(disk, OLD)
            for base in range(5):
                ring.writer(3, base)
            await ring.save()
            disk.crash_at = disk.calls + call
            ring.writer(3, 77)
            await ring.rewrap(NEW)
            await ring.save()
            raise Crash("done")

        with pytest.raises(Crash):
            run(begin)
        disk.power_cut()
        disk.crash_at = 0

        async def check(disk: SimulatedDisk = disk) -> None:
            held = []
            for key in (OLD, NEW):
                try:
                    ring = await Keyring.open(disk, (key,))
                except StorageError:
                    continue
                held.append(key.key_id)
                for record in ring.records():
                    ring.key(record.key_id, record.life, record.base)
                assert len(ring) >= 5
            assert held
            outcomes.update(held)
            ring = await open_ring(disk, NEW, OLD)  # a start that has both ends what was begun
            assert len(ring) >= 5
            assert [wrapped_by(disk, path) for path in (KEYS, KEYS_COPY)] == [NEW.key_id, NEW.key_id]

        run(check)
    assert outcomes == {OLD.key_id, NEW.key_id}


def test_keys_of_segments_that_are_gone_are_forgotten(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        for base in range(10):
            ring.writer(3, base)
        await ring.save()
        await ring.rewrite(keep=lambda record: record.base >= 5)
        assert len(disk.content(KEYS)) == HEADER_BYTES + 5 * RECORD_BYTES
        newest = max(record.key_id for record in ring.records())
        await ring.rewrite(keep=lambda record: False)
        again = await open_ring(disk)
        assert again.writer(3, 0).key_id > newest  # ids are never given twice

    run(scenario)


def test_a_torn_record_at_the_end_is_written_over(disk: SimulatedDisk) -> None:
    async def scenario() -> None:
        ring = await open_ring(disk)
        ring.writer(3, 0)
        await ring.save()
        file = await disk.open(KEYS)
        await file.write(HEADER_BYTES + RECORD_BYTES, [b"torn" * 10])
        again = await open_ring(disk)
        again.writer(3, 5)
        await again.save()
        assert len(await open_ring(disk)) == 2

    run(scenario)


def test_no_text_form_shows_a_key() -> None:
    assert repr(OLD) == f"<KeyEncryptionKey {OLD.key_id}>"
    assert (b"\1" * 32).hex() not in repr(OLD) + str(OLD)
