"""The four codecs of Kafka, with output that is bounded whatever the input claims.

No decoder runs here that could write more than `bytes_max`, and no length that compressed bytes declare is
used before it is compared with that. Cut-off input, and bytes after its end, are errors.

    gzip    zlib's decompressobj honours max_length. Members may follow each other.
    snappy  A raw block declares its length and the decoder holds itself to it. A xerial frame is a row of raw
            blocks. Both are read; xerial is written, as the Java client does.
    lz4     LZ4FrameDecompressor honours max_length. Frames may follow each other. Blocks are written
            unlinked: the Java client refuses others.
    zstd    decompress() obeys a declared content size and not max_output_size; a stream_reader gives what is
            asked for, but ends without a word where the input is cut off. So it reads frames that are known
            to be whole by their block headers (RFC 8878 section 3.1).
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator

import cramjam
import lz4.frame
import zstandard

from tailrace.model import ErrorCode
from tailrace.records.error import BatchError
from tailrace.records.record import BytesLike


class Compression(enum.IntEnum):
    """Codec of a batch, as in the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024

_GZIP_MAGIC = b"\x1f\x8b\x08"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_MAGIC_BYTES = _ZSTD_MAGIC.to_bytes(4, "little")
_SKIPPABLE_END = b"\x2a\x4d\x18"
_ZSTD_SKIPPABLE = 0x184D2A50
# zstd's own limit for decoding. The window is reserved at once but touched only as far as output is written.
_ZSTD_WINDOW_BYTES_MAX = 1 << 27

# Input goes in and output comes out in pieces of this size, so that a bomb is noticed one piece past the cap.
_INPUT_BYTES = 64 * 1024
_OUTPUT_BYTES = 1024 * 1024
# Starting a member costs a copy of one input piece. A client writes one; more than this only wastes our time.
_MEMBERS_MAX = 1024


def compress(codec: int, data: BytesLike, level: int | None = None) -> BytesLike:
    """`data` as clients of that codec expect it. `level` is the codec's own scale; snappy has none."""
    if codec == Compression.NONE:
        return data
    if codec == Compression.GZIP:
        return zlib.compress(data, zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=0 if level is None else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if codec == Compression.ZSTD:
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise _refuse_codec(codec)


def decompress(codec: int, data: BytesLike, *, bytes_max: int) -> BytesLike:
    """What was compressed, at most `bytes_max` bytes; BatchError for more, or for bytes of no sense."""
    view = memoryview(data)
    try:
        if codec == Compression.NONE:
            if len(view) > bytes_max:
                raise _refuse_output(bytes_max)
            return data
        if codec == Compression.GZIP:
            return _decompress_gzip(view, bytes_max)
        if codec == Compression.SNAPPY:
            return _decompress_snappy(view, bytes_max)
        if codec == Compression.LZ4:
            return _decompress_lz4(view, bytes_max)
        if codec == Compression.ZSTD:
            return _decompress_zstd(view, bytes_max)
    # The lz4 module raises RuntimeError itself, for every fault of a frame.
    except (zlib.error, cramjam.DecompressionError, RuntimeError, zstandard.ZstdError) as error:
        name = Compression(codec).name.lower()
        raise BatchError(f"{len(view)} bytes of {name} cannot be decompressed: {error}") from error
    raise _refuse_codec(codec)


def check_magic(codec: int, data: BytesLike) -> None:
    """Raise BatchError if the first bytes cannot be what the codec writes. Nothing is decompressed.

    Finds payloads that are not compressed at all, or with another codec than the batch says. A raw block of
    snappy has no magic, so anything may be one.
    """
    first = bytes(data[:4])
    if codec == Compression.GZIP:
        is_known = first[:3] == _GZIP_MAGIC
    elif codec == Compression.LZ4:
        is_known = first == _LZ4_MAGIC or _is_skippable(first)
    elif codec == Compression.ZSTD:
        is_known = first == _ZSTD_MAGIC_BYTES or _is_skippable(first)
    else:
        return
    if not is_known:
        name = Compression(codec).name.lower()
        raise BatchError(
            f"the records are not compressed with {name}, as the batch says: they begin with {first.hex()}",
            code=ErrorCode.INVALID_RECORD,
        )


def _is_skippable(first: bytes) -> bool:
    """Whether a skippable frame begins here; lz4 and zstd share its sixteen magics."""
    return first[1:] == _SKIPPABLE_END and first[0] & 0xF0 == 0x50


def _decompress_gzip(data: memoryview, bytes_max: int) -> bytearray:
    out = bytearray()
    position = 0
    for _ in range(_MEMBERS_MAX):
        decoder = zlib.decompressobj(wbits=31)
        while not decoder.eof:
            chunk = data[position : position + _INPUT_BYTES]
            piece = decoder.decompress(chunk, min(bytes_max - len(out) + 1, _OUTPUT_BYTES))
            if not chunk and not piece:
                raise BatchError(f"gzip is cut off after {len(data)} bytes")
            position += len(chunk) - len(decoder.unconsumed_tail) - len(decoder.unused_data)
            _extend(out, piece, bytes_max)
        if position == len(data):
            return out
    raise BatchError(f"gzip has more than {_MEMBERS_MAX} members")


def _decompress_lz4(data: memoryview, bytes_max: int) -> bytearray:
    out = bytearray()
    position = 0
    for _ in range(_MEMBERS_MAX):
        decoder = lz4.frame.LZ4FrameDecompressor()
        while not decoder.eof:
            # What the decoder has not used yet it keeps, and wants to be called with nothing.
            chunk = data[position : position + _INPUT_BYTES] if decoder.needs_input else data[:0]
            piece: bytes = decoder.decompress(chunk, min(bytes_max - len(out) + 1, _OUTPUT_BYTES))
            if decoder.needs_input and not chunk and not piece:
                raise BatchError(f"lz4 is cut off after {len(data)} bytes")
            position += len(chunk)
            _extend(out, piece, bytes_max)
        position -= len(decoder.unused_data or b"")
        if position == len(data):
            return out
    raise BatchError(f"lz4 has more than {_MEMBERS_MAX} frames")


def _decompress_zstd(data: memoryview, bytes_max: int) -> bytearray:
    out = bytearray()
    for frame in _zstd_frames(data):
        declared = zstandard.frame_content_size(frame)  # -1 where the frame does not say
        if declared > bytes_max - len(out):
            raise _refuse_output(bytes_max, declared=declared)
        reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).stream_reader(frame)
        while piece := reader.read(min(bytes_max - len(out) + 1, _OUTPUT_BYTES)):
            _extend(out, piece, bytes_max)
    return out


def _decompress_snappy(data: memoryview, bytes_max: int) -> BytesLike:
    if data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_block(data, bytes_max)
    out = bytearray()
    position = 0
    while position < len(data):
        # Frames may follow each other: the magic is no possible length, being negative.
        if data[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > len(data):
                raise BatchError(f"a xerial snappy header is cut off after {len(data)} bytes")
            continue
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if not 0 < size <= len(data) - position:
            raise BatchError(f"a snappy block claims {size} bytes of {len(data) - position}")
        out += _decompress_block(data[position : position + size], bytes_max - len(out))
        position += size
    return out


def _decompress_block(block: memoryview, bytes_max: int) -> BytesLike:
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > bytes_max:
        raise _refuse_output(bytes_max, declared=declared)
    out = bytearray(declared)
    written = cramjam.snappy.decompress_raw_into(block, out)
    if written != declared:
        raise BatchError(f"a snappy block of {declared} bytes holds {written}")
    return out


def _compress_xerial(data: BytesLike) -> bytearray:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        out += len(block).to_bytes(4, "big")
        out += memoryview(block)
    return out


def _zstd_frames(data: memoryview) -> Iterator[memoryview]:
    """The zstd frames of `data`, without skippable ones; together they must be all of it."""
    if not data:
        raise BatchError("zstd has no frame in 0 bytes")
    position = 0
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        elif magic == _ZSTD_MAGIC:
            end = _zstd_frame_end(data, position)
            if end <= len(data):
                yield data[position:end]
            position = end
        else:
            raise BatchError(f"zstd has no frame at byte {position}")
    if position > len(data):
        raise BatchError(f"zstd is cut off after {len(data)} bytes")


def _zstd_frame_end(data: memoryview, position: int) -> int:
    """Where the frame at `position` ends by its headers, perhaps past the data."""
    try:
        descriptor = data[position + 4]
        single_segment = descriptor >> 5 & 1
        content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
        dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 3]
        position += 5 + (1 - single_segment) + dictionary_id_bytes + content_size_bytes
        while True:
            header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            kind = header >> 1 & 3
            # A run-length block (kind 1) is one byte however long the run; kind 3 is refused by the decoder.
            position += 3 + (1 if kind == 1 else header >> 3)
            if header & 1:
                return position + 4 * (descriptor >> 2 & 1)
    except IndexError:
        raise BatchError(f"zstd is cut off after {len(data)} bytes") from None


def _extend(out: bytearray, piece: bytes, bytes_max: int) -> None:
    if len(piece) > bytes_max - len(out):
        raise _refuse_output(bytes_max)
    out += piece


def _refuse_output(bytes_max: int, *, declared: int | None = None) -> BatchError:
    size = "more" if declared is None else f"{declared} bytes"
    return BatchError(
        f"decompression gives {size}, the limit is {bytes_max} bytes", code=ErrorCode.MESSAGE_TOO_LARGE
    )


def _refuse_codec(codec: int) -> BatchError:
    return BatchError(f"compression codec {codec} is unknown", code=ErrorCode.INVALID_RECORD)
