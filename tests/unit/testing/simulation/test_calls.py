"""When calls to the simulated disk take effect: interleavings by seed, traces, cancelled callers."""

from __future__ import annotations

import asyncio
import random

import pytest

from tailrace.testing.simulation import Crash, SimulatedDisk, SimulatedLoop


async def _writer(disk: SimulatedDisk, name: str) -> None:
    file = await disk.create(name)
    for number in range(5):
        await file.write(number * 100, [name.encode() * 100])
    await file.sync()
    await disk.sync_directory("")


async def _writers(disk: SimulatedDisk) -> None:
    await asyncio.gather(*(_writer(disk, name) for name in "abc"))


def _trace(seed: int) -> list[str]:
    trace: list[str] = []
    disk = SimulatedDisk(random.Random(seed), log=trace.append)
    disk.sync_error_chance = 0.05
    disk.crash_at = random.Random(seed).randrange(60)
    loop = SimulatedLoop()
    try:
        loop.run(_writers(disk))
    except (Crash, OSError) as error:
        trace.append(repr(error))
    loop.abandon()
    disk.power_cut()
    trace += [f"{path} {disk.content(path)!r}" for path in disk.paths()]
    trace.append(f"{loop.time()} {loop.steps} {disk.rng.random()}")
    return trace


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in range(30):
        assert _trace(seed) == _trace(seed)


def test_other_seeds_give_other_interleavings() -> None:
    def order(seed: int) -> str:
        paths: list[str] = []
        disk = SimulatedDisk(random.Random(seed), log=lambda line: paths.append(line.split()[3]))
        SimulatedLoop().run(_writers(disk))
        return "".join(paths)

    assert len({order(seed) for seed in range(30)}) > 25


def test_a_trace_names_call_time_and_place() -> None:
    async def main() -> None:
        file = await disk.create("a")
        await file.write(7, [b"xyz"])

    trace: list[str] = []
    disk = SimulatedDisk(random.Random(1), log=trace.append)
    SimulatedLoop(started_s=3).run(main())
    assert [line.split()[0] for line in trace] == ["1", "2"]
    assert all(float(line.split()[1]) >= 3 for line in trace)
    assert trace[1].endswith("write a 3 at 7")


def test_calls_of_concurrent_tasks_overtake_each_other() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await disk.create("a")
        await asyncio.gather(file.write(0, [b"1"]), file.write(0, [b"2"]))

    seen = set()
    for seed in range(50):
        disk = SimulatedDisk(random.Random(seed))
        SimulatedLoop().run(main(disk))
        seen.add(disk.content("a"))
    assert seen == {b"1", b"2"}


def test_some_calls_happen_at_once_and_some_take_long() -> None:
    async def main() -> set[str]:
        loop, kinds = asyncio.get_running_loop(), set()
        for _ in range(500):
            turns: list[bool] = []
            before_s = loop.time()
            loop.call_soon(turns.append, True)
            await disk.list("")
            took_s = loop.time() - before_s
            kinds.add("long" if took_s > 0.01 else "short" if took_s else "a turn" if turns else "at once")
            await asyncio.sleep(0)
        return kinds

    disk = SimulatedDisk(random.Random(1))
    assert SimulatedLoop().run(main()) == {"at once", "a turn", "short", "long"}


def test_a_call_happens_although_its_caller_was_cancelled() -> None:
    async def main(disk: SimulatedDisk) -> None:
        file = await disk.create("a")
        buffer = bytearray(b"early")
        writing = asyncio.get_running_loop().create_task(file.write(0, [buffer]))
        await asyncio.sleep(0)
        writing.cancel()
        buffer[:] = b"later"
        await asyncio.sleep(1)

    seen = set()
    for seed in range(50):
        disk = SimulatedDisk(random.Random(seed))
        SimulatedLoop().run(main(disk))
        seen.add(disk.content("a"))
    assert seen == {b"early", b"later"}


def test_an_error_of_a_call_whose_caller_was_cancelled_reaches_nobody() -> None:
    async def main(disk: SimulatedDisk) -> None:
        opening = asyncio.get_running_loop().create_task(disk.open("no"))
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        await asyncio.sleep(1)

    for seed in range(20):
        SimulatedLoop().run(main(SimulatedDisk(random.Random(seed))))


def test_a_call_outside_of_a_loop_is_refused() -> None:
    work = SimulatedDisk(random.Random(1)).list("")
    with pytest.raises(Crash, match="outside"):
        work.send(None)


def test_another_loop_is_refused() -> None:
    async def main() -> None:
        with pytest.raises(AssertionError, match="simulated loop"):
            await SimulatedDisk(random.Random(1)).list("")

    asyncio.run(main())
