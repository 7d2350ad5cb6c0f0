"""A batch to its stored form and back: the same bytes, and no other bytes from anything that was changed."""

from __future__ import annotations

import pytest

from tailrace.model import Epoch, Offset
from tailrace.records import ENCRYPTED_BIT, Batch, BatchError, build_batch, crc32c, read_batch, validate_batch
from tailrace.storage.encryption.layout import OVERHEAD_BYTES, is_encrypted, plain_size
from tailrace.storage.encryption.stored_batch import DataKey, NotAuthentic, key_id_of, read_place

DIRECTORY = bytes(range(16))
SECRET = bytes(range(32))


def make_key(key_id: int = 7, *, directory_id: bytes = DIRECTORY, life: int = 1, base: int = 0) -> DataKey:
    return DataKey(SECRET, key_id=key_id, directory_id=directory_id, life=life, base=base)


def make_batch(value: bytes = b"the value", offset: int = 40) -> Batch:
    batch = read_batch(build_batch([(1000, b"key", value, ())]))
    batch.assign(Offset(offset), Epoch(3))
    return batch


def open_stored(data: bytearray) -> Batch:
    stored = read_batch(data)
    key_id_of(stored)
    return make_key().decrypt(stored)


@pytest.mark.parametrize("value", [b"", b"x", b"value" * 10_000])
def test_the_same_bytes_come_back(value: bytes) -> None:
    batch = make_batch(value)
    stored = make_key().encrypt(batch)
    assert bytes(make_key().decrypt(stored).data) == bytes(batch.data)


def test_a_stored_batch_is_a_batch_that_tells_nothing_of_its_records() -> None:
    batch = make_batch(b"the value")
    stored = make_key().encrypt(batch)
    again = read_batch(bytes(stored.data))
    assert (again.base_offset, again.next_offset, again.leader_epoch) == (40, 41, 3)
    assert (again.count, again.max_timestamp) == (1, 1000)
    assert again.check_crc() and is_encrypted(again)
    assert again.size == batch.size + OVERHEAD_BYTES and plain_size(again) == batch.size == plain_size(batch)
    assert b"value" not in bytes(stored.data) and b"key" not in bytes(stored.data)


def test_the_stored_form_has_no_checksum_of_the_plain_bytes() -> None:
    batch = make_batch(b"guess me")
    assert batch.crc.to_bytes(4, "big") not in bytes(make_key().encrypt(batch).data)


def test_every_batch_has_a_nonce_of_its_own() -> None:
    key = make_key()
    stored = [key.encrypt(make_batch()) for _ in range(100)]
    assert {read_place(each) for each in stored} == {(7, counter) for counter in range(100)}
    assert len({bytes(each.data[77:]) for each in stored}) == 100


def test_any_flipped_bit_is_refused_even_where_the_crc_is_mended() -> None:
    data = bytes(make_key().encrypt(make_batch()).data)
    for bit in range(8 * len(data)):
        place = bit // 8
        if 17 <= place < 21:
            continue  # the CRC itself, which is made again below
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit % 8
        flipped[17:21] = crc32c(flipped[21:]).to_bytes(4, "big")
        with pytest.raises((NotAuthentic, BatchError)):
            open_stored(flipped)


@pytest.mark.parametrize(
    "elsewhere",
    [make_key(life=2), make_key(base=100), make_key(directory_id=bytes(16))],
    ids=["another log", "another segment", "another directory"],
)
def test_a_batch_is_of_use_in_its_place_only(elsewhere: DataKey) -> None:
    with pytest.raises(NotAuthentic):
        elsewhere.decrypt(make_key().encrypt(make_batch()))


def test_another_key_does_not_open_it() -> None:
    other = DataKey(bytes(32), key_id=7, directory_id=DIRECTORY, life=1, base=0)
    with pytest.raises(NotAuthentic):
        other.decrypt(make_key().encrypt(make_batch()))


def test_a_batch_too_short_to_be_stored_is_refused() -> None:
    batch = make_batch(b"")
    short = bytearray(batch.data[:61])
    short[8:12] = (49).to_bytes(4, "big")
    with pytest.raises(NotAuthentic, match="too short"):
        key_id_of(read_batch(short))


def test_no_client_may_send_one() -> None:
    data = bytearray(make_batch().data)
    data[21] |= 0x80
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    assert Batch(memoryview(data)).attributes & ENCRYPTED_BIT
    with pytest.raises(BatchError, match="bit 15"):
        validate_batch(data, bytes_max=1 << 20)
