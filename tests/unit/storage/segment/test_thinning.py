"""Batches thinned in portions are what they are when rebuilt at once; and the turns in which that is done."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.records import (
    Batch,
    BatchError,
    Compression,
    Record,
    build_batch,
    read_batch,
    rebuild_batch,
)
from tailrace.storage.segment.pace import Pace, Steps, wait_whole
from tailrace.storage.segment.thinning import read_plain, thin
from tailrace.testing import FakeClock

HORIZONS = st.sampled_from([None, 0, 1_750_000_000_000])


def batch_of(
    count: int, codec: Compression, *, value_bytes: int = 20, append_time_ms: int | None = None
) -> Batch:
    records = [(1000 + n * 7 % 50, b"k%d" % n, b"v" * value_bytes, (("h", b"x"),)) for n in range(count)]
    return read_batch(
        build_batch(
            records,
            compression=codec,
            base_offset=5,
            leader_epoch=2,
            producer_id=9,
            producer_epoch=1,
            base_sequence=3,
            log_append_time_ms=append_time_ms,
        )
    )


async def thinned(batch: Batch, kept: list[Record], horizon_ms: int | None) -> bytes:
    plain = await read_plain(batch)
    pace = Pace(FakeClock())
    return bytes(await thin(batch, plain, kept, delete_horizon_ms=horizon_ms, pace=pace))


@given(
    codec=st.sampled_from(Compression),
    count=st.integers(1, 700),
    every=st.integers(1, 9),
    horizon_ms=HORIZONS,
    append_time_ms=st.sampled_from([None, 77]),
)
@settings(max_examples=60)
def test_it_is_what_rebuilding_makes(
    codec: Compression, count: int, every: int, horizon_ms: int | None, append_time_ms: int | None
) -> None:
    batch = batch_of(count, codec, append_time_ms=append_time_ms)
    kept = list(batch.records())[every - 1 :: every]
    expected = rebuild_batch(batch, kept, delete_horizon_ms=horizon_ms)
    assert asyncio.run(thinned(batch, kept, horizon_ms)) == expected


@pytest.mark.parametrize("codec", Compression)
def test_large_payloads_come_to_the_same(codec: Compression) -> None:
    batch = batch_of(2000, codec, value_bytes=100)
    kept = list(batch.records())[::2]
    expected = rebuild_batch(batch, kept, delete_horizon_ms=None)
    assert asyncio.run(thinned(batch, kept, None)) == expected


@pytest.mark.parametrize("codec", Compression)
def test_plain_is_the_same_batch_uncompressed(codec: Compression) -> None:
    batch = batch_of(300, codec)
    plain = asyncio.run(read_plain(batch))
    assert plain.compression is Compression.NONE
    assert list(plain.records()) == list(batch.records())
    assert (plain.base_offset, plain.last_offset, plain.producer_id) == (5, 304, 9)


def test_an_emptied_batch_is_plain_whatever_its_codec_was() -> None:
    batch = read_batch(rebuild_batch(batch_of(3, Compression.ZSTD), (), delete_horizon_ms=None))
    assert list(asyncio.run(read_plain(batch)).records()) == []


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_cannot_be_decompressed_is_refused(codec: Compression) -> None:
    data = batch_of(3, codec).data.tobytes()
    with pytest.raises(BatchError):
        asyncio.run(read_plain(read_batch(data[:61] + b"\xff" * (len(data) - 61))))


def test_large_payloads_are_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    async def in_thread(call: object, *args: object, **kwargs: object) -> object:
        called.append(getattr(call, "__name__", ""))
        return call(*args, **kwargs)  # type: ignore[operator]

    monkeypatch.setattr(asyncio, "to_thread", in_thread)
    batch = batch_of(4000, Compression.GZIP, value_bytes=1000)
    asyncio.run(thinned(batch, list(batch.records())[1:], None))
    assert called == ["decompress", "compress"]


# ---- turns


class StepClock(FakeClock):
    """Time passes when it is looked at."""

    def __init__(self, step_ms: float) -> None:
        super().__init__()
        self._looks = 0
        self._step_s = step_ms / 1000

    def monotonic(self) -> float:
        self._looks += 1
        return self._looks * self._step_s


def steps(count: int) -> Steps[str]:
    for _ in range(count):
        yield
    return "done"


@pytest.mark.parametrize(("step_ms", "turns"), [(0.0, 0), (0.26, 25), (1.5, 100)])
def test_a_turn_is_a_millisecond(step_ms: float, turns: int) -> None:
    async def scenario() -> None:
        others = 0

        async def count_turns() -> None:
            nonlocal others
            while True:
                await asyncio.sleep(0)
                others += 1

        counting = asyncio.ensure_future(count_turns())
        await asyncio.sleep(0)
        before = others
        assert await Pace(StepClock(step_ms)).run(steps(100)) == "done"
        counting.cancel()
        assert abs(others - before - turns) <= 1

    asyncio.run(scenario())


def test_whole_work_is_awaited_by_a_cancelled_caller() -> None:
    async def scenario() -> None:
        reached: list[str] = []
        go_on = asyncio.Event()

        async def work() -> None:
            reached.append("begun")
            await go_on.wait()
            reached.append("ended")

        caller = asyncio.ensure_future(wait_whole(work()))
        for _ in range(3):
            await asyncio.sleep(0)
            caller.cancel()
        assert reached == ["begun"]
        assert not caller.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert reached == ["begun", "ended"]

    asyncio.run(scenario())


def test_whole_work_that_fails_says_so() -> None:
    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(wait_whole(fail()))


def test_a_cancelled_caller_is_told_so_also_when_the_work_fails() -> None:
    """With the error alone it would go on, and the wait for its end would never be over."""

    async def scenario() -> None:
        go_on = asyncio.Event()

        async def fail() -> None:
            await go_on.wait()
            raise OSError("no")

        caller = asyncio.ensure_future(wait_whole(fail()))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as told:
            await caller
        assert isinstance(told.value.__cause__, OSError)

    asyncio.run(scenario())
