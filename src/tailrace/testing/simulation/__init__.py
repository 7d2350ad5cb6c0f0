"""Seeded simulation: a loop on virtual time, a clock, and a disk that loses what a real one may lose.

    loop = SimulatedLoop()
    disk = SimulatedDisk(random.Random(seed))
    disk.crash_at = 40
    try:
        loop.run(work(disk, SimulatedClock(loop)))
    except Crash:
        loop.abandon()                                # the process is gone, with all of its tasks
        disk.power_cut()                              # or disk.kill()
        loop = SimulatedLoop(started_s=loop.time())   # the next life, on the same disk

The code under test takes its loop from asyncio and its disk, clock and randomness from ports, so it runs here
unchanged. One seed is one history: print the seed of a failure, and run it again with `disk.log = print`.
"""

from tailrace.testing.simulation.calls import Crash
from tailrace.testing.simulation.clock import SimulatedClock
from tailrace.testing.simulation.disk import SimulatedDisk, Synced
from tailrace.testing.simulation.file import SimulatedFile
from tailrace.testing.simulation.inode import SECTOR_BYTES
from tailrace.testing.simulation.loop import Deadlock, Livelock, SimulatedLoop

__all__ = [
    "SECTOR_BYTES",
    "Crash",
    "Deadlock",
    "Livelock",
    "SimulatedClock",
    "SimulatedDisk",
    "SimulatedFile",
    "SimulatedLoop",
    "Synced",
]
