"""A batch as it is stored when it is encrypted: again a batch of format 2, and 32 bytes longer.

     0  61 bytes  its header: bit 15 of the attributes set; length and CRC are those of the stored bytes
    61  u64       id of the data key       (little-endian, as the next)
    69  u64       counter, which is the nonce
    77            the records, encrypted
    ..  16 bytes  the tag of AES-256-GCM

The AAD is "TRBATCH1", directory id (16 bytes), life (u64), base offset of the segment (i64), the header but
for its CRC, key id and counter. So a stored batch is of use in one place of one directory, and all of
it is covered.
"""

from __future__ import annotations

import struct

from tailrace.records import ENCRYPTED_BIT, HEADER_BYTES, Batch, BytesLike

_KEY_ID = struct.Struct("<Q")

OVERHEAD_BYTES = 32
"""What a stored batch has more than the batch in it."""


def is_encrypted(batch: Batch) -> bool:
    """Whether these are stored bytes that a key opens."""
    return batch.attributes & ENCRYPTED_BIT != 0


def key_id_at(stored: BytesLike) -> int:
    """The data key that the bytes of a stored batch name; they must reach that far."""
    key_id: int = _KEY_ID.unpack_from(stored, HEADER_BYTES)[0]
    return key_id


def plain_size(batch: Batch) -> int:
    """How long a stored batch is for its readers."""
    return batch.size - OVERHEAD_BYTES if batch.attributes & ENCRYPTED_BIT else batch.size
