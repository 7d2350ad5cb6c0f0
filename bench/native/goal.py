"""What native messaging is to reach beside its peers in the same run, as a table."""

from __future__ import annotations

from collections.abc import Iterator

from bench.goal import Goal

_WORDS = {"publish": "confirmed publishes/s", "deliver": "acknowledged deliveries/s"}


def _rate_goals() -> Iterator[Goal]:
    peers = (
        ("redis-pipeline", "Redis in pipelines of 200", 1.2),
        ("redis", "Redis, each by itself", 1.2),
        ("nats", "NATS, which does not sync", 1.0),
        ("rabbitmq", "RabbitMQ", 1.0),
    )
    for load, words in _WORDS.items():
        for peer, title, times in peers:
            yield Goal(
                text=f"{words}, against {title}",
                loads=(load,),
                figure="per_s",
                limit=times,
                ours="tailrace",
                theirs=peer,
            )


def _wait_goals() -> Iterator[Goal]:
    for peer, title, times in (("nats", "NATS, which does not sync", 1.0), ("redis", "Redis", 0.6)):
        yield Goal(
            text=f"one publish waited for, p50, against {title}",
            loads=("one",),
            figure="p50_ms",
            limit=times,
            at_most=True,
            ours="tailrace",
            theirs=peer,
        )
    for ours, title, limit_ms in (("tailrace", "synced", 1.0), ("tailrace-memory", "memory engine", 0.15)):
        yield Goal(
            text=f"publish to handler, p50, {title}",
            loads=("latency",),
            figure="p50_ms",
            limit=limit_ms,
            at_most=True,
            ours=ours,
            theirs=None,
            unit="ms",
        )


GOALS = (*_rate_goals(), *_wait_goals())
