"""CRC32C (Castagnoli), the checksum of record batches and of everything else written to disk."""

from __future__ import annotations

from fastcrc import crc32

from tailrace.records.record import BytesLike


def crc32c(data: BytesLike, initial: int = 0) -> int:
    """Checksum of `data`. Chains: crc32c(a + b) == crc32c(b, crc32c(a)). Never copies its input."""
    return crc32.iscsi(data, initial)
