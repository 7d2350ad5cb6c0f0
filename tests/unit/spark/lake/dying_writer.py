"""Writers that are killed. Run by test_killed.py as a process of its own, which can fork: it has no threads.

    dying_writer.py steps  FORMAT FOLDER   a lake in FOLDER/<n> whose writer died at its nth step, for each n
    dying_writer.py random FORMAT FOLDER   a lake in FOLDER, whose writers died at random moments

Prints one JSON line of what it did.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.unit.spark.lake.kit import Kit

STEPS_MAX = 40
ROUNDS = 12
WORK = 8
PACKAGES = {
    "parquet": ["tailrace.spark.lake.writing"],
    "delta": ["tailrace.spark.lake.writing", "tailrace.spark.lake.delta", "deltalake"],
    "iceberg": ["tailrace.spark.lake.writing", "tailrace.spark.lake.iceberg_disk", "pyiceberg.catalog.sql"],
}
Say = Callable[[str], None]


def main() -> None:
    mode, format, folder = sys.argv[1:]
    for name in PACKAGES[format]:  # once, not in every fork
        importlib.import_module(name)
    done = die_at_steps(format, Path(folder)) if mode == "steps" else die_at_random(format, Path(folder))
    print(json.dumps(done))


def die_at_steps(format: str, folder: Path) -> list[list[str]]:
    """For each n, the steps that a writer took before it died at its nth."""
    taken: list[list[str]] = []
    for count in range(1, STEPS_MAX):
        steps = run_child(partial(write_and_die, format, folder / str(count), count))
        if steps[-1] == "end":
            return taken
        taken.append(steps)
    raise AssertionError("a commit has more steps than expected")


def write_and_die(format: str, folder: Path, count: int, say: Say) -> None:
    """Two plain commits, then one that compacts and one that archives; dies at the nth step of those."""
    kit = Kit(root=folder)
    table = kit.open(format)
    kit.archive(table, 0, 10)
    snapshot = kit.archive(table, 10, 20)
    left = [count]

    def on_step(step: str) -> None:
        say(step)
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    table.commit(kit.compaction(snapshot.files), on_step=on_step)
    table.commit(kit.addition(20, 30), on_step=on_step)
    say("end")


def die_at_random(format: str, folder: Path) -> list[list[str]]:
    """Writers that go on where the table ends, one after the other, each killed after a random time."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}", file=sys.stderr)
    chance = random.Random(seed)
    kit = Kit(root=folder)
    return [
        run_child(partial(keep_writing, kit, format), kill_after_s=chance.uniform(0.0, 0.4))
        for _ in range(ROUNDS)
    ]


def keep_writing(kit: Kit, format: str, say: Say) -> None:
    table = kit.open(format)
    say("open")
    table.recover()
    for turn in range(1000):
        snapshot = table.snapshot()
        end = max(snapshot.ends.values(), default=0)
        say(str(end))
        if turn % 4 == 3 and len(snapshot.files) > 1:
            table.commit(kit.compaction(snapshot.files))
        else:
            kit.archive(table, end, end + WORK)


def say_to(pipe: int, word: str) -> None:
    os.write(pipe, f"{word}\n".encode())


def run_child(work: Callable[[Say], None], *, kill_after_s: float | None = None) -> list[str]:
    """Run `work(say)` in a fork, and give what it said."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        work(partial(say_to, writing))
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        words = [said.readline().strip()] if kill_after_s is not None else []
        if kill_after_s is not None:
            time.sleep(kill_after_s)  # the moment of death is what is random here
            os.kill(pid, signal.SIGKILL)
        words += said.read().split()
    os.waitpid(pid, 0)
    return words


if __name__ == "__main__":
    main()
