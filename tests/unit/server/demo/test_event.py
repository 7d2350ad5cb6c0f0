"""The made-up events of the demo: what a reader of the topics may rely on, over a few thousand of them."""

from __future__ import annotations

import json
import random
from itertools import islice

from tailrace.server.demo.event import Event, Shop


def some(count: int = 5_000, *, seed: int = 1) -> list[Event]:
    return list(islice(Shop(random.Random(seed)).events(), count))


def test_of_five_events_one_is_an_order_one_a_payment_and_three_are_clicks() -> None:
    topics = [event.topic for event in some()]
    assert {topic: topics.count(topic) for topic in set(topics)} == {
        "orders": 1_000,
        "payments": 1_000,
        "clicks": 3_000,
    }


def test_values_are_small_json_objects_and_keys_say_what_belongs_together() -> None:
    for event in some():
        body = json.loads(event.value)
        key = "session" if event.topic == "clicks" else "customer"
        assert event.key == body[key].encode()
        assert len(event.value) < 200


def test_every_payment_pays_an_order_of_the_same_customer_in_full() -> None:
    orders: dict[str, dict[str, object]] = {}
    for event in some():
        body = json.loads(event.value)
        if event.topic == "orders":
            assert body["order"] not in orders
            orders[body["order"]] = body
        elif event.topic == "payments":
            order = orders[body["order"]]
            assert (body["customer"], body["amount"]) == (order["customer"], order["total"])


def test_the_same_seed_gives_the_same_events() -> None:
    assert some(100, seed=7) == some(100, seed=7)
    assert some(100, seed=7) != some(100, seed=8)
