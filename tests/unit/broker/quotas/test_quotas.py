"""Quotas in virtual time: buckets, Kafka's precedence, what shares a bucket, bounds, changes, the store."""

from __future__ import annotations

import asyncio
import itertools
import math

import pytest

from tailrace.broker.quotas import (
    CONNECTIONS,
    FETCH,
    PRODUCE,
    REQUEST,
    Entity,
    MemoryQuotas,
    Quotas,
    make_entity,
)
from tailrace.broker.quotas import metering as metering_module
from tailrace.broker.quotas.bucket import Bucket
from tailrace.broker.quotas.entity import read_entity
from tailrace.broker.quotas.meter import THROTTLE_S_MAX, Meter
from tailrace.cluster import MemoryStore, MetadataQuotas
from tailrace.cluster.quotas import read_quotas
from tailrace.model import BrokerError, ErrorCode, StorageError


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def quotas_of(clock: Clock, *given: tuple[dict[str, str | None], dict[str, float]]) -> Quotas:
    async def make() -> Quotas:
        quotas = Quotas(monotonic=clock)
        await quotas.alter([(make_entity(names), values) for names, values in given])
        return quotas

    return asyncio.run(make())


def meter_of(quotas: Quotas, user: str, client_id: str = "") -> Meter:
    assert quotas.metering is not None
    found = quotas.metering.meter(user, client_id)
    assert found is not None
    return found


# ---- the bucket


def test_a_bucket_lends_and_is_paid_back_at_its_rate() -> None:
    bucket = Bucket(100.0, 0.0)
    assert bucket.take(100, 0.0) == 0.0  # a second's worth is a burst
    assert bucket.take(50, 0.0) == 0.5
    assert bucket.wait_s(0.25) == 0.25
    assert bucket.take(100, 0.5) == 1.0
    assert bucket.wait_s(1.5) == 0.0
    assert bucket.take(100, 100.0) == 0.0, "what was not used is kept for a second"
    assert bucket.take(1, 100.0) == pytest.approx(0.01), "and no longer"


def test_a_client_that_waits_as_told_keeps_to_the_rate_exactly() -> None:
    bucket, now, sent = Bucket(1000.0, 0.0), 0.0, 0
    for _ in range(1000):
        sent += 700
        now += bucket.take(700, now)
    assert sent - 1000.0 == pytest.approx(now * 1000.0)


def test_a_debt_stays_when_the_rate_changes() -> None:
    bucket = Bucket(100.0, 0.0)
    assert bucket.take(300, 0.0) == 2.0
    bucket.set_rate(1000.0, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(0.2)


# ---- entities


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"user": "alice"}, "user=alice"),
        ({"client-id": None, "user": "a,b=*/é"}, "user=a%2Cb%3D%2A%2F%C3%A9,client-id=*"),
        ({"user": None, "client-id": "*"}, "user=*,client-id=%2A"),
        ({"ip": "::0001"}, "ip=%3A%3A1"),
        ({"ip": None}, "ip=*"),
    ],
)
def test_an_entity_has_one_text(names: dict[str, str | None], text: str) -> None:
    entity = make_entity(names)
    assert str(entity) == text
    assert read_entity(text) == entity


@pytest.mark.parametrize(
    "names",
    [{}, {"group": "a"}, {"ip": "10.0.0.1", "user": "a"}, {"ip": "host"}, {"user": ""}, {"user": "a" * 257}],
)
def test_what_is_no_entity_is_refused(names: dict[str, str | None]) -> None:
    with pytest.raises(BrokerError) as caught:
        make_entity(names)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("text", ["", "alice", "user=", "user=a,user=b", "user=a,", "group=a"])
def test_what_is_no_text_of_an_entity_is_refused(text: str) -> None:
    with pytest.raises(BrokerError):
        read_entity(text)


# ---- values


@pytest.mark.parametrize(
    ("names", "values"),
    [
        ({"user": "a"}, {CONNECTIONS: 1.0}),
        ({"ip": "10.0.0.1"}, {PRODUCE: 1.0}),
        ({"user": "a"}, {"controller_mutation_rate": 1.0}),
        *(({"user": "a"}, {PRODUCE: each}) for each in (0.0, -1.0, math.nan, math.inf, 1e18)),
        ({"user": "a"}, {REQUEST: 1e9}),
        *(({"ip": None}, {CONNECTIONS: each}) for each in (0.5, math.nan, math.inf, 0.0)),
    ],
)
def test_values_that_make_no_sense_are_refused(
    names: dict[str, str | None], values: dict[str, float]
) -> None:
    with pytest.raises(BrokerError) as caught:
        quotas_of(Clock(), (names, values))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


# ---- who has which


LEVELS: list[dict[str, str | None]] = [  # Kafka's order
    {"user": "alice", "client-id": "etl"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "etl"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "etl"},
    {"client-id": None},
]


@pytest.mark.parametrize(("better", "worse"), list(itertools.combinations(range(len(LEVELS)), 2)))
def test_the_most_specific_entity_decides(better: int, worse: int) -> None:
    clock = Clock()
    quotas = quotas_of(clock, (LEVELS[better], {PRODUCE: 1000.0}), (LEVELS[worse], {PRODUCE: 10.0}))
    meter = meter_of(quotas, "alice", "etl")
    assert meter.produced(1000) == 0.0
    assert meter.produced(1000) == 1.0


def test_each_quota_is_decided_by_itself() -> None:
    quotas = quotas_of(
        Clock(), ({"user": "alice"}, {PRODUCE: 10.0}), ({"client-id": None}, {PRODUCE: 1.0, FETCH: 5.0})
    )
    meter = meter_of(quotas, "alice", "etl")
    assert (meter.produced(20), meter.fetched(10), meter.served(99.0)) == (1.0, 1.0, 0.0)


def test_who_has_no_quota_has_no_meter() -> None:
    quotas = quotas_of(Clock(), ({"user": "alice"}, {PRODUCE: 10.0}), ({"client-id": "etl"}, {PRODUCE: 1.0}))
    assert quotas.metering is not None
    assert quotas.metering.meter("bob", "other") is quotas.metering.meter("bob", "") is None
    assert quotas.connection_rates is None
    assert Quotas(monotonic=Clock()).metering is None


@pytest.mark.parametrize(
    ("names", "other", "is_shared"),
    [
        ({"user": "alice"}, ("alice", "b"), True),
        ({"user": None}, ("alice", "b"), True),
        ({"user": None}, ("bob", "a"), False),
        ({"user": "alice", "client-id": None}, ("alice", "b"), False),
        ({"user": None, "client-id": None}, ("bob", "a"), False),
        ({"client-id": "a"}, ("bob", "a"), True),
        ({"client-id": None}, ("bob", "a"), True),
        ({"client-id": None}, ("alice", "b"), False),
    ],
)
def test_clients_share_a_bucket_by_the_parts_of_the_entity(
    names: dict[str, str | None], other: tuple[str, str], is_shared: bool
) -> None:
    quotas = quotas_of(Clock(), (names, {FETCH: 10.0}))
    assert meter_of(quotas, "alice", "a").fetched(110) == 10.0
    found = quotas.metering.meter(*other) if quotas.metering else None
    assert found is not None and (found.debt_s() > 0) is is_shared


def test_percent_are_of_the_time_of_one_thread() -> None:
    clock = Clock()
    meter = meter_of(quotas_of(clock, ({"user": "alice"}, {REQUEST: 25.0})), "alice")
    assert meter.served(0.25) == 0.0
    assert meter.served(0.25) == 1.0


def test_a_wait_is_bounded_and_the_rest_of_the_debt_stays() -> None:
    clock = Clock()
    meter = meter_of(quotas_of(clock, ({"user": "alice"}, {PRODUCE: 10.0})), "alice")
    assert meter.produced(10_010) == THROTTLE_S_MAX
    clock.now += THROTTLE_S_MAX
    assert meter.debt_s() == 1000.0 - THROTTLE_S_MAX
    assert meter.produced(1) == THROTTLE_S_MAX


def test_an_answer_is_cut_to_what_the_quota_allows_in_a_second() -> None:
    quotas = quotas_of(Clock(), ({"user": "a"}, {FETCH: 1e6}), ({"user": "b"}, {FETCH: 1.0}))
    assert meter_of(quotas, "a").fetch_bytes_max == 1_000_000
    assert meter_of(quotas, "b").fetch_bytes_max == 4096


# ---- addresses


def test_addresses_connect_at_their_rate() -> None:
    clock = Clock()
    quotas = quotas_of(clock, ({"ip": None}, {CONNECTIONS: 2.0}), ({"ip": "10.0.0.9"}, {CONNECTIONS: 100.0}))
    rates = quotas.connection_rates
    assert rates is not None and quotas.metering is None
    assert [rates.admits("10.0.0.1") for _ in range(4)] == [True, True, False, False]
    assert rates.admits("10.0.0.2"), "each address has its own"
    assert [rates.admits("10.0.0.9") for _ in range(9)] == [True] * 9
    clock.now += 0.5
    assert [rates.admits("10.0.0.1") for _ in range(2)] == [True, False], "refused ones cost nothing"
    assert quotas.counts.connections == 3


# ---- changes


def test_a_change_counts_at_once_and_is_told() -> None:
    async def run() -> None:
        clock, told = Clock(), []
        quotas = Quotas(monotonic=clock)
        quotas.watch(lambda: told.append(quotas.metering is not None))
        alice = make_entity({"user": "alice"})
        await quotas.alter([(alice, {PRODUCE: 10.0, FETCH: 5.0})])
        assert meter_of(quotas, "alice").produced(20) == 1.0
        await quotas.alter([(alice, {PRODUCE: 100.0})])
        assert meter_of(quotas, "alice").debt_s() == pytest.approx(0.1)
        await quotas.alter([(alice, {PRODUCE: None})])
        assert quotas[alice] == {FETCH: 5.0}
        await quotas.alter([(alice, {FETCH: None, PRODUCE: None})])
        assert dict(quotas) == {} and told == [True, True, True, False]

    asyncio.run(run())


def test_a_change_with_an_error_changes_nothing() -> None:
    async def run() -> None:
        store = MemoryQuotas()
        quotas = Quotas(store, monotonic=Clock())
        alice = make_entity({"user": "alice"})
        with pytest.raises(BrokerError):
            await quotas.alter([(alice, {PRODUCE: 10.0}), (make_entity({"ip": None}), {PRODUCE: 10.0})])
        await quotas.alter([(alice, {PRODUCE: 10.0})], validate_only=True)
        assert dict(quotas) == await store.load() == {}

    asyncio.run(run())


def test_what_is_kept_of_clients_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering_module, "_KEPT_MAX", 10)
    quotas = quotas_of(Clock(), ({"client-id": None}, {PRODUCE: 10.0}))
    for number in range(100):
        meter_of(quotas, "alice", f"client-{number}")
    assert quotas.metering is not None
    assert len(quotas.metering._meters) == len(quotas.metering._buckets._buckets) == 10


def test_an_error_of_the_store_ends_the_broker() -> None:
    class Broken(MemoryQuotas):
        async def save(self, changed: object) -> None:
            raise StorageError("write", "x", "broken")

    async def run() -> None:
        failures: list[BaseException] = []
        quotas = Quotas(Broken(), monotonic=Clock(), on_failure=failures.append)
        with pytest.raises(StorageError):
            await quotas.alter([(make_entity({"user": "a"}), {PRODUCE: 10.0})])
        assert len(failures) == 1 and not quotas

    asyncio.run(run())


# ---- the metadata store


def test_quotas_come_back_as_they_were_stored() -> None:
    async def run() -> None:
        store = MemoryStore()
        given: dict[Entity, dict[str, float]] = {
            make_entity({"user": "a/b,=é", "client-id": None}): {PRODUCE: 10.0, REQUEST: 2.5},
            make_entity({"ip": "::1"}): {CONNECTIONS: 5.0},
        }
        gone = make_entity({"user": "gone"})
        await MetadataQuotas(store).save({**given, gone: {FETCH: 1.0}})
        await MetadataQuotas(store).save({gone: {}})
        assert await MetadataQuotas(store).load() == given

    asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("quotas/user=a", "{}"),
        ("quotas/user=a", "[]"),
        ("quotas/user=a", "no"),
        ("quotas/user=a", '{"producer_byte_rate": "1"}'),
        ("quotas/user=a", '{"producer_byte_rate": true}'),
        ("quotas/user=a", '{"producer_byte_rate": -1.0}'),
        ("quotas/user=a", '{"unknown": 1.0}'),
        ("quotas/group=a", '{"producer_byte_rate": 1.0}'),
    ],
)
def test_a_bad_record_is_refused_by_its_key(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{key} is not a quota as this program writes it$"):
        read_quotas(key, text)
