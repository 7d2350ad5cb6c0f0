"""Run crash histories for a while, or one seed again.

python -m tailrace.testing.crashes --seconds 600
python -m tailrace.testing.crashes --seed 4711 --trace
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import time

from tailrace.testing.crashes.history import Failed, Options, play, play_flipped, sweep


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tailrace.testing.crashes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this seed alone")
    parser.add_argument("--trace", action="store_true", help="print every disk call of a failed history")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # quarantines and fences are what is being played
    if arguments.seed is not None:
        return _tell(_play(arguments.seed, 60)[1], trace=arguments.trace)
    until = time.monotonic() + arguments.seconds
    counts: collections.Counter[str] = collections.Counter()
    seed, failed = arguments.first, None
    while failed is None and time.monotonic() < until:
        played, failed = _play(seed, until - time.monotonic())
        counts += played
        seed += 1
    print(f"seeds {arguments.first} to {seed - 1}: {dict(counts)}")
    return _tell(failed, trace=arguments.trace)


def _play(seed: int, seconds: float) -> tuple[collections.Counter[str], Failed | None]:
    """Sweeps, flips, histories with rebuilds and plain ones take turns, by the seed alone."""
    if seed % 20 == 0:
        calls, failed = sweep(seed, until=time.monotonic() + seconds)
        return collections.Counter({"swept calls": calls}), failed
    history, failed = play_flipped(seed) if seed % 4 == 1 else play(seed, Options(rebuild=seed % 4 == 3))
    return history.counts, failed


def _tell(failed: Failed | None, *, trace: bool) -> int:
    if failed is None:
        print("clean")
        return 0
    if trace:
        print("\n".join(failed.trace))
    print(f"FAILED seed {failed.seed}: {failed.error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
