"""How many records of 100 bytes either twin of the Arrow codec decodes and encodes in a second.

One process uses one twin, chosen at import, so each is measured in a process of its own. A fetch of about
4 MB in batches of 16 KiB is decoded over and over, with its checksums checked, and its rows are encoded into
such batches again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tailrace.bench.process import run_python

RECORDS = 40_000
_SAMPLES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecRates:
    """Records per second; `accelerated` says which twin it was."""

    accelerated: bool
    decode_per_s: int
    encode_per_s: int

    def as_row(self) -> dict[str, object]:
        return asdict(self)


def measure_twin(*, pure: bool, seconds: float) -> CodecRates | None:
    """One twin in a new process; None if the compiled one was asked for and is not there."""
    environment = {"TAILRACE_PURE": "1" if pure else "0"}
    printed = asyncio.run(
        run_python("tailrace.bench.spark.child", "codec", str(seconds), environment=environment)
    )
    rates = CodecRates(**json.loads(printed))
    return rates if rates.accelerated != pure else None


def measure_codec(*, seconds: float) -> CodecRates:
    """The twin that this process uses; `seconds` is for both ways together, about."""
    from tailrace.bench.spark.filling import BATCH_BYTES, VALUE_BYTES, random_rows
    from tailrace.spark.codec import ACCELERATED, decode, encode

    rows = random_rows(RECORDS, value_bytes=VALUE_BYTES, seed=1)
    fetched = b"".join(encode(rows, batch_bytes_max=BATCH_BYTES))

    def read() -> int:
        found = decode(fetched, start=0, end=RECORDS, topic="bench", partition=0, headers=False)
        return int(found.num_rows)

    def write() -> int:
        encode(rows, batch_bytes_max=BATCH_BYTES)
        return RECORDS

    return CodecRates(
        accelerated=ACCELERATED,
        decode_per_s=_per_s(read, seconds / 2),
        encode_per_s=_per_s(write, seconds / 2),
    )


def _per_s(work: Callable[[], int], seconds: float) -> int:
    """The best of several short samples: it is all processor, so nothing but other work makes one slower."""
    return round(max(_sample(work, seconds / _SAMPLES) for _ in range(_SAMPLES)))


def _sample(work: Callable[[], int], seconds: float) -> float:
    began, done = time.perf_counter(), 0
    while True:
        done += work()
        took_s = time.perf_counter() - began
        if took_s >= seconds:
            return done / took_s
