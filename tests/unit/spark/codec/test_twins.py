"""The compiled and the pure twin are the same functions, and the environment chooses between them."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.records import BatchError
from tailrace.spark.codec import ACCELERATED, _pure
from tailrace.spark.codec.columns import Columns, Ints
from tailrace.spark.codec.rows import read_rows

compiled = pytest.importorskip("tailrace.spark.codec._compiled", reason="the compiled twin is not built")

BYTE = st.sampled_from([0x00, 0x01, 0x02, 0x03, 0x0C, 0x0E, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)


def read(twin: ModuleType, arena: bytes, batches: Ints, *, start: int, end: int) -> Columns | str:
    try:
        found: Columns = twin.read_columns(arena, batches, start=start, end=end, headers=True)
    except BatchError:
        return "refused"
    return found


def same(one: Columns | str, other: Columns | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return all(
        first.equals(second) and first.type == second.type for first, second in zip(one, other, strict=True)
    )


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.lists(BYTE, min_size=7, max_size=60).map(bytes), min_size=1, max_size=3),
    st.integers(1, 3),
    INT64,
    st.booleans(),
    st.integers(0, 50),
)
def test_agree_on_any_payload(
    payloads: list[bytes], count: int, base_timestamp: int, is_append: bool, start: int
) -> None:
    at = 0
    rows = []
    for number, payload in enumerate(payloads):
        rows.append(
            (at, at + len(payload), count, 20 * number, 19, base_timestamp, int(is_append), base_timestamp)
        )
        at += len(payload)
    batches = np.array(rows, dtype=np.int64)
    arena = b"".join(payloads)
    pure = read(_pure, arena, batches, start=start, end=start + 30)
    assert same(read(compiled, arena, batches, start=start, end=start + 30), pure)


SMALLEST = bytes.fromhex("0c 00 00 00 01 01 00")


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 100), BYTE), max_size=3), st.integers(1, 3), INT64)
def test_agree_on_records_that_are_nearly_sound(
    edits: list[tuple[int, int]], count: int, base_timestamp: int
) -> None:
    second = bytes.fromhex("18 00 01 02 02 6b 04 76 31 02 02 68 01")
    arena = bytearray(SMALLEST + second + bytes.fromhex("12 00 02 04 01 00 02 00 02 78"))
    for place, byte in edits:
        arena[place % len(arena)] = byte
    batches = np.array([(0, len(arena), count, 5, 2, base_timestamp, 0, 0)], dtype=np.int64)
    pure = read(_pure, bytes(arena), batches, start=0, end=100)
    assert same(read(compiled, bytes(arena), batches, start=0, end=100), pure)


def test_the_smallest_record_is_read_by_both() -> None:
    batches = np.array([(0, 7, 1, 5, 0, 1000, 0, 0)], dtype=np.int64)
    for twin in (_pure, compiled):
        found = read(twin, SMALLEST, batches, start=0, end=10)
        assert isinstance(found, Columns)
        assert found.offset.to_pylist() == [5]
        assert found.key.to_pylist() == [None]


def test_the_compiled_twin_refuses_batches_outside_their_arena() -> None:
    for begin, end, count in ((0, 8, 1), (-1, 7, 1), (5, 4, 1), (0, 7, -1)):
        batches = np.array([(begin, end, count, 5, 0, 1000, 0, 0)], dtype=np.int64)
        with pytest.raises(IndexError):
            compiled.read_columns(SMALLEST, batches, start=0, end=10, headers=True)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(INT64.map(lambda number: number >> 1), st.none() | st.binary(), st.none() | st.binary()),
        min_size=1,
    ),
    st.data(),
)
def test_write_the_same_bytes(
    rows: list[tuple[int, bytes | None, bytes | None]], data: st.DataObject
) -> None:
    times, keys, values = zip(*rows, strict=True)
    batch = pa.record_batch(
        {
            "timestamp": pa.array(times, pa.timestamp("ms")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    cuts = data.draw(st.sets(st.integers(0, len(rows))))
    bounds = sorted({0, len(rows)} | cuts)
    read_in = read_rows(batch, now_ms=0)
    expected = _pure.write_payloads(read_in, bounds, reserve=3)
    assert compiled.write_payloads(read_in, bounds, reserve=3) == expected


def test_the_compiled_twin_is_in_use_unless_the_environment_says_otherwise() -> None:
    assert (os.environ.get("TAILRACE_PURE") != "1") == ACCELERATED


@pytest.mark.parametrize(("value", "accelerated"), [("1", "False"), ("0", "True")])
def test_the_environment_chooses_the_pure_twin(value: str, accelerated: str) -> None:
    code = "from tailrace.spark import codec; print(codec.ACCELERATED)"
    environment = {**os.environ, "TAILRACE_PURE": value, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == accelerated


def test_the_package_itself_imports_neither_arrow_nor_numpy() -> None:
    code = "import sys, tailrace.spark; print({'pyarrow', 'numpy', 'pyspark'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
