"""Bytes that could not be read as records, kept so that they can be looked into.

    _tailrace/quarantine/topic=orders/p00003-<first>-<last>.bin     the bytes as they were fetched
    _tailrace/quarantine/topic=orders/p00003-<first>-<last>.json    {"topic","partition",...,"reason"}

They are saved before the commit that passes over them. A file of a run that never came to its commit is
found again, with the same bytes under the same name, by the run that does.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tailrace.spark.codec import BadSpan
from tailrace.spark.lake.change import BadRange
from tailrace.spark.lake.durable import make_folder, write_new
from tailrace.spark.lake.layout import QUARANTINE, check_topic

_OFFSET_MAX = (1 << 63) - 1
_SAME_NAME_MAX = 1000


def save_bad(root: Path, span: BadSpan, *, topic: str, partition: int, next_offset: int) -> BadRange:
    """Set a bad span aside; `next_offset` is where reading goes on, for spans that do not know their end."""
    check_topic(topic)
    first = min(max(span.first_offset, 0), _OFFSET_MAX)  # as its header claims, which may be nonsense
    end = span.next_offset if span.next_offset is not None else next_offset
    last = min(max(first, end - 1), _OFFSET_MAX)
    name = f"{QUARANTINE}/topic={topic}/p{partition:05d}-{first:020d}-{last:020d}"
    saved = _save_bytes(root, name, span.raw) if span.raw else None
    bad = BadRange(
        topic=topic,
        partition=partition,
        first_offset=first,
        last_offset=last,
        reason=span.reason,
        saved=saved,
    )
    if saved is not None:
        write_new((root / saved).with_suffix(".json"), msgspec.json.encode(bad) + b"\n")
    return bad


def _save_bytes(root: Path, name: str, raw: bytes) -> str:
    """Two spans may claim the same offsets: other bytes get another name."""
    make_folder((root / name).parent)
    for turn in range(_SAME_NAME_MAX):
        path = f"{name}-{turn}.bin" if turn else f"{name}.bin"
        if write_new(root / path, raw) or (root / path).read_bytes() == raw:
            return path
    raise FileExistsError(f"{name}: {_SAME_NAME_MAX} spans of bytes claim the same offsets")
