"""A right that is taken away from a native member: it is told, leaves, and what it held goes to others."""

from __future__ import annotations

from tests.rule import Revocable
from tests.unit.native.rig import TOPIC, Rig, play

from tailrace.broker.gate import Gate
from tailrace.wire.native import MessageType

PULL = MessageType.PULL


def ruled(rig: Rig) -> tuple[Gate, Revocable]:
    rule = Revocable()
    gate = rig.listener.service.gate = Gate(rig.broker, authorize=rule)
    return gate, rule


def test_a_member_that_is_pushed_messages_leaves_before_the_next_one() -> None:
    async def scenario(rig: Rig) -> None:
        publisher = await rig.connect()
        await rig.create_topic()
        other = await rig.subscriber("others")
        gate, rule = ruled(rig)
        member = await rig.subscriber()
        await publisher.publish(b"first")
        assert bytes((await member.data()).body) == b"first"
        asked = rule.asked
        await publisher.publish(b"second")
        assert bytes((await member.data()).body) == b"second"
        assert rule.asked == asked  # nothing changed
        rule.revoked = True
        gate.rights_changed()
        await publisher.publish(b"secret")
        notice = await member.receive()
        assert notice.type == MessageType.NOTICE
        assert notice.properties["_event"] == "revoked"
        assert "may not read subscription 'workers'" in notice.properties["_reason"]
        workers = rig.broker.subscriptions.known("workers")
        assert not workers.members and workers.unacked in (0, 2, 3)
        assert all(each.machine.in_flight == 0 for each in workers.partitions)
        for body in (b"first", b"second", b"secret"):  # a session that the older gate let in
            assert bytes((await other.data()).body) == body

    play(scenario)


def test_a_member_that_pulls_gets_nothing_more() -> None:
    async def scenario(rig: Rig) -> None:
        publisher = await rig.connect()
        await rig.create_topic()
        gate, rule = ruled(rig)
        client = await rig.connect()
        await client.ask(MessageType.CREATE_SUBSCRIPTION, _subscription="workers", _topic=TOPIC)
        client.send(PULL, _subscription="workers", _count=1, _wait_ms=60_000)
        workers = rig.broker.subscriptions.known("workers")
        await rig.wait_until(lambda: len(workers.members) == 1)
        rule.revoked = True
        gate.rights_changed()
        await publisher.publish(b"secret")
        notice, answer = await client.receive(), await client.receive()
        assert notice.properties["_event"] == "revoked"
        assert answer.type == MessageType.ACK and answer.properties["_count"] == "0"
        assert not workers.members

    play(scenario)
