"""Every load, and what is to be reached, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PRODUCERS = (1, 10, 100)
PARTITIONS = 8
WAYS = {"tv1": "confluent-kafka", "tv2": "raw frames, KIP-890 part 2"}
LAGS = {
    "plain-uncommitted": (False, 0),
    "plain-committed": (False, 1),
    "transaction-uncommitted": (True, 0),
    "transaction-committed": (True, 1),
}
"""Whether the records are written in transactions, and the isolation level of the reader."""

Figures = Mapping[str, Mapping[str, float]]  # by load, of one server


@dataclass(frozen=True, slots=True)
class Load:
    """One load of one server."""

    name: str
    job: Mapping[str, object]


def plan_loads() -> list[Load]:
    """All of them, in the order in which they run."""
    rates = [Load(f"{way}-{count}", {"role": way, "producers": count}) for way in WAYS for count in PRODUCERS]
    lags = [
        Load(f"lag-{name}", {"role": "lag", "transactional": transactional, "isolation": isolation})
        for name, (transactional, isolation) in LAGS.items()
    ]
    return rates + lags


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio that is to be reached: ours over theirs, or of two loads of ours."""

    text: str
    limit: float
    at_most: bool
    value: float | None

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        met = self.value <= self.limit if self.at_most else self.value >= self.limit
        return "met" if met else "missed"


def judge(figures: Mapping[str, Figures]) -> list[Goal]:
    """Every goal with what was reached."""
    ours, theirs = figures.get("tailrace", {}), figures.get("kafka", {})
    goals = []
    for way, title in WAYS.items():
        for count in PRODUCERS:
            name = f"{way}-{count}"
            what = f"{title}, {count} producer{'s' * (count > 1)}"
            for figure, text, limit in (("per_s", "transactions/s", 2.0), ("p99_ms", "p99", 0.5)):
                value = _ratio(ours.get(name, {}).get(figure), theirs.get(name, {}).get(figure))
                goals.append(Goal(f"{what}: {text} of Kafka's", limit, figure != "per_s", value))
    lags = [ours.get(f"lag-plain-{way}", {}).get("p50_ms") for way in ("committed", "uncommitted")]
    goals.append(Goal("end to end p50, read_committed of read_uncommitted", 1.2, True, _ratio(*lags)))
    return goals


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds, of seconds."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        name: ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000
        for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99))
    }
