"""The seed of tests that draw: the same one in every default run, so that a run fails for its change alone.

`scripts/test --full` sets TAILRACE_TEST_NEW_SEEDS, and every test draws from a new seed: there new cases are
found. TAILRACE_SEED=n in the environment replays one.
"""

from __future__ import annotations

import os
import random

_DEFAULT = 1


def seed_of_run() -> int:
    """Returns the seed, and prints it: pytest shows it when the test fails."""
    seed = _DEFAULT
    if chosen := os.environ.get("TAILRACE_SEED"):
        seed = int(chosen)
    elif "TAILRACE_TEST_NEW_SEEDS" in os.environ:
        seed = random.SystemRandom().getrandbits(32)
    print(f"this was TAILRACE_SEED={seed}")
    return seed
