"""What the requests of one client are charged to, and what was throttled so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tailrace.broker.quotas.bucket import BURST_S, Bucket
from tailrace.broker.quotas.quota import FETCH, PRODUCE, REQUEST

THROTTLE_S_MAX: Final = 15.0
"""A client waits so long at most for one request: most give up after 30 s. The rest of the debt stays."""
_NO_BOUND: Final = 1 << 62
_FETCH_BYTES_MIN: Final = 4096


@dataclass(slots=True)
class ThrottleCounts:
    """The numbers only grow; by the name of the quota."""

    requests: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    connections: int = 0  # that were refused

    def note(self, quota: str, wait_s: float) -> None:
        self.requests[quota] = self.requests.get(quota, 0) + 1
        self.seconds[quota] = self.seconds.get(quota, 0.0) + wait_s


class Meter:
    """The buckets of one client; None where it has no such quota. Each call returns the seconds to wait."""

    __slots__ = ("_counts", "_fetch", "_monotonic", "_produce", "_request", "fetch_bytes_max")

    def __init__(
        self,
        *,
        produce: Bucket | None,
        fetch: Bucket | None,
        request: Bucket | None,
        monotonic: Callable[[], float],
        counts: ThrottleCounts,
    ) -> None:
        self._produce, self._fetch, self._request = produce, fetch, request
        self._monotonic = monotonic
        self._counts = counts
        self.fetch_bytes_max = _fetch_bytes_max(fetch)
        """What one answer should have at most, so that it is paid for soon; as in Kafka."""

    def produced(self, size: int) -> float:
        """So many bytes came in."""
        return self._take(PRODUCE, self._produce, size)

    def fetched(self, size: int) -> float:
        """So many bytes go out."""
        return self._take(FETCH, self._fetch, size)

    def served(self, seconds: float) -> float:
        """The broker's thread was busy for so long."""
        return self._take(REQUEST, self._request, seconds)

    def debt_s(self) -> float:
        """How long until nothing is owed."""
        now = self._monotonic()
        buckets = (self._produce, self._fetch, self._request)
        return max((each.wait_s(now) for each in buckets if each is not None), default=0.0)

    def _take(self, quota: str, bucket: Bucket | None, amount: float) -> float:
        if bucket is None or not amount:
            return 0.0
        wait_s = min(bucket.take(amount, self._monotonic()), THROTTLE_S_MAX)
        if wait_s:
            self._counts.note(quota, wait_s)
        return wait_s


def _fetch_bytes_max(bucket: Bucket | None) -> int:
    return _NO_BOUND if bucket is None else max(int(bucket.rate * BURST_S), _FETCH_BYTES_MIN)
