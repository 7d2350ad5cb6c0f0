"""How many records of 100 bytes either twin of the codec encodes and decodes in a second.

One process uses one twin, chosen at import, so each is measured in a process of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.bench.batch import RECORD_BYTES
from tailrace.bench.process import run_python
from tailrace.records import ACCELERATED, NewRecord, build_batch, read_batch

RECORDS = 1000
_SAMPLES = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinRates:
    """Records per second; `accelerated` says which twin it was."""

    accelerated: bool
    encode_per_s: int
    decode_per_s: int


async def measure_twin(*, pure: bool, seconds: float) -> TwinRates | None:
    """One twin in a new process; None if the compiled one was asked for and is not there."""
    environment = {"TAILRACE_PURE": "1" if pure else "0"}
    printed = await run_python("tailrace.bench.child", "codec", str(seconds), environment=environment)
    rates = TwinRates(**json.loads(printed))
    return rates if rates.accelerated != pure else None


def measure_codec(*, seconds: float) -> TwinRates:
    """The twin that this process uses; `seconds` is for encoding and decoding together, about."""
    value = bytes(RECORD_BYTES)
    records: list[NewRecord] = [(number, None, value, ()) for number in range(RECORDS)]
    batch = read_batch(build_batch(records))

    def decode() -> None:
        for _ in batch.records():
            pass

    return TwinRates(
        accelerated=ACCELERATED,
        encode_per_s=_records_per_s(lambda: build_batch(records), seconds / 2),
        decode_per_s=_records_per_s(decode, seconds / 2),
    )


def _records_per_s(work: Callable[[], object], seconds: float) -> int:
    """The best of several short samples: it is all processor, so nothing but other work makes one slower."""
    return round(max(_sample(work, seconds / _SAMPLES) for _ in range(_SAMPLES)) * RECORDS)


def _sample(work: Callable[[], object], seconds: float) -> float:
    """Calls per second, at least one of them."""
    calls = 0
    started = time.perf_counter()
    while calls == 0 or time.perf_counter() - started < seconds:
        work()
        calls += 1
    return calls / (time.perf_counter() - started)
