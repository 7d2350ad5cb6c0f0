"""A whole broker with transactions on a simulated disk: crashes at every disk call of EndTxn, and at random.

TAILRACE_SEED=n plays one seed of the random ones.
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
from collections.abc import Iterator

import pytest

from tailrace.testing.transfers import EndShape, Failed, play, sweep_end

pytestmark = pytest.mark.usefixtures("untraced")

HISTORIES = 60
ENDS = 4
BLOCK = 500
BLOCKS = 20  # which makes 10,000 histories
SHAPES = [EndShape(client_version=version, commit=commit) for version in (0, 2) for commit in (True, False)]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is played is full of refusals and warnings."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def must_be_clean(failed: Failed | None) -> None:
    if failed is not None:
        lines = "\n".join(failed.trace[-60:])
        pytest.fail(f"seed {failed.seed}: {failed.error}\n{lines}")


def play_all(seeds: range) -> collections.Counter[str]:
    given = os.environ.get("TAILRACE_SEED")
    counts: collections.Counter[str] = collections.Counter()
    for seed in range(int(given), int(given) + 1) if given else seeds:
        history, failed = play(seed)
        must_be_clean(failed)
        counts += history.counts
    return counts


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_crash_at_every_disk_call_of_an_end(shape: EndShape) -> None:
    played = 0
    for seed in range(ENDS):
        crashes, failed = sweep_end(seed, shape, after=False)
        must_be_clean(failed)
        played += crashes
    assert played > 4 * ENDS  # a write and a sync at least, by a kill and by a power cut; some take several


def test_transactions_are_whole_after_crashes() -> None:
    counts = play_all(range(HISTORIES))
    if "TAILRACE_SEED" not in os.environ:
        assert min(counts["committed"], counts["aborted"], counts["looks"]) > HISTORIES
        assert counts["sent"] > 0  # some commits were not answered


@pytest.mark.heavy
@pytest.mark.parametrize(("seed", "shape"), list(itertools.product(range(4), SHAPES)), ids=str)
def test_a_crash_at_every_disk_call_of_an_end_and_of_what_follows(seed: int, shape: EndShape) -> None:
    _, failed = sweep_end(seed, shape)
    must_be_clean(failed)


@pytest.mark.heavy
@pytest.mark.parametrize("block", range(BLOCKS))
def test_transactions_are_whole_after_many_crashes(block: int) -> None:
    play_all(range(block * BLOCK, (block + 1) * BLOCK))
