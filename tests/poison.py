"""Batches of a faulty producer: header and checksum are right, and the records cannot be decoded."""

from __future__ import annotations

from tailrace.records import DECOMPRESSED_BYTES_MAX, HEADER_BYTES, Compression, build_batch, compress, crc32c

CODECS = (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)


def undecodable(count: int = 3, *, time_ms: int, codec: Compression = Compression.GZIP) -> bytearray:
    """A batch whose payload is not what its codec writes; with no codec, its records do not add up."""
    data = build_batch([(time_ms, b"k", b"value", ())] * count)
    return _sealed(data, codec, b"\xff" * (len(data) - HEADER_BYTES))


def bomb(count: int = 3, *, time_ms: int) -> bytearray:
    """A batch that would decompress to more than any reader takes."""
    data = build_batch([(time_ms, b"k", b"value", ())] * count)
    return _sealed(
        data, Compression.ZSTD, bytes(compress(Compression.ZSTD, bytes(DECOMPRESSED_BYTES_MAX + 1)))
    )


def _sealed(data: bytearray, codec: Compression, payload: bytes) -> bytearray:
    data[HEADER_BYTES:] = payload
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] |= codec
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data
