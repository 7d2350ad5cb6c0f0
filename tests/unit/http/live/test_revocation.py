"""A right that is taken away while a tail lasts: it ends with the reason, before another record is shown."""

from __future__ import annotations

import pytest
from tests.rule import Revocable
from tests.unit.http.live.rig import TOPIC, Rig, play
from tests.unit.http.live.test_websocket import end_of, receive

from tailrace.broker.gate import Gate

PATH = f"/api/v1/topics/{TOPIC}/tail"
REFUSAL = f"may not read topic {TOPIC!r}"


async def ruled(rig: Rig) -> tuple[Gate, Revocable]:
    """A gate with a rule that can be changed, for the HTTP listener."""
    await rig.create()
    rule = Revocable()
    rig.service.gate = Gate(rig.broker, authorize=rule)
    return rig.service.gate, rule


def revoke(gate: Gate, rule: Revocable) -> None:
    rule.revoked = True
    gate.rights_changed()


@pytest.mark.parametrize("query", ["", "?offset=earliest", "?partition=0"])
def test_a_tail_ends_before_it_shows_another_record(query: str) -> None:
    async def scenario(rig: Rig) -> None:
        gate, rule = await ruled(rig)
        tail = await rig.tail(query)
        rig.publish(b"a")
        assert (await tail.next()).data["value"] == "a"
        revoke(gate, rule)
        rig.publish(b"secret")
        end = await tail.next()
        assert end.kind == "end" and REFUSAL in end.data["reason"]

    play(scenario)


def test_a_tail_that_waits_notices_a_revocation_that_nobody_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.http.live.tail._ASK_AGAIN_S", 0.02)

    async def scenario(rig: Rig) -> None:
        _, rule = await ruled(rig)
        tail = await rig.tail()
        rule.revoked = True
        assert REFUSAL in (await tail.next()).data["reason"]

    play(scenario)


def test_a_tail_asks_once_while_nothing_changes() -> None:
    async def scenario(rig: Rig) -> None:
        _, rule = await ruled(rig)
        tail = await rig.tail()
        asked = rule.asked
        for _ in range(20):
            rig.publish(b"a")
            await tail.next()
        assert rule.asked == asked

    play(scenario)


def test_a_websocket_tail_ends_with_the_reason() -> None:
    async def scenario(rig: Rig) -> None:
        gate, rule = await ruled(rig)
        async with rig.socket(PATH) as websocket:
            rig.publish(b"a")
            assert (await receive(websocket))["record"]["value"] == "a"
            revoke(gate, rule)
            rig.publish(b"secret")
            assert REFUSAL in (await receive(websocket))["end"]
            code, reason = await end_of(websocket)
            assert code == 1008 and REFUSAL in reason

    play(scenario)
