"""The four codecs: round trips, the foreign forms of each, bombs, and bytes that make no sense."""

from __future__ import annotations

import gzip
import lzma
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import ErrorCode
from tailrace.records import BatchError, Compression, compress, decompress

TEXT = b"".join(b"offset %d, key %d; " % (i, i * i) for i in range(20_000))
XERIAL = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
CODECS = [codec for codec in Compression if codec]
MIB = 1 << 20


def zstd_stream(data: bytes, *, checksum: bool = False) -> bytes:
    """As the Java client writes it: in blocks as they come, without the content size."""
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=checksum).compressobj()
    half = len(data) // 2
    out = compressor.compress(data[:half]) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return out + compressor.compress(data[half:]) + compressor.flush()


FOREIGN = {
    "gzip of the standard library": (Compression.GZIP, gzip.compress(TEXT)),
    "gzip in two members": (Compression.GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    "gzip with an empty member": (Compression.GZIP, gzip.compress(b"") + gzip.compress(TEXT)),
    "raw snappy": (Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))),
    "xerial snappy in one block": (
        Compression.SNAPPY,
        XERIAL
        + len(cramjam.snappy.compress_raw(TEXT)).to_bytes(4, "big")
        + bytes(cramjam.snappy.compress_raw(TEXT)),
    ),
    "xerial snappy in two frames": (
        Compression.SNAPPY,
        bytes(compress(Compression.SNAPPY, TEXT[:70_000]))
        + bytes(compress(Compression.SNAPPY, TEXT[70_000:])),
    ),
    "lz4 with linked blocks": (Compression.LZ4, lz4.frame.compress(TEXT, block_linked=True)),
    "lz4 with checksums and size": (
        Compression.LZ4,
        lz4.frame.compress(TEXT, content_checksum=True, block_checksum=True, store_size=True),
    ),
    "lz4 in two frames": (Compression.LZ4, lz4.frame.compress(TEXT[:9]) + lz4.frame.compress(TEXT[9:])),
    "lz4 of cramjam": (Compression.LZ4, bytes(cramjam.lz4.compress(TEXT))),
    "zstd without content size": (Compression.ZSTD, zstd_stream(TEXT)),
    "zstd with a checksum": (Compression.ZSTD, zstd_stream(TEXT, checksum=True)),
    "zstd in two frames": (Compression.ZSTD, zstd_stream(TEXT[:99]) + bytes(compress(4, TEXT[99:]))),
    "zstd after a skippable frame": (
        Compression.ZSTD,
        struct.pack("<II", 0x184D2A53, 5) + b"12345" + zstd_stream(TEXT),
    ),
    "zstd with a large window": (
        Compression.ZSTD,
        zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters.from_level(
                3, window_log=27, write_content_size=False
            )
        ).compress(TEXT),
    ),
}


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024, 32 * 1024 + 1, 3 * MIB])
def test_what_goes_in_comes_out(codec: Compression, size: int) -> None:
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed, bytes_max=size) == data
    assert decompress(codec, memoryview(bytes(packed)), bytes_max=size + 1) == data


@pytest.mark.parametrize(("codec", "packed"), FOREIGN.values(), ids=FOREIGN.keys())
def test_reads_what_others_write(codec: Compression, packed: bytes) -> None:
    assert decompress(codec, packed, bytes_max=len(TEXT)) == TEXT


@pytest.mark.parametrize(("codec", "packed"), FOREIGN.values(), ids=FOREIGN.keys())
def test_one_byte_over_the_limit_is_refused(codec: Compression, packed: bytes) -> None:
    with pytest.raises(BatchError, match="limit") as raised:
        decompress(codec, packed, bytes_max=len(TEXT) - 1)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", Compression)
def test_a_limit_of_nothing_admits_nothing(codec: Compression) -> None:
    assert decompress(codec, compress(codec, b""), bytes_max=0) == b""
    with pytest.raises(BatchError, match="limit"):
        decompress(codec, compress(codec, b"x"), bytes_max=0)


@pytest.mark.parametrize(("codec", "packed"), FOREIGN.values(), ids=FOREIGN.keys())
def test_cut_off_input_is_an_error(codec: Compression, packed: bytes) -> None:
    for cut in (1, 2, 3, 5, 9, 100, len(packed) // 2, len(packed) - 5):
        with pytest.raises(BatchError):
            decompress(codec, packed[:-cut], bytes_max=len(TEXT) + 1000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rest", [b"\x00", b"junk after the end", b"\x00" * 20])
def test_bytes_after_the_end_are_an_error(codec: Compression, rest: bytes) -> None:
    with pytest.raises(BatchError):
        decompress(codec, bytes(compress(codec, TEXT)) + rest, bytes_max=2 * len(TEXT))


def test_bytes_after_a_zstd_frame_of_unknown_size_are_an_error() -> None:
    with pytest.raises(BatchError, match="no frame at byte"):
        decompress(Compression.ZSTD, zstd_stream(TEXT) + b"junk", bytes_max=2 * len(TEXT))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"\x01", b"no codec's bytes at all", b"\xff" * 100], ids=repr)
def test_bytes_of_no_codec_are_an_error(codec: Compression, data: bytes) -> None:
    with pytest.raises(BatchError):
        decompress(codec, data, bytes_max=MIB)


@pytest.mark.parametrize("codec", [-1, 5, 7, 100])
def test_unknown_codecs_are_refused(codec: int) -> None:
    with pytest.raises(BatchError, match=f"codec {codec} is unknown"):
        compress(codec, b"x")
    with pytest.raises(BatchError, match=f"codec {codec} is unknown"):
        decompress(codec, b"x", bytes_max=9)


@pytest.mark.parametrize(
    "data",
    [
        XERIAL[:12],
        XERIAL + b"\x00",
        XERIAL + struct.pack(">i", 0),
        XERIAL + struct.pack(">i", -1) + b"\x01\x00x",
        XERIAL + struct.pack(">i", 4) + b"\x01\x00x",
        XERIAL + struct.pack(">i", 2**31 - 1) + b"\x01\x00x",
        XERIAL + struct.pack(">i", 3) + b"\x02\x00x",
    ],
)
def test_malformed_xerial_frames_are_refused(data: bytes) -> None:
    with pytest.raises(BatchError):
        decompress(Compression.SNAPPY, data, bytes_max=MIB)


def test_writes_xerial_blocks_of_the_size_that_the_java_client_writes() -> None:
    packed = bytes(compress(Compression.SNAPPY, bytes(70_000)))
    assert packed.startswith(XERIAL)
    position, sizes = len(XERIAL), []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32_768, 32_768, 70_000 - 65_536]


def test_writes_lz4_frames_that_the_java_client_accepts() -> None:
    packed = bytes(compress(Compression.LZ4, TEXT))
    flags, block = packed[4], packed[5]
    assert flags >> 6 == 1, "version of the frame format"
    assert flags >> 5 & 1, "independent blocks"
    assert not flags & 1, "no dictionary"
    assert block >> 4 & 7 == 4, "blocks of 64 KiB"


def test_writes_zstd_frames_with_their_size() -> None:
    assert zstandard.frame_content_size(bytes(compress(Compression.ZSTD, TEXT))) == len(TEXT)


def gzip_bomb() -> bytes:
    """Half a gibibyte of zeros: one flushed mebibyte, over and over."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packer.compress(bytes(MIB))
    packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + block * 512


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return XERIAL + (len(block).to_bytes(4, "big") + block) * 512


def lz4_bomb() -> bytes:
    frame = lz4.frame.compress(bytes(4 * MIB), block_size=7, block_linked=False, store_size=False)
    return bytes(frame[:7] + frame[7:-4] * 128 + bytes(4))


def zstd_bomb(*, declared: int | None, window_log: int = 21) -> bytes:
    """Runs of 128 KiB in four bytes each."""
    window = bytes([window_log - 10 << 3])
    run = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (131072 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    if declared is None:
        header = b"\x28\xb5\x2f\xfd\x00" + window
    else:
        header = b"\x28\xb5\x2f\xfd\xc0" + window + declared.to_bytes(8, "little")
    return header + run * 4095 + last


BOMBS = {
    "gzip": (Compression.GZIP, gzip_bomb),
    "snappy": (Compression.SNAPPY, lambda: b"\x80\x80\x80\x80\x02" + b"\xfe\x01\x00" * 4000),
    "xerial": (Compression.SNAPPY, xerial_bomb),
    "lz4": (Compression.LZ4, lz4_bomb),
    "zstd": (Compression.ZSTD, lambda: zstd_bomb(declared=None)),
    "zstd with a large window": (Compression.ZSTD, lambda: zstd_bomb(declared=None, window_log=27)),
    "zstd that says so": (Compression.ZSTD, lambda: zstd_bomb(declared=512 * MIB)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_the_limit(name: str) -> None:
    codec, craft = BOMBS[name]
    with pytest.raises(BatchError) as raised:
        decompress(codec, craft(), bytes_max=8 * MIB)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_zstd_frame_that_holds_more_than_it_says_is_refused() -> None:
    with pytest.raises(BatchError):
        decompress(Compression.ZSTD, zstd_bomb(declared=MIB), bytes_max=8 * MIB)
    with pytest.raises(BatchError):
        decompress(Compression.ZSTD, zstd_bomb(declared=0), bytes_max=8 * MIB)


def test_many_members_are_refused() -> None:
    for codec in (Compression.GZIP, Compression.LZ4):
        empty = bytes(compress(codec, b""))
        assert decompress(codec, empty * 1000, bytes_max=10) == b""
        with pytest.raises(BatchError, match="more than 1024"):
            decompress(codec, empty * 1025, bytes_max=10)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc for the peak of memory")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_more_memory_than_about_the_limit(name: str, tmp_path: Path) -> None:
    codec, craft = BOMBS[name]
    bomb = tmp_path / "bomb"
    bomb.write_bytes(craft())
    code = f"""
import re, sys
sys.path[:] = {sys.path!r}
from tailrace.records import BatchError, decompress
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
data = open({str(bomb)!r}, "rb").read()
before = peak()
try:
    decompress({int(codec)}, data, bytes_max=16 << 20)
except BatchError:
    print(peak() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) < 64


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(list(FOREIGN.values())),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5),
)
def test_mutilated_input_is_refused_or_bounded(
    packed: tuple[Compression, bytes], edits: list[tuple[int, int]]
) -> None:
    codec, data = packed
    bad = bytearray(data)
    for place, byte in edits:
        bad[place % min(len(bad), 2000)] = byte
    try:
        out = decompress(codec, bad, bytes_max=len(TEXT))
    except BatchError:
        return
    assert len(out) <= len(TEXT)


def test_other_formats_are_not_taken_for_one_of_ours() -> None:
    for codec in CODECS:
        with pytest.raises(BatchError):
            decompress(codec, lzma.compress(TEXT), bytes_max=MIB)
