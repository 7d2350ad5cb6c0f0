"""The compiled and the pure twin are the same function: on generated records, and on mutilated bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.records import ACCELERATED, BatchError, BytesLike, NewRecord, Record, _pure

compiled = pytest.importorskip("tailrace.records._compiled", reason="the compiled twin is not built")

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
NEAR = st.integers(min_value=1_700_000_000_000, max_value=1_700_000_020_000)
BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4)
RECORD = st.tuples(NEAR | INT64, BYTES, BYTES, HEADERS)
PLAIN_RECORD = st.tuples(NEAR, BYTES, BYTES, HEADERS)
# Single bytes that change the meaning of a varint, beside any byte at all.
BYTE = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
EDIT = st.tuples(st.sampled_from(["set", "insert", "delete", "cut"]), st.integers(0, 2000), BYTE)


def encoded(twin: ModuleType, records: list[NewRecord]) -> object:
    try:
        return twin.encode_records(records, reserve=61)
    except BatchError as error:
        return error.code


def decoded(
    twin: ModuleType, payload: BytesLike, *, count: int, base_timestamp: int, append_time: int | None
) -> tuple[list[Record], bool]:
    """The records before the first fault, and whether there was one."""
    records = []
    try:
        for record in twin.decode_records(
            payload,
            base_offset=7,
            base_timestamp=base_timestamp,
            append_time=append_time,
            count=count,
            last_delta=max(count - 1, 0),
        ):
            records.append(record)  # noqa: PERF402 - a list() would lose those before the fault
    except BatchError:
        return records, True
    return records, False


def mutilate(payload: BytesLike, edits: list[tuple[str, int, int]]) -> bytes:
    out = bytearray(payload)
    for kind, place, byte in edits:
        at = place % (len(out) + 1)
        if kind == "insert":
            out.insert(at, byte)
        elif kind == "cut":
            del out[at:]
        elif at < len(out):
            if kind == "set":
                out[at] = byte
            else:
                del out[at]
    return bytes(out)


@settings(deadline=None)
@given(st.lists(RECORD, max_size=8))
def test_encode_the_same_bytes(records: list[NewRecord]) -> None:
    assert encoded(compiled, records) == encoded(_pure, records)


@settings(deadline=None)
@given(st.lists(PLAIN_RECORD, max_size=8), st.none() | INT64)
def test_decode_the_same_records(records: list[NewRecord], append_time: int | None) -> None:
    payload, count, base, _ = _pure.encode_records(records, reserve=0)
    pure = decoded(_pure, payload, count=count, base_timestamp=base, append_time=append_time)
    assert decoded(compiled, payload, count=count, base_timestamp=base, append_time=append_time) == pure
    expected = [
        (7 + index, timestamp if append_time is None else append_time, key, value, tuple(headers))
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]
    assert pure == (expected, False)


@settings(deadline=None, max_examples=300)
@given(st.lists(PLAIN_RECORD, max_size=4), st.lists(EDIT, min_size=1, max_size=4), st.integers(-1, 1))
def test_agree_on_mutilated_payloads(
    records: list[NewRecord], edits: list[tuple[str, int, int]], miscounted: int
) -> None:
    payload, count, base, _ = _pure.encode_records(records, reserve=0)
    bad = mutilate(payload, edits)
    count = max(count + miscounted, 0)
    pure = decoded(_pure, bad, count=count, base_timestamp=base, append_time=None)
    assert decoded(compiled, bad, count=count, base_timestamp=base, append_time=None) == pure


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 5), INT64)
def test_agree_on_random_payloads(payload: bytes, count: int, base: int) -> None:
    pure = decoded(_pure, payload, count=count, base_timestamp=base, append_time=None)
    assert decoded(compiled, payload, count=count, base_timestamp=base, append_time=None) == pure


@settings(deadline=None)
@given(st.binary(max_size=12), st.sampled_from(["read_varint", "read_varlong"]))
def test_agree_on_random_varints(data: bytes, name: str) -> None:
    def outcome(twin: ModuleType) -> object:
        try:
            return getattr(twin, name)(data, 0)
        except BatchError:
            return "refused"

    assert outcome(compiled) == outcome(_pure)


@settings(deadline=None)
@given(INT64)
def test_varints_come_back(value: int) -> None:
    for twin in (compiled, _pure):
        out = bytearray()
        twin.write_varint(out, value)
        assert twin.read_varlong(out, 0) == (value, len(out))


def test_the_compiled_iterator_holds_its_buffer() -> None:
    payload, count, base, _ = _pure.encode_records([(1, b"k", b"v", ())] * 3, reserve=0)
    records = compiled.decode_records(
        payload, base_offset=0, base_timestamp=base, append_time=None, count=count, last_delta=2
    )
    next(records)
    with pytest.raises(BufferError):
        payload.clear()
    assert len(list(records)) == 2
    del records
    payload.clear()


def test_the_compiled_twin_is_in_use_unless_the_environment_says_otherwise() -> None:
    assert (os.environ.get("TAILRACE_PURE") != "1") == ACCELERATED


@pytest.mark.parametrize(("value", "accelerated"), [("1", "False"), ("0", "True")])
def test_the_environment_chooses_the_pure_twin(value: str, accelerated: str) -> None:
    code = "from tailrace import records; print(records.ACCELERATED)"
    environment = {**os.environ, "TAILRACE_PURE": value, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == accelerated
