"""A JSON file with a checksum: it is a JSON document, and a flipped bit anywhere in it is found."""

from __future__ import annotations

import json

import pytest

from tailrace.storage.checksummed import read_checksummed, write_checksummed

CONTENT = '{"name":"ü","number":1}'


def test_the_file_is_a_json_document_with_the_content() -> None:
    data = write_checksummed(CONTENT)
    assert json.loads(data)["content"] == {"name": "ü", "number": 1}
    assert read_checksummed(data) == CONTENT


def test_every_flipped_bit_is_found() -> None:
    data = write_checksummed(CONTENT)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert read_checksummed(bytes(changed)) is None, bit


@pytest.mark.parametrize("length", range(len(write_checksummed(CONTENT))))
def test_a_file_that_was_cut_is_refused(length: int) -> None:
    assert read_checksummed(write_checksummed(CONTENT)[:length]) is None


@pytest.mark.parametrize("more", [b"\n", b" ", b"{}"])
def test_bytes_behind_the_end_are_refused(more: bytes) -> None:
    assert read_checksummed(write_checksummed(CONTENT) + more) is None
