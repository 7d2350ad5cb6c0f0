"""The table of loads: what is chosen, and for whom it is."""

from __future__ import annotations

import pytest
from bench.load import CLIENT, LATENCY, LOADS, PRODUCERS, WIRE, plan_loads
from bench.target import PEERS, plan_targets, servers_of


def test_every_load_has_a_name_of_its_own() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)


def test_without_a_word_everything_runs() -> None:
    assert plan_loads(only=(), quick=False) == list(LOADS)


def test_quick_leaves_out_most_shapes_of_the_client_and_nothing_else() -> None:
    chosen = plan_loads(only=(), quick=True)

    assert [load for load in LOADS if load not in chosen and load not in CLIENT] == []
    assert len([load for load in chosen if load in CLIENT]) == 3


@pytest.mark.parametrize(("word", "kind"), [("wire", WIRE), ("producers", PRODUCERS), ("latency", LATENCY)])
def test_a_kind_is_all_its_loads(word: str, kind: tuple[object, ...]) -> None:
    assert plan_loads(only=(word,), quick=True) == list(kind)


def test_words_are_the_beginnings_of_names() -> None:
    names = [load.name for load in plan_loads(only=("fetch-1m", "unbatched"), quick=False)]

    assert names == ["unbatched", "fetch-1m-1", "fetch-1m-4"]


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="no load is called 'fech'"):
        plan_loads(only=("fech",), quick=False)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(ValueError, match="no peer is called 'pulsar'"):
        plan_targets(["kafka", "pulsar"])


def test_a_server_with_two_targets_is_started_once() -> None:
    targets = plan_targets(["kafka"])

    assert [target.name for target in targets] == ["tailrace", "tailrace-os", "kafka", "kafka-durable"]
    assert [server.name for server in servers_of(targets)] == ["tailrace", "tailrace-os", "kafka"]


def test_loads_that_are_not_about_durability_leave_durable_targets_out() -> None:
    takers = [target.name for target in plan_targets(PEERS) if target.takes(WIRE[0])]

    assert takers == ["tailrace-os", "kafka", "redis", "nats", "rabbitmq"]


def test_a_kafka_client_speaks_to_those_who_speak_kafka() -> None:
    takers = [target.name for target in plan_targets(PEERS) if target.takes(CLIENT[0])]

    assert takers == ["tailrace", "tailrace-os", "kafka"]
