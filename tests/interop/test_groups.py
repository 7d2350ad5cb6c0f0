"""Consumer groups: members join, leave and die; offsets are committed and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.interop.clients.port import (
    Client,
    ClientError,
    Consumer,
    Feature,
    Message,
    Reading,
    TopicPartition,
    needs,
)
from tests.interop.deadline import wait_until
from tests.interop.raw import committed

_REBALANCE_S = 90
_SESSION_MS = 6000  # the shortest that a broker takes by default
_FENCED_INSTANCE = 82


def all_of(topic: str, partitions: int = 4) -> set[TopicPartition]:
    """Every partition of it."""
    return {TopicPartition(topic, index) for index in range(partitions)}


def wait_shared(members: Sequence[Consumer], whole: set[TopicPartition]) -> list[set[TopicPartition]]:
    """Until the members own every partition once and each owns some."""
    shares: list[set[TopicPartition]] = []

    def shared() -> bool:
        shares[:] = [member.assignment() for member in members]
        return all(shares) and sum(map(len, shares)) == len(whole) and set().union(*shares) == whole

    wait_until(shared, within_s=_REBALANCE_S, what=lambda: f"the shares are {shares}")
    return shares


def values(count: int, *, start: int = 0) -> list[Message]:
    """Numbered messages over four partitions."""
    return [Message(value=b"%d" % n, partition=n % 4) for n in range(start, start + count)]


@needs(Feature.GROUPS)
def test_members_share_the_partitions_and_read_everything_once(
    client: Client, reference: Client, wide_topic: str, group: str
) -> None:
    members = [client.open(Reading(topics=[wide_topic], group=group)) for _ in range(3)]
    shares = wait_shared(members, all_of(wide_topic))
    assert sorted(map(len, shares)) == [1, 1, 2]
    reference.produce(wide_topic, values(40))
    got = [
        record
        for member, share in zip(members, shares, strict=True)
        for record in member.take(10 * len(share))
    ]
    assert sorted(int(record.value or b"") for record in got) == list(range(40))
    for member in members:
        member.close()


@needs(Feature.GROUPS)
def test_a_leaving_member_hands_its_partitions_over(
    client: Client, reference: Client, wide_topic: str, group: str
) -> None:
    stays = client.open(Reading(topics=[wide_topic], group=group))
    leaves = client.open(Reading(topics=[wide_topic], group=group, session_ms=45_000))
    wait_shared([stays, leaves], all_of(wide_topic))
    leaves.close()
    wait_shared([stays], all_of(wide_topic))
    reference.produce(wide_topic, values(8))
    assert {record.value for record in stays.take(8)} == {b"%d" % n for n in range(8)}
    stays.close()


@pytest.mark.slow
@pytest.mark.costly
@needs(Feature.GROUPS)
def test_a_dying_members_partitions_are_taken_over(
    client: Client, reference: Client, wide_topic: str, group: str
) -> None:
    reading = Reading(topics=[wide_topic], group=group, session_ms=_SESSION_MS)
    doomed_client = client.another()
    survivor, doomed = client.open(reading), doomed_client.open(reading)
    wait_shared([survivor, doomed], all_of(wide_topic))
    doomed_client.kill()
    wait_shared([survivor], all_of(wide_topic))
    reference.produce(wide_topic, values(8))
    assert {record.value for record in survivor.take(8)} == {b"%d" % n for n in range(8)}
    survivor.close()


@needs(Feature.GROUPS, Feature.COMMIT)
def test_the_next_consumer_resumes_where_the_last_one_committed(
    client: Client, reference: Client, topic: str, group: str, bootstrap: str
) -> None:
    where = TopicPartition(topic, 0)
    reference.produce(topic, [Message(value=b"%d" % n, partition=0) for n in range(20)])
    first = client.open(Reading(topics=[topic], group=group))
    assert [record.offset for record in first.take(20)] == list(range(20))
    first.commit({where: 12}, metadata="halfway, più o meno")
    first.close()
    offset, note = committed(bootstrap, group, topic, 0)
    assert (offset, note.rstrip("\0")) == (12, "halfway, più o meno")  # librdkafka sends C's final zero along
    second = client.open(Reading(topics=[topic], group=group))
    assert [record.offset for record in second.take(8)] == list(range(12, 20))
    second.close()


@needs(Feature.GROUPS, Feature.COMMIT)
def test_a_later_commit_replaces_an_earlier_one(
    client: Client, reference: Client, wide_topic: str, group: str
) -> None:
    member = client.open(Reading(topics=[wide_topic], group=group))
    wait_shared([member], all_of(wide_topic))
    reference.produce(wide_topic, values(40))
    member.take(40)
    member.commit({TopicPartition(wide_topic, 0): 3, TopicPartition(wide_topic, 1): 5})
    member.commit({TopicPartition(wide_topic, 0): 7})
    found = {where: offset for where, (offset, _) in reference.admin.group_offsets(group).items()}
    assert found == {TopicPartition(wide_topic, 0): 7, TopicPartition(wide_topic, 1): 5}
    member.close()


@needs(Feature.GROUPS, Feature.STATIC, Feature.REVOKED)
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    client: Client, wide_topic: str, group: str
) -> None:
    stays = client.open(Reading(topics=[wide_topic], group=group, instance_id="stays", session_ms=30_000))
    second_client = client.another()
    reading = Reading(topics=[wide_topic], group=group, instance_id="moves", session_ms=30_000)
    first_life = second_client.open(reading)
    shares = wait_shared([stays, first_life], all_of(wide_topic))
    revoked_before = stays.revoked()
    second_client.kill()
    second_life = client.another().open(reading)
    assert wait_shared([stays, second_life], all_of(wide_topic)) == shares
    assert stays.revoked() == revoked_before
    second_life.close()
    stays.close()


@needs(Feature.GROUPS, Feature.STATIC, Feature.FENCED)
def test_two_members_of_one_static_name_do_not_live_together(client: Client, topic: str, group: str) -> None:
    reading = Reading(topics=[topic], group=group, instance_id="only", session_ms=30_000)
    first = client.open(reading)
    wait_shared([first], all_of(topic, 1))
    second = client.another().open(reading)
    wait_shared([second], all_of(topic, 1))
    with pytest.raises(ClientError) as fenced:
        first.commit({TopicPartition(topic, 0): 0})
    # librdkafka may have heard it from a heartbeat already; then it is a fatal error of the client's own.
    assert fenced.value.code == _FENCED_INSTANCE or "_FATAL" in str(fenced.value), fenced.value
    second.close()


@needs(Feature.GROUPS, Feature.COOPERATIVE, Feature.REVOKED)
def test_a_cooperative_rebalance_takes_only_what_moves(
    client: Client, reference: Client, wide_topic: str, group: str
) -> None:
    reading = Reading(topics=[wide_topic], group=group, strategy="cooperative-sticky")
    first = client.open(reading)
    wait_shared([first], all_of(wide_topic))
    assert first.revoked() == []
    second = client.open(reading)
    kept, moved = wait_shared([first, second], all_of(wide_topic))
    assert (len(kept), len(moved)) == (2, 2)
    assert set(first.revoked()) == moved
    wait_until(  # in a rebalance it has none, and the last one may not have ended
        lambda: reference.admin.describe_group(group).protocol == "cooperative-sticky",
        within_s=60,
        what=lambda: reference.admin.describe_group(group),
    )
    second.close()
    wait_shared([first], all_of(wide_topic))
    assert set(first.revoked()) == moved
    first.close()


@needs(Feature.GROUPS, Feature.PATTERN)
def test_a_pattern_finds_topics(
    client: Client,
    reference: Client,
    fresh: Callable[[str], str],
    group: str,
    settle: Callable[[str, int], None],
) -> None:
    stem = fresh("pattern")
    reference.admin.create_topic(f"{stem}-a")
    reference.admin.create_topic(f"other-{stem}")
    settle(f"{stem}-a", 1)
    member = client.open(Reading(pattern=f"^{stem}-.*", group=group))
    wait_shared([member], {TopicPartition(f"{stem}-a", 0)})
    member.close()


@needs(Feature.GROUPS, Feature.PATTERN, Feature.NEW_TOPICS)
def test_a_pattern_finds_topics_that_come_later(
    client: Client, reference: Client, fresh: Callable[[str], str], group: str
) -> None:
    stem = fresh("pattern")
    reference.admin.create_topic(f"{stem}-a")
    member = client.open(Reading(pattern=f"^{stem}-.*", group=group))
    wait_shared([member], {TopicPartition(f"{stem}-a", 0)})
    reference.admin.create_topic(f"{stem}-b")
    wait_shared([member], {TopicPartition(f"{stem}-a", 0), TopicPartition(f"{stem}-b", 0)})
    reference.produce(f"{stem}-b", [Message(value=b"found", partition=0)])
    assert [record.value for record in member.take(1)] == [b"found"]
    member.close()


@needs(Feature.GROUPS)
def test_a_group_reads_two_topics(
    client: Client, reference: Client, make_topic: Callable[..., str], group: str
) -> None:
    topics = [make_topic(partitions=2), make_topic(partitions=3)]
    whole = all_of(topics[0], 2) | all_of(topics[1], 3)
    members = [client.open(Reading(topics=topics, group=group)) for _ in range(2)]
    wait_shared(members, whole)
    for member in members:
        member.close()
