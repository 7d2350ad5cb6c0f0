"""Ids of delivered messages: what is written is read, in ranges, and everything else is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.subscriptions import Delivery, Source, Subscription, SubscriptionConfig
from tailrace.http.error import HttpError
from tailrace.http.rest.ack_id import AckIds
from tailrace.records import Record


class Place:
    """A partition that a subscription delivers from, as far as ids look at it."""

    def __init__(self, source: Source) -> None:
        self.source = source


class Stub:
    """A subscription, as far as ids look at it."""

    def __init__(self, name: str = "work", *, created_ms: int = 1_700_000_000_000) -> None:
        self.config = replace(SubscriptionConfig.read(name, "jobs", {}), dead_letter_topic="letters")
        self.created_ms = created_ms
        self.sources = [Source("jobs", index, id_prefix="") for index in range(3)]
        self.sources.append(Source("letters", 0, id_prefix=""))
        self.partitions = [Place(source) for source in self.sources]


def ids_of(stub: Stub) -> AckIds:
    return AckIds(cast(Subscription, stub))


def written(stub: Stub, place: int, offset: int, *, epoch: int = 0) -> str:
    record = Record(offset, 0, None, None)
    return ids_of(stub).write(Delivery(stub.sources[place], record, count=1, epoch=epoch))


places = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2**62) | st.integers(0, 50))


@given(st.lists(places, max_size=200))
def test_what_is_written_is_read(chosen: list[tuple[int, int, int]]) -> None:
    stub = Stub()
    named = ids_of(stub).read([written(stub, place, offset, epoch=epoch) for place, epoch, offset in chosen])
    read = set()
    for topic, partition, epoch, ranges in named:
        assert list(ranges) == sorted(ranges)
        read |= {(topic, partition, epoch, offset) for start, end in ranges for offset in range(start, end)}
    assert read == {
        (stub.sources[place].topic, stub.sources[place].partition, epoch, offset)
        for place, epoch, offset in chosen
    }
    assert len(named) == len({(place, epoch) for place, epoch, _ in chosen})


def test_ids_in_a_row_are_one_range() -> None:
    stub = Stub()
    ids = [written(stub, 1, offset) for offset in range(9_999, -1, -1)]
    assert ids_of(stub).read(ids) == [("jobs", 1, 0, [(0, 10_000)])]


def test_an_id_is_short() -> None:
    assert len(written(Stub(), 0, 123_456_789)) < 20


@pytest.mark.parametrize("other", [Stub("other"), Stub(created_ms=1_700_000_000_001)])
def test_an_id_of_another_subscription_is_refused(other: Stub) -> None:
    text = written(other, 0, 5)
    with pytest.raises(HttpError, match=rf"'{text}' is not of subscription work") as error:
        ids_of(Stub()).read([written(Stub(), 0, 5), text])
    assert error.value.details == {"ack_id": text}


TAG = written(Stub(), 0, 5)[:4]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        TAG,
        f"{TAG}m0.0",
        f"{TAG}m0.0.",
        f"{TAG}m0.0.5.",
        f"{TAG}m0.0.5 ",
        f"{TAG}m0.0.5\n",
        f" {TAG}m0.0.5",
        f"{TAG}x0.0.5",
        f"{TAG}M0.0.5",
        f"{TAG.upper()}m0.0.5" if TAG.upper() != TAG else "ABCDm0.0.5",
        f"{TAG}m-1.0.5",
        f"{TAG}m0.0.+5",
        f"{TAG}m0.0.05",
        f"{TAG}m0.0.1e3",
        f"{TAG}m0.0.\u0665",
        f"{TAG}m0.0.{'9' * 20}",
        f"{TAG}m0.0.{'9' * 5000}",
        f"{TAG}m0.0.{2**63 - 1}",
        f"{TAG}m0.{2**63}.0",
        f"{TAG}m3.0.5",
        f"{TAG}m99999999999.0.5",
        f"{TAG}d1.0.5",
        "\0",
        "\ud800",
    ],
)
def test_what_is_no_id_is_refused_by_name(text: str) -> None:
    ids = ids_of(Stub())
    with pytest.raises(HttpError, match="ack_ids: ") as error:
        ids.read([written(Stub(), 0, 5), text])
    assert error.value.details["ack_id"] in (text, text[:100] + "...")
    assert len(str(error.value)) < 300


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    stub = Stub()
    try:
        ((topic, partition, epoch, ranges),) = ids_of(stub).read([text])
    except HttpError:
        return
    place = next(
        place
        for place, source in enumerate(stub.sources)
        if (source.topic, source.partition) == (topic, partition)
    )
    assert written(stub, place, ranges[0][0], epoch=epoch) == text
