"""Native messaging under kill -9 of broker, publishers and workers: nothing vanishes, nothing comes back.

Real processes write down what they were told (tailrace.testing.chaos). Workers refuse a tenth of what they
get, say nothing to a tenth and kill themselves on a twentieth; the broker is killed at random moments. In the
end the topic, its dead letters and the notes must agree.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.client import BrokerClient
from tailrace.testing.chaos import Account, BrokerProcess, Crew, Letter, Stored
from tailrace.testing.chaos.notes import ACKNOWLEDGED, PUBLISHED
from tailrace.testing.chaos.publisher import POISON

_TOPIC = "work"
_SUBSCRIPTION = "crew"
_ACK_TIMEOUT_MS = 400
_MAX_DELIVERIES = 5
_PROGRESS_S = 60
_DRAIN_S = 120
_PAUSE_S = 0.05


def wait_until(true: Callable[[], bool], *, within_s: float, what: Callable[[], object]) -> None:
    """Ask until it is so; what other processes do cannot wake us."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, f"not within {within_s:g} s: {what()}"
        time.sleep(_PAUSE_S)


class Chaos:
    """A broker, its publishers, its workers, and the one who kills."""

    def __init__(self, broker: BrokerProcess, crew: Crew, rng: random.Random) -> None:
        self._broker = broker
        self._crew = crew
        self._rng = rng

    def start(self, *, mode: str, partitions: int, publishers: int, workers: int) -> None:
        with BrokerClient(port=self._broker.native_port) as client:
            client.create_topic(_TOPIC, partitions)
            client.create_subscription(
                _SUBSCRIPTION,
                _TOPIC,
                mode=mode,
                ack_timeout_ms=_ACK_TIMEOUT_MS,
                max_deliveries=_MAX_DELIVERIES,
                backoff_ms=20,
                backoff_ms_max=200,
            )
        for number in range(publishers):
            self._crew.start("publisher", f"publisher-{number}", "--topic", _TOPIC)
        for number in range(workers):
            options = ["--subscription", _SUBSCRIPTION, "--ack-timeout-s", str(_ACK_TIMEOUT_MS / 1000)]
            self._crew.start("worker", f"worker-{number}", *options, *(["--pull"] if number % 2 else []))

    def kill_broker(self) -> None:
        """At a random moment after both publishers and workers have got something done in this life."""
        before = self._done()
        wait_until(
            lambda: all(now > then for now, then in zip(self._done(), before, strict=True)),
            within_s=_PROGRESS_S,
            what=lambda: f"published and acknowledged {self._done()}, and before {before}",
        )
        time.sleep(self._rng.random() * 1.5)
        self._crew.check()
        self._broker.kill()
        self._broker.start()

    def drain(self) -> None:
        """Stop publishing, and let the workers go on until everything is settled."""
        self._crew.end(starting_with="publisher")
        wait_until(self._is_settled, within_s=_DRAIN_S, what=self._describe)
        self._crew.end()
        assert self._is_settled(), self._describe()

    def _done(self) -> tuple[int, int]:
        self._broker.check()
        self._crew.check()
        return self._crew.count(PUBLISHED), self._crew.count(ACKNOWLEDGED)

    def _is_settled(self) -> bool:
        found = self._describe()
        return bool(found["lag"] == 0 and found["unacknowledged"] == 0)

    def _describe(self) -> dict[str, Any]:
        with BrokerClient(port=self._broker.native_port) as client:
            found: dict[str, Any] = client.describe_subscription(_SUBSCRIPTION)
        return found


def read_topics(data_dir: Path) -> tuple[list[Stored], list[Letter]]:
    """What is in the topic and among its dead letters, in one more life."""
    with tailrace.Broker(data_dir=data_dir) as broker:
        stored = [
            Stored(id=(record.value or b"").decode(), offset=record.offset) for record in broker.read(_TOPIC)
        ]
        letters = []
        for record in broker.read(f"{_SUBSCRIPTION}.dlq"):
            ours = {name: (value or b"").decode() for name, value in record.headers}
            letter = Letter(
                id=(record.value or b"").decode(),
                origin=(ours["_dlq_topic"], int(ours["_dlq_offset"])),
                reason=ours["_dlq_reason"],
                deliveries=int(ours["_dlq_deliveries"]),
            )
            letters.append(letter)
    return stored, letters


def run_chaos(
    path: Path, seed: int, *, mode: str, partitions: int, kills: int, publishers: int, workers: int
) -> None:
    """Kill the broker so many times, let everything settle, and compare."""
    notes = path / "notes"
    notes.mkdir()
    with BrokerProcess(path) as broker:
        with Crew(notes, port=broker.native_port, seed=seed) as crew:
            chaos = Chaos(broker, crew, random.Random(seed))
            chaos.start(mode=mode, partitions=partitions, publishers=publishers, workers=workers)
            for _ in range(kills):
                chaos.kill_broker()
            chaos.drain()
            account = Account(crew.notes())
        broker.stop()
    stored, letters = read_topics(broker.data_dir)
    account.check(stored, letters, topic=_TOPIC)
    check_meaning(account, stored, letters)


def check_meaning(account: Account, stored: list[Stored], letters: list[Letter]) -> None:
    """What must have happened for the checks to mean anything."""
    print(account, f"{len(stored)} stored, {len(letters)} dead letters")  # shown when the test fails
    dead = {letter.id for letter in letters}
    poison = {each.id for each in stored if each.id.endswith(POISON)}
    assert poison
    assert poison <= dead, "what everybody refuses is a dead letter in the end"
    assert not poison & account.acknowledged.keys()
    assert all(letter.deliveries == _MAX_DELIVERIES for letter in letters)
    assert account.crashes > 0
    assert sum(account.delivered.values()) > len(stored)


MODES = pytest.mark.parametrize(("mode", "partitions"), [("shared", 1), ("key_shared", 3)])


@MODES
@pytest.mark.slow
def test_every_message_is_acknowledged_or_dead_whoever_is_killed(
    tmp_path: Path, seed: int, mode: str, partitions: int
) -> None:
    run_chaos(tmp_path, seed, mode=mode, partitions=partitions, kills=3, publishers=2, workers=4)


@MODES
@pytest.mark.heavy
def test_every_message_is_acknowledged_or_dead_after_sixty_kills(
    tmp_path: Path, seed: int, mode: str, partitions: int
) -> None:
    run_chaos(tmp_path, seed, mode=mode, partitions=partitions, kills=60, publishers=3, workers=6)
