"""Requests that no client would send: whole ones with something wrong in them, and plain noise.

A case is the bytes that one connection sends. Most keep a valid size and the API's head, so that they get
past the first check and reach the decoders; a few lie about the size itself.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

Mutation = Callable[[bytearray, random.Random], None]

_HEAD = 8  # API key, version and correlation id
_INT32 = (-1, 0, -(2**31), 2**31 - 1, 2**24, 65_536, -2)
_INT16 = (-1, 0, -(2**15), 2**15 - 1, 255)
_VARINTS = (
    b"\xff\xff\xff\xff\x0f",  # 2^32 - 1
    b"\xff\xff\xff\xff\x07",  # 2^31 - 1
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",  # longer than any number
    b"\xff" * 10,
    b"\x80\x80\x80\x80\x00",  # zero, told at length
)
_SIZES = (-1, 0, 1, 3, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1, 104_857_600)
_BAD_TEXT = (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b"\xf5\x80\x80\x80")


def case(rng: random.Random, frames: Sequence[bytes]) -> bytes:
    """One case; in a hundred, about ninety are mutated requests."""
    kind = rng.random()
    if kind < 0.04:
        return rng.randbytes(rng.randint(1, 300))
    if kind < 0.08:
        return struct.pack(">i", rng.choice(_SIZES)) + rng.choice(frames)[: rng.randint(0, 64)]
    frame = bytearray(rng.choice(frames))
    if kind < 0.10:
        frame[4:] = rng.randbytes(rng.randint(0, 200))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_MUTATIONS)(frame, rng)
    return struct.pack(">i", len(frame)) + frame


def _place(frame: bytearray, rng: random.Random) -> int:
    """Mostly behind the head: a wrong API key is refused at once and shows little."""
    first = 0 if rng.random() < 0.1 else min(_HEAD, len(frame))
    return rng.randint(first, len(frame))


def _flip_bit(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    if at < len(frame):
        frame[at] ^= 1 << rng.randrange(8)


def _set_byte(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    if at < len(frame):
        frame[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))


def _cut(frame: bytearray, rng: random.Random) -> None:
    del frame[_place(frame, rng) :]


def _insert(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    frame[at:at] = rng.randbytes(rng.randint(1, 16))


def _remove(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    del frame[at : at + rng.randint(1, 8)]


def _repeat(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    frame[at:at] = frame[at : at + rng.randint(1, 64)] * rng.randint(1, 20)


def _write_int32(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    frame[at : at + 4] = struct.pack(">i", rng.choice(_INT32))


def _write_int16(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    frame[at : at + 2] = struct.pack(">h", rng.choice(_INT16))


def _write_varint(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    frame[at : at + 1] = rng.choice(_VARINTS)


def _write_text(frame: bytearray, rng: random.Random) -> None:
    at = _place(frame, rng)
    bad = rng.choice(_BAD_TEXT)
    frame[at : at + len(bad)] = bad


def _other_version(frame: bytearray, rng: random.Random) -> None:
    frame[2:4] = struct.pack(">h", rng.choice((0, 1, 2, 3, 5, 8, 9, 12, 15, 99, -1)))


_MUTATIONS: tuple[Mutation, ...] = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _cut,
    _insert,
    _remove,
    _repeat,
    _write_int32,
    _write_int16,
    _write_varint,
    _write_text,
    _other_version,
)
