"""Recovery is ended in one of its disk calls, again and again: what was acknowledged is still there."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tailrace.testing.faults import Ledger, WriterProcess

_EPOCHS_PER_LIFE = 10_000


def write_and_kill(path: Path, ledger: Ledger, rng: random.Random, *, life: int) -> None:
    """Leave something to recover from."""
    options = (f"--seed={rng.getrandbits(32)}", f"--epoch={life * _EPOCHS_PER_LIFE}")
    with WriterProcess(path, ledger, *options) as writer:
        assert writer.listen_for(rng.randint(20, 200)), writer.last_words()
        writer.kill()


def recover_and_kill(path: Path, ledger: Ledger, *, call: int) -> bool:
    """Open, and die in the `call`-th call; whether that came before the directory was open."""
    before = ledger.openings
    with WriterProcess(path, ledger, "--turns=0", f"--kill-at={call}") as writer:
        assert writer.wait() != 4, writer.last_words()
    return ledger.openings == before


def kill_recoveries(path: Path, rng: random.Random, *, lives: int, kills: int) -> int:
    """Several crashes, and several killed openings after each; how many of these were not open yet."""
    ledger, early = Ledger(), 0
    for life in range(lives):
        write_and_kill(path, ledger, rng, life=life)
        calls = [1, *(rng.randint(1, 120) for _ in range(kills - 1))]
        early += sum(recover_and_kill(path, ledger, call=call) for call in calls)
    with WriterProcess(path, ledger, "--turns=0") as writer:
        assert writer.wait() == 0, writer.last_words()
    assert ledger.exact()
    return early


@pytest.mark.slow
def test_a_killed_recovery_is_made_again(tmp_path: Path, seed: int) -> None:
    early = kill_recoveries(tmp_path, random.Random(seed), lives=2, kills=4)
    assert early > 0, "no recovery was killed on its way"


@pytest.mark.heavy
def test_many_killed_recoveries_are_made_again(tmp_path: Path, seed: int) -> None:
    assert kill_recoveries(tmp_path, random.Random(seed), lives=15, kills=10) > 0
