"""The segment engine on a simulated disk: seeded crashes at random disk calls, checked by an oracle.

TAILRACE_SEED=n plays one seed; `python -m tailrace.testing.crashes --seed n --trace` shows every disk call.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

import pytest

from tailrace.testing.crashes import Failed, Options, play, play_flipped, sweep

pytestmark = pytest.mark.usefixtures("untraced")

HISTORIES = 200
FLIPS = 100
SWEEP_SECONDS = 6.0
FULL_SECONDS = 600.0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Fences and quarantines are what is being played: thousands of lines about them tell nothing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def seeds(count: int) -> range:
    given = os.environ.get("TAILRACE_SEED")
    return range(int(given), int(given) + 1) if given else range(count)


def must_be_clean(failed: Failed | None) -> None:
    if failed is not None:
        lines = "\n".join(failed.trace[-60:])
        pytest.fail(f"seed {failed.seed}: {failed.error}\n{lines}\nReplay with TAILRACE_SEED={failed.seed}")


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_hundreds_of_crashes() -> None:
    crashes = 0
    for seed in seeds(HISTORIES):
        history, failed = play(seed)
        must_be_clean(failed)
        crashes += history.counts["kills"] + history.counts["power cuts"]
    assert crashes > 2 * HISTORIES or "TAILRACE_SEED" in os.environ


@pytest.mark.slow
def test_transactions_survive_hundreds_of_crashes() -> None:
    batches = 0
    for seed in seeds(HISTORIES // 2):
        history, failed = play(seed, Options(transactions=True))
        must_be_clean(failed)
        batches += history.counts["batches of transactions"]
    assert batches > 10 * HISTORIES or "TAILRACE_SEED" in os.environ


@pytest.mark.slow
def test_a_crash_at_every_disk_call_of_a_history() -> None:
    until = time.monotonic() + SWEEP_SECONDS
    for seed in seeds(1000):
        _, failed = sweep(seed, until=until)
        must_be_clean(failed)
        if time.monotonic() > until:
            return


@pytest.mark.slow
def test_a_flipped_bit_is_reported_or_harmless() -> None:
    reported = 0
    for seed in seeds(FLIPS):
        history, failed = play_flipped(seed)
        must_be_clean(failed)
        reported += history.counts["flips reported"]
    assert reported > 0 or "TAILRACE_SEED" in os.environ


def test_the_same_seed_takes_the_same_steps() -> None:
    first, second = play(7)[0], play(7)[0]
    assert first.trace == second.trace
    assert first.counts == second.counts


def test_a_few_histories_without_faults_end_with_everything_there() -> None:
    checked = 0
    for seed in seeds(10):
        history, failed = play(seed, Options(faults=False, crashes=0))
        must_be_clean(failed)
        assert history.counts["recoveries"] == 3  # one that serves, and two that look
        checked += history.counts["served and checked"]
    assert checked > 0 or "TAILRACE_SEED" in os.environ


@pytest.mark.heavy
def test_ten_minutes_of_crashes() -> None:
    until = time.monotonic() + FULL_SECONDS
    seed = 0
    while time.monotonic() < until:
        must_be_clean(play(seed)[1])
        must_be_clean(play_flipped(seed)[1])
        if seed % 20 == 0:
            must_be_clean(sweep(seed, until=until)[1])
        seed += 1
