"""The entries of a node: what may be one, how they change, what is kept of decisions, how they are stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import pytest

from tailrace.cluster import MemoryStore, MetadataAcls
from tailrace.cluster.acls import read_acl, write_acl
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.model.operation import CLUSTER, OPERATIONS_ON, Operation, Resource, ResourceKind
from tailrace.model.session import Principal
from tailrace.security.acl import (
    EVERY_ACL,
    AclBinding,
    AclFilter,
    Acls,
    MemoryAcls,
    Pattern,
    PatternFilter,
    Permission,
    binding_id,
    check_binding,
)

ALICE = Principal("User", "alice")
ORDERS = Resource(ResourceKind.TOPIC, "orders")


def binding(**fields: Any) -> AclBinding:
    wanted: dict[str, Any] = {
        "principal": "User:alice",
        "operation": Operation.READ,
        "permission": Permission.ALLOW,
        "kind": ResourceKind.TOPIC,
        "name": "orders",
    }
    return AclBinding(**{**wanted, **fields})


def run(scenario: Callable[[Acls], Awaitable[None]], acls: Callable[[], Acls] = Acls) -> None:
    async def main() -> None:
        made = acls()
        await asyncio.wait_for(scenario(made), 30)
        await made.close()

    asyncio.run(main())


# ---- what may be an entry


@pytest.mark.parametrize("kind", ResourceKind)
def test_every_operation_of_a_resource_may_be_granted(kind: ResourceKind) -> None:
    name = CLUSTER.name if kind is ResourceKind.CLUSTER else "orders"
    for operation in (None, *OPERATIONS_ON[kind]):
        check_binding(binding(kind=kind, operation=operation, name=name))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"principal": "alice"}, "User:alice"),
        ({"principal": "User:"}, "User:NAME"),
        ({"principal": "Group:staff"}, "User:NAME"),
        ({"principal": "User:a\nb"}, "User:NAME"),
        ({"principal": f"User:{'x' * 1025}"}, "User:NAME"),
        ({"host": "broker.lan"}, "Names are not looked up"),
        ({"host": ""}, "Names are not looked up"),
        ({"host": "192.0.2.0/24"}, "Names are not looked up"),
        ({"host": "2001:DB8::7"}, "Names are not looked up"),
        ({"operation": Operation.CLUSTER_ACTION}, "no operation cluster_action on a topic"),
        ({"operation": Operation.WRITE, "kind": ResourceKind.GROUP}, "no operation write on a group"),
        ({"name": ""}, "1 to 32000 bytes"),
        ({"name": "x" * 32_001}, "1 to 32000 bytes"),
        ({"kind": ResourceKind.CLUSTER, "operation": None, "name": "mine"}, "kafka-cluster"),
        ({"name": "__tailrace_", "pattern": Pattern.PREFIXED}, "Name each one literally"),
    ],
)
def test_entries_that_could_never_matter_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(BrokerError) as caught:
        check_binding(binding(**fields))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert words in str(caught.value)


# ---- changing


def test_entries_come_go_and_are_told_of() -> None:
    async def scenario(acls: Acls) -> None:
        told: list[int] = []
        acls.watch(lambda: told.append(len(acls)))
        assert not acls.allows(ALICE, "", Operation.READ, ORDERS)
        await acls.add([binding(), binding(operation=Operation.WRITE), binding()])
        assert acls.allows(ALICE, "", Operation.READ, ORDERS)
        await acls.add([binding()])  # again: nothing changes
        removed = await acls.remove([AclFilter(operation=Operation.READ)])
        assert list(removed.values()) == [binding()]
        assert not acls.allows(ALICE, "", Operation.READ, ORDERS)
        assert acls.allows(ALICE, "", Operation.DESCRIBE, ORDERS)
        assert await acls.remove([AclFilter(name="nothing")]) == {}
        assert told == [2, 1]

    run(scenario)


def test_one_entry_that_cannot_be_refuses_all_of_them() -> None:
    async def scenario(acls: Acls) -> None:
        with pytest.raises(BrokerError):
            await acls.add([binding(), binding(host="nowhere")])
        assert not acls

    run(scenario)


def test_an_entry_is_removed_by_its_id() -> None:
    async def scenario(acls: Acls) -> None:
        await acls.add([binding()])
        assert await acls.remove_by_id(binding_id(binding())) == binding()
        with pytest.raises(BrokerError) as caught:
            await acls.remove_by_id(binding_id(binding()))
        assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND

    run(scenario)


def test_a_change_whose_caller_has_gone_is_done_to_its_end() -> None:
    class Slow(MemoryAcls):
        async def change(self, *, added: Mapping[str, AclBinding], removed: Collection[str]) -> None:
            begun.set()
            await go_on.wait()
            await super().change(added=added, removed=removed)

    async def scenario(acls: Acls) -> None:
        adding = asyncio.ensure_future(acls.add([binding()]))
        await begun.wait()
        adding.cancel()
        go_on.set()
        await acls.close()
        assert len(acls) == 1

    begun, go_on = asyncio.Event(), asyncio.Event()
    run(scenario, lambda: Acls(Slow()))


def test_a_store_that_fails_changes_nothing_here_and_is_told_of() -> None:
    class Broken(MemoryAcls):
        async def change(self, *, added: Mapping[str, AclBinding], removed: Collection[str]) -> None:
            raise StorageError("write", "metadata.sqlite", "no space")

    async def scenario(acls: Acls) -> None:
        with pytest.raises(StorageError):
            await acls.add([binding()])
        assert not acls and len(failures) == 1

    failures: list[BaseException] = []
    run(scenario, lambda: Acls(Broken(), on_failure=failures.append))


def test_there_is_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.security.acl.acls.ACLS_MAX", 2)

    async def scenario(acls: Acls) -> None:
        await acls.add([binding(name="a"), binding(name="b")])
        with pytest.raises(BrokerError, match="would be over 2") as caught:
            await acls.add([binding(name="c")])
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        await acls.add([binding(name="a")])

    run(scenario)


def test_what_is_kept_of_decisions_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.security.acl.acls._KEPT_MAX", 10)

    async def scenario(acls: Acls) -> None:
        await acls.add([binding(name="t", pattern=Pattern.PREFIXED)])
        for number in range(50):
            assert acls.allows(ALICE, "", Operation.READ, Resource(ResourceKind.TOPIC, f"t{number}"))
            assert len(acls._kept) <= 10
        before = len(acls._kept)
        assert acls.allows(ALICE, "", Operation.READ, Resource(ResourceKind.TOPIC, "t" * 30_000))
        assert len(acls._kept) == before

    run(scenario)


# ---- filters


ALL_OF_THEM = [
    binding(),
    binding(principal="User:*", name="*"),
    binding(name="ord", pattern=Pattern.PREFIXED, permission=Permission.DENY),
    binding(operation=None, host="192.0.2.7"),
    binding(kind=ResourceKind.GROUP),
]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (EVERY_ACL, [0, 1, 2, 3, 4]),
        (AclFilter(kind=ResourceKind.GROUP), [4]),
        (AclFilter(name="orders"), [0, 3, 4]),
        (AclFilter(name="orders", pattern=PatternFilter.MATCH), [0, 1, 2, 3, 4]),
        (AclFilter(name="order", pattern=PatternFilter.MATCH), [1, 2]),
        (AclFilter(name="__x", pattern=PatternFilter.MATCH), []),
        (AclFilter(pattern=PatternFilter.PREFIXED), [2]),
        (AclFilter(name="orders", pattern=PatternFilter.PREFIXED), []),
        (AclFilter(pattern=PatternFilter.LITERAL), [0, 1, 3, 4]),
        (AclFilter(principal="User:*"), [1]),
        (AclFilter(host="192.0.2.7"), [3]),
        (AclFilter(operation=Operation.READ), [0, 1, 2, 4]),
        (AclFilter(is_about_all=True), [3]),
        (AclFilter(permission=Permission.DENY), [2]),
    ],
)
def test_filters(wanted: AclFilter, numbers: list[int]) -> None:
    assert [number for number, each in enumerate(ALL_OF_THEM) if wanted.admits(each)] == numbers


# ---- stored


def test_entries_are_found_again() -> None:
    async def main() -> None:
        store = MemoryStore()
        first = Acls(MetadataAcls(store))
        await first.add(ALL_OF_THEM)
        await first.remove([AclFilter(kind=ResourceKind.GROUP)])
        second = Acls(MetadataAcls(store))
        await second.load()
        assert set(second.values()) == set(ALL_OF_THEM[:4])
        assert dict(second) == dict(first)
        assert "cluster" in (await store.read()).entries  # a directory that no broker has seen yet

    asyncio.run(main())


@pytest.mark.parametrize("each", ALL_OF_THEM)
def test_an_entry_as_text(each: AclBinding) -> None:
    assert read_acl("acls/1", write_acl(each)) == each


@pytest.mark.parametrize(
    "change",
    [{"operation": "fly"}, {"permission": "perhaps"}, {"resource": "moon"}, {"name": 7}, {"host": None}],
)
def test_an_entry_that_cannot_be_read_stops_the_start(change: dict[str, object]) -> None:
    text = json.dumps({**json.loads(write_acl(binding())), **change})

    async def main() -> None:
        store = MemoryStore()
        await store.commit(checks={}, puts={"acls/17": text})
        with pytest.raises(StorageError, match="acls/17 is not an access control entry"):
            await Acls(MetadataAcls(store)).load()

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '"x"'])
def test_what_is_no_entry_at_all(text: str) -> None:
    with pytest.raises(ValueError, match="acls/17"):
        read_acl("acls/17", text)
