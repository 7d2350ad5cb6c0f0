"""Every operation of every listener, with and without each right that it needs, on real sockets.

The operations are those of the tables by which the listeners serve: Kafka's APIs that have a handler, the
native listener's frames, the rows of REST, and the routes of WebSockets. An operation without an entry here
fails `test_every_operation_has_an_entry`. For each entry the node is asked

    without any right                     it must refuse,
    with all the rights but one           it must refuse, for each of them,
    with all the rights                   it must not refuse,
    with all the rights, and one denied   it must refuse, for each of them,

and what names a topic must be answered alike, without rights, whether the topic exists or not.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.rights import (
    GROUP,
    LETTERS,
    MISSING,
    REFUSALS,
    SUBSCRIPTION,
    TOPIC,
    TRANSACTION,
    Case,
    Grant,
    Outcome,
    Right,
    World,
    codes_of,
    creating,
    idempotent,
    on_cluster,
    on_group,
    on_subscription,
    on_topic,
    on_transaction,
    plain,
    world,
)
from tests.unit.http import test_authorization as http_entries
from tests.unit.kafka import rig as kafka_rig
from tests.unit.kafka.handlers import test_authorization as kafka_entries
from tests.unit.native import rig as native_rig
from websockets.asyncio.client import connect

from tailrace.http.live import routes
from tailrace.http.table import OPERATIONS
from tailrace.kafka.dispatch import served_apis
from tailrace.model.operation import IMPLIED_BY, Operation, ResourceKind
from tailrace.native.dispatch import HANDLERS
from tailrace.native.publishing import PUBLISH, PUBLISH_BATCH
from tailrace.security.acl import Permission
from tailrace.wire.kafka import (
    APIS,
    FETCH,
    PRODUCE,
    Message,
    decode,
    encode,
    read_fetch_response,
    read_produce_response,
    response_type,
)
from tailrace.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.wire.kafka.messages.describe_cluster import DescribeClusterRequest
from tailrace.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tailrace.wire.kafka.messages.list_groups import ListGroupsRequest
from tailrace.wire.kafka.messages.list_transactions import ListTransactionsRequest
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tailrace.wire.native import MessageType, type_name, write_entries

Op = Operation
NEW = itertools.count(1)
DEADLINE_S = 120.0
_SHOWN = 300  # of an answer


def rights(*given: Right) -> list[Right]:
    return list(given)


# ---- Kafka


def key_of(request: Message) -> int:
    name = type(request).__name__.removesuffix("Request")
    return next(api.key for api in APIS.values() if api.name == name)


def kafka_case(
    request: Message | Callable[[], Message],
    needed: Sequence[Right],
    *,
    label: str = "",
    is_left_out: Callable[[Any], bool] | None = None,
    names_topic: bool = False,
) -> Case:
    """`is_left_out` says of an answer that it leaves out what may not be seen; else an error refuses."""
    first = request() if callable(request) else request
    key = key_of(first)

    async def send(here: World, topic: str) -> Outcome:
        asked = request() if callable(request) else request
        version = APIS[key].max_version
        body = encode(asked, version).replace(TOPIC.encode(), topic.encode())
        answer = decode(response_type(key), version, await here.kafka.call(key, version, body))
        if is_left_out is not None:
            return Outcome(is_left_out(answer), answer)
        return Outcome(bool(codes_of(answer) & REFUSALS), answer)

    return Case(f"{APIS[key].name}{label}", needed, send, names_topic)


NAMES = {
    ResourceKind.TOPIC: ("orders",),
    ResourceKind.GROUP: ("g", "billing"),
    ResourceKind.TRANSACTIONAL_ID: ("x",),
    ResourceKind.CLUSTER: ("kafka-cluster",),
}


def judged_apis() -> list[Case]:
    """The requests that the handlers' own tests judge, each with all of its rights."""
    needed: dict[str, list[tuple[Operation, ResourceKind]]] = {}
    requests: dict[str, Message] = {}
    for request, operation, kind in kafka_entries.RULES:
        requests[repr(request)] = request
        needed.setdefault(repr(request), []).append((operation, kind))
    seen: dict[str, int] = {}
    cases = []
    for text, request in requests.items():
        name = type(request).__name__
        seen[name] = seen.get(name, 0) + 1
        label = f" {seen[name]}" if seen[name] > 1 else ""
        if isinstance(request, InitProducerIdRequest) and request.transactional_id is None:
            cases.append(kafka_case(request, [idempotent(TOPIC)], label=label))
            continue
        given: list[Right] = [
            (Grant(operation, kind, _named(request, kind)),) for operation, kind in needed[text]
        ]
        is_about_topics = any(kind is ResourceKind.TOPIC for _, kind in needed[text])
        cases.append(kafka_case(request, given, label=label, names_topic=is_about_topics))
    return cases


def _named(request: Message, kind: ResourceKind) -> str:
    """Which of the names of a kind a request has."""
    text = repr(request)
    return next((name for name in NAMES[kind] if repr(name) in text), NAMES[kind][0])


def new_topic() -> Message:
    topic = CreatableTopic(name="fresh", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], validate_only=True)


async def produce(here: World, topic: str) -> Outcome:
    body = kafka_rig.produce_body({0: kafka_rig.batch(b"v")}, version=12, topic=topic)
    answer = read_produce_response(await here.kafka.call(PRODUCE, 12, body), 12)
    ((_, (result,)),) = answer.topics
    return Outcome(result.error_code in REFUSALS, (result.error_code, result.error_message))


def fetch_case(name: str, version: int, needed: Sequence[Right], *, as_replica: bool = False) -> Case:
    async def send(here: World, topic: str) -> Outcome:
        body = kafka_rig.fetch_body({0: 0}, version=version, topic=topic)
        if as_replica:
            assert body.startswith(b"\xff\xff\xff\xff")
            body = b"\0\0\0\x07" + body[4:]
        answer = read_fetch_response(await here.kafka.call(FETCH, version, body), version)
        ((_, (result,)),) = answer.topics
        return Outcome(result.error_code in REFUSALS, result.error_code)

    return Case(name, needed, send, names_topic=True)


async def fetch_by_id(here: World, topic: str) -> Outcome:
    """An id is answered like one that no topic has, unless the topic may be described."""
    found = here.node.broker.topics.get(topic)
    assert found is not None
    body = kafka_rig.fetch_body({0: 0}, version=17, topic=found.id)
    answer = read_fetch_response(await here.kafka.call(FETCH, 17, body), 17)
    ((_, (result,)),) = answer.topics
    return Outcome(result.error_code in {*REFUSALS, 100}, result.error_code)


KAFKA: list[Case] = [
    *judged_apis(),
    Case("Produce", rights(on_topic(Op.WRITE)), produce, names_topic=True),
    fetch_case("Fetch", 12, rights(on_topic(Op.READ))),
    fetch_case(
        "Fetch by a replica", 12, rights(on_topic(Op.READ), on_cluster(Op.CLUSTER_ACTION)), as_replica=True
    ),
    Case("Fetch by id", rights(on_topic(Op.READ)), fetch_by_id),
    kafka_case(
        MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False),
        rights(on_topic(Op.DESCRIBE)),
        names_topic=True,
    ),
    kafka_case(
        MetadataRequest(topics=None),
        rights(on_topic(Op.DESCRIBE)),
        label=" of all",
        is_left_out=lambda answer: TOPIC not in [each.name for each in answer.topics],
    ),
    kafka_case(
        lambda: MetadataRequest(topics=[MetadataRequestTopic(name=f"made-{next(NEW)}")]),
        [],
        label=" that creates",
        is_left_out=lambda answer: False,
    ),
    kafka_case(new_topic, rights(creating("fresh"))),
    kafka_case(
        ListGroupsRequest(),
        rights((*on_group(Op.DESCRIBE), *on_cluster(Op.DESCRIBE))),
        is_left_out=lambda answer: GROUP not in [each.group_id for each in answer.groups],
    ),
    kafka_case(
        ListTransactionsRequest(),
        rights(on_transaction(Op.DESCRIBE)),
        is_left_out=lambda answer: (
            TRANSACTION not in [each.transactional_id for each in answer.transaction_states]
        ),
    ),
    kafka_case(DescribeLogDirsRequest(topics=None), rights(on_cluster(Op.DESCRIBE))),
    kafka_case(
        DescribeLogDirsRequest(topics=None),
        rights(on_cluster(Op.DESCRIBE), on_topic(Op.DESCRIBE)),
        label=" of a topic",
        is_left_out=lambda answer: (
            TOPIC not in [topic.name for each in answer.results for topic in each.topics]
        ),
    ),
    kafka_case(
        DescribeClusterRequest(include_cluster_authorized_operations=True),
        rights(on_cluster(Op.DESCRIBE)),
        is_left_out=lambda answer: answer.cluster_authorized_operations == 0,
    ),
    kafka_case(
        lambda: InitProducerIdRequest(
            transactional_id=TRANSACTION, transaction_timeout_ms=60_000, enable2_pc=True
        ),
        rights(on_transaction(Op.WRITE), on_transaction(Op.TWO_PHASE_COMMIT)),
        label=" with two phases",
    ),
]
KAFKA_OPEN = {
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "CreateDelegationToken",  # there are none
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "DescribeDelegationToken",
}


# ---- the native listener


def native_case(
    kind: int,
    needed: Sequence[Right],
    *,
    label: str = "",
    body: bytes = b"",
    is_left_out: Callable[[Any], bool] | None = None,
    names_topic: bool = False,
    **properties: object,
) -> Case:
    async def send(here: World, topic: str) -> Outcome:
        given = {
            key: value.replace(TOPIC, topic) if isinstance(value, str) else value
            for key, value in properties.items()
        }
        try:
            answer = await here.native.ask(kind, body, **given)
        except native_rig.Refused as error:
            return Outcome(error.code in REFUSALS, (error.code, str(error)))
        if is_left_out is not None:
            return Outcome(is_left_out(json.loads(bytes(answer.body))), None)
        return Outcome(False, None)

    return Case(f"{type_name(kind)}{label}", needed, send, names_topic)


async def commit_with_acknowledgement(here: World, topic: str) -> Outcome:
    begun = await here.native.ask(MessageType.TXN_BEGIN)
    name = begun.properties["_transaction"]
    entry = (
        b"_subscription=%b\0_topic=%b\0_partition=0\0_epoch=0\0_offsets=0\0"
        % (SUBSCRIPTION.encode(), topic.encode()),
        b"",
    )
    try:
        await here.native.ask(MessageType.TXN_COMMIT, write_entries([entry]), _transaction=name, _count=1)
    except native_rig.Refused as error:
        refused = any(word in str(error) for word in ("may not",))
        return Outcome(refused, str(error))
    return Outcome(False, None)


READING = rights(on_subscription(Op.READ), on_topic(Op.READ))
HELD: dict[str, Any] = {
    "_subscription": SUBSCRIPTION,
    "_topic": TOPIC,
    "_partition": 0,
    "_epoch": 0,
    "_offsets": "0",
}
M = MessageType


def without(name: str, field: str = "name") -> Callable[[Any], bool]:
    return lambda rows: name not in [each[field] for each in rows]


NATIVE: list[Case] = [
    native_case(M.CREATE_TOPIC, rights(on_topic(Op.DESCRIBE)), label=" that exists", _topic=TOPIC),
    native_case(M.CREATE_TOPIC, rights(creating("raw")), _topic="raw"),
    native_case(PUBLISH, rights(on_topic(Op.WRITE)), names_topic=True, body=b"v", _topic=TOPIC),
    native_case(
        PUBLISH,
        rights(on_topic(Op.WRITE)),
        label=" later",
        names_topic=True,
        body=b"v",
        _topic=TOPIC,
        delay_ms=60_000,
    ),
    native_case(
        PUBLISH_BATCH,
        rights(on_topic(Op.WRITE)),
        names_topic=True,
        body=write_entries([(b"", b"v")]),
        _topic=TOPIC,
        _count=1,
    ),
    native_case(
        M.CREATE_SUBSCRIPTION,
        rights(
            on_subscription(Op.CREATE, "fresh"),
            on_topic(Op.READ),
            on_topic(Op.WRITE, "fresh.dlq"),
            creating("fresh.dlq"),
        ),
        names_topic=True,
        _subscription="fresh",
        _topic=TOPIC,
    ),
    native_case(
        M.CREATE_SUBSCRIPTION,
        rights(on_subscription(Op.CREATE, "named"), on_topic(Op.READ), on_topic(Op.WRITE, LETTERS)),
        label=" with a dead-letter topic",
        _subscription="named",
        _topic=TOPIC,
        dead_letter_topic=LETTERS,
    ),
    native_case(M.DELETE_SUBSCRIPTION, rights(on_subscription(Op.DELETE)), _subscription=SUBSCRIPTION),
    native_case(M.SUBSCRIBE, READING, _subscription=SUBSCRIPTION, _credit=0),
    native_case(M.PULL, READING, _subscription=SUBSCRIPTION, _count=1, _wait_ms=0),
    native_case(M.ACK, READING, **HELD),
    native_case(M.NACK, READING, **HELD),
    native_case(M.EXTEND, READING, **HELD, _extend_ms=1000),
    native_case(M.REPLAY, rights(on_subscription(Op.ALTER)), _subscription=SUBSCRIPTION, _to="earliest"),
    native_case(
        M.REDRIVE,
        rights(on_subscription(Op.ALTER), on_topic(Op.READ, LETTERS), on_topic(Op.WRITE, LETTERS)),
        _subscription=SUBSCRIPTION,
    ),
    native_case(M.HEARTBEAT, [idempotent(TOPIC)], label=" with a producer", _producer="new"),
    native_case(
        M.DESCRIBE, rights(on_topic(Op.DESCRIBE)), label=" topics", is_left_out=without(TOPIC), _what="topics"
    ),
    native_case(
        M.DESCRIBE,
        rights(on_topic(Op.DESCRIBE)),
        label=" topic",
        names_topic=True,
        _what="topic",
        _name=TOPIC,
    ),
    native_case(
        M.DESCRIBE,
        rights(on_subscription(Op.DESCRIBE)),
        label=" subscriptions",
        is_left_out=without(SUBSCRIPTION),
        _what="subscriptions",
    ),
    native_case(
        M.DESCRIBE,
        rights(on_subscription(Op.DESCRIBE)),
        label=" subscription",
        _what="subscription",
        _name=SUBSCRIPTION,
    ),
    native_case(
        M.DESCRIBE,
        [*READING, on_topic(Op.READ, LETTERS)],
        label=" dead letters",
        _what="dead_letters",
        _name=SUBSCRIPTION,
    ),
    native_case(M.TXN_BEGIN, rights(on_transaction(Op.WRITE)), _transactional_id=TRANSACTION),
    native_case(
        M.TXN_COMMIT,
        rights(on_transaction(Op.WRITE)),
        label=" again",
        _transactional_id=TRANSACTION,
        _transaction="1/1",
    ),
    Case("TXN_COMMIT with an acknowledgement", READING, commit_with_acknowledgement),
]
NATIVE_OPEN = {
    M.UNSUBSCRIBE: "leaves what this connection is in",
    M.CREDIT: "changes what this connection is in",
    M.AUTH: "is the login",
    M.TXN_ABORT: "ends what this connection began",
    M.DATA: "only a broker sends it",
    M.ERROR: "only a broker sends it",
    M.NOTICE: "only a broker sends it",
}


# ---- HTTP


PATHS = {
    "topic": TOPIC,
    "group": GROUP,
    "subscription": SUBSCRIPTION,
    "transactional_id": TRANSACTION,
}


def rest_case(
    name: str,
    needed: Sequence[Right],
    *,
    body: object = None,
    query: str = "",
    field: str = "",
    names_topic: bool = False,
    label: str = "",
) -> Case:
    """`field` is the list of an answer that leaves out what may not be seen."""
    (operation,) = [each for each in OPERATIONS if each.name == name]
    params = {**http_entries.PARAMS, **PATHS}
    path = operation.path.replace(":path", "").format(**params) + (
        query or http_entries.QUERIES.get(name, "")
    )
    sent = http_entries.BODIES.get(name) if body is None else body

    async def send(here: World, topic: str) -> Outcome:
        text = None if sent is None else json.dumps(sent).replace(TOPIC, topic)
        headers = {"content-type": "application/json"}
        request = here.http.build_request(
            operation.method, path.replace(TOPIC, topic), content=text, headers=headers
        )
        answer = await here.http.send(request, stream=True)
        try:
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                return Outcome(answer.status_code == 403, answer.status_code)  # it does not end
            await answer.aread()
        finally:
            await answer.aclose()
        if field and answer.status_code == 200:
            return Outcome(not answer.json()[field], None)
        return Outcome(answer.status_code == 403, (answer.status_code, answer.text))

    return Case(f"{name}{label}", needed, send, names_topic)


RUNS = "__tailrace_pipelines"
REST: list[Case] = [
    rest_case("createTopic", rights(creating("made")), body={"name": "made"}),
    rest_case("getTopic", rights(on_topic(Op.DESCRIBE)), names_topic=True),
    rest_case(
        "changeTopic",
        rights(on_topic(Op.DESCRIBE), on_topic(Op.ALTER)),
        body={"partitions": 2},
        names_topic=True,
    ),
    rest_case(
        "changeTopic",
        rights(on_topic(Op.DESCRIBE), on_topic(Op.ALTER_CONFIGS)),
        body={"configs": {"retention.ms": 86_400_000}},
        label=" settings",
        names_topic=True,
    ),
    rest_case("deleteTopic", rights(on_topic(Op.DELETE)), names_topic=True),
    rest_case("listTopicConfigs", rights(on_topic(Op.DESCRIBE_CONFIGS)), names_topic=True),
    rest_case("listTopics", rights(on_topic(Op.DESCRIBE)), field="topics"),
    rest_case("produceRecords", rights(on_topic(Op.WRITE)), names_topic=True),
    rest_case(
        "produceRecords",
        rights(on_topic(Op.WRITE)),
        body={"records": [{"value": "x", "headers": {"delay_ms": "60000"}}]},
        label=" later",
        names_topic=True,
    ),
    rest_case("readRecords", rights(on_topic(Op.READ)), names_topic=True),
    rest_case("deleteRecords", rights(on_topic(Op.DELETE)), names_topic=True),
    rest_case("tailTopic", rights(on_topic(Op.READ)), names_topic=True),
    rest_case("commitRecords", rights(on_topic(Op.WRITE)), names_topic=True),
    rest_case("listGroups", rights(on_group(Op.DESCRIBE)), field="groups"),
    rest_case("getGroup", rights(on_group(Op.DESCRIBE))),
    rest_case("listGroupOffsets", rights(on_group(Op.DESCRIBE))),
    rest_case("deleteGroup", rights(on_group(Op.DELETE))),
    rest_case("resetGroupOffsets", rights(on_group(Op.READ), on_topic(Op.READ))),
    rest_case("getGroupMetrics", rights(on_group(Op.DESCRIBE))),
    rest_case("getCluster", rights(on_cluster(Op.DESCRIBE))),
    rest_case("getClusterHealth", rights(on_cluster(Op.DESCRIBE))),
    rest_case("getMetrics", rights(on_cluster(Op.DESCRIBE))),
    rest_case("listBrokerMetrics", rights(on_cluster(Op.DESCRIBE))),
    rest_case("listTopicMetrics", rights(on_topic(Op.DESCRIBE)), field="topics"),
    rest_case("getTopicMetrics", rights(on_topic(Op.DESCRIBE)), names_topic=True),
    rest_case("getSubscriptionMetrics", rights(on_subscription(Op.DESCRIBE))),
    rest_case("listConfigs", rights(on_cluster(Op.DESCRIBE_CONFIGS))),
    rest_case("listSettings", rights(on_cluster(Op.DESCRIBE_CONFIGS))),
    *[rest_case(name, rights(on_cluster(Op.ALTER))) for name in ("createCut", "renewCut", "deleteCut")],
    rest_case("listAuditEntries", rights(on_topic(Op.READ, "__tailrace_audit"))),
    rest_case("listUsers", rights(on_cluster(Op.DESCRIBE))),
    *[rest_case(name, rights(on_cluster(Op.ALTER))) for name in ("createUser", "changeUser", "deleteUser")],
    rest_case("listQuotas", rights(on_cluster(Op.DESCRIBE_CONFIGS))),
    rest_case("changeQuota", rights(on_cluster(Op.ALTER_CONFIGS))),
    rest_case("listAcls", rights(on_cluster(Op.DESCRIBE))),
    *[rest_case(name, rights(on_cluster(Op.ALTER))) for name in ("createAcls", "deleteAcl")],
    rest_case("listTransactions", rights(on_transaction(Op.DESCRIBE)), field="transactions"),
    rest_case("getTransaction", rights(on_transaction(Op.DESCRIBE))),
    rest_case("abortTransaction", rights(on_transaction(Op.WRITE))),
    rest_case(
        "abortHangingTransaction",
        rights(on_cluster(Op.CLUSTER_ACTION), on_topic(Op.DESCRIBE)),
        names_topic=True,
    ),
    rest_case("listPipelines", rights(on_topic(Op.READ, RUNS))),
    rest_case("stopPipeline", rights(on_topic(Op.READ, RUNS))),
    rest_case(
        "createSubscription",
        rights(
            on_subscription(Op.CREATE, "s"),
            on_topic(Op.READ),
            on_topic(Op.WRITE, "s.dlq"),
            creating("s.dlq"),
        ),
        names_topic=True,
    ),
    rest_case("listSubscriptions", rights(on_subscription(Op.DESCRIBE)), field="subscriptions"),
    rest_case("getSubscription", rights(on_subscription(Op.DESCRIBE))),
    rest_case("deleteSubscription", rights(on_subscription(Op.DELETE))),
    rest_case("replaySubscription", rights(on_subscription(Op.ALTER))),
    rest_case("seekSubscription", rights(on_subscription(Op.ALTER))),
    rest_case("listDeadLetters", [*READING, on_topic(Op.READ, LETTERS)]),
    rest_case(
        "redriveDeadLetters",
        rights(on_subscription(Op.ALTER), on_topic(Op.READ, LETTERS), on_topic(Op.WRITE, LETTERS)),
    ),
    rest_case("pullMessages", READING, body={"max": 1, "wait_ms": 0}),
    *[rest_case(name, READING) for name in ("ackMessages", "nackMessages", "extendMessages")],
]
REST_OPEN = {
    "getHealth": "a probe",
    "getReadiness": "a probe",
    "whoAmI": "what the caller is and may do; tests/unit/http/test_authorization.py has it",
    "listTokens": "a user has its own tokens; tests/unit/http/test_token.py judges those of others",
    "createToken": "likewise",
    "revokeToken": "likewise",
    "rotateTokenKey": "likewise",
}


async def tail_by_websocket(here: World, topic: str) -> Outcome:
    try:
        async with connect(f"ws://{here.node.http_address}/api/v1/topics/{topic}/tail"):
            return Outcome(False, None)
    except Exception as error:
        response = getattr(error, "response", None)
        status = None if response is None else response.status_code
        return Outcome(status == 403, (status, None if response is None else bytes(response.body or b"")))


async def publish_by_websocket(here: World, topic: str) -> Outcome:
    """A native session by WebSocket is served by the native listener: one frame shows that it is judged."""
    frame = {"type": "publish", "sequence": 1, "topic": topic, "body": "v"}
    async with connect(f"ws://{here.node.http_address}/api/v1/ws") as websocket:
        await websocket.send(json.dumps(frame))
        answer = json.loads(await websocket.recv())
    return Outcome(answer["type"].lower() == "error", answer)


WEBSOCKET: list[Case] = [
    Case("tailTopicWebSocket", rights(on_topic(Op.READ)), tail_by_websocket, names_topic=True),
    Case("nativeWebSocket", rights(on_topic(Op.WRITE)), publish_by_websocket, names_topic=True),
]


# ---- the matrix


ALL = {"kafka": KAFKA, "native": NATIVE, "rest": REST, "websocket": WEBSOCKET}
CASES = [(listener, each) for listener, cases in ALL.items() for each in cases]


def operation_of(case: Case) -> str:
    """The name in the table of operations that a case is about."""
    return case.name.partition(" ")[0]


def test_every_operation_has_an_entry(tmp_path: Path) -> None:
    assert {operation_of(each) for each in KAFKA} | KAFKA_OPEN == {api.name for api in served_apis()}
    frames = {type_name(kind) for kind in {*HANDLERS, PUBLISH, PUBLISH_BATCH}}
    assert {operation_of(each) for each in NATIVE} | {type_name(kind) for kind in NATIVE_OPEN} == frames
    assert {operation_of(each) for each in REST} | REST_OPEN.keys() == {each.name for each in OPERATIONS}

    async def scenario(here: World) -> None:
        served = {route.name for route in routes(here.node.http_app().service)}  # type: ignore[attr-defined]
        assert {each.name for each in WEBSOCKET} == served

    play(tmp_path, scenario)


def play(directory: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        async with world(directory) as here:
            await asyncio.wait_for(scenario(here), DEADLINE_S)

    asyncio.run(main())


def implied(right: Right, by: Sequence[Grant]) -> bool:
    """Whether other grants bring a right with them."""
    return any(
        (other.kind, other.name) == (one.kind, one.name)
        and (other.operation is one.operation or other.operation in IMPLIED_BY.get(one.operation, ()))
        for one in right
        for other in by
    )


async def judge(here: World, case: Case) -> list[str]:
    """What is wrong with the answers to one operation."""
    wrong: list[str] = []

    async def ask(grants: Sequence[Grant], *, refused: bool, what: str) -> None:
        await here.allow(*grants)
        await here.restore()
        found = await case.send(here, TOPIC)
        if found.refused is not refused:
            wrong.append(f"{case.name} {what}: {str(found)[:_SHOWN]}")

    if not case.rights:
        await ask([], refused=False, what="needs no right")
        return wrong
    await ask([], refused=True, what="without any right")
    for number, right in enumerate(case.rights):
        others = [each[0] for place, each in enumerate(case.rights) if place != number]
        if not implied(right, others):
            await ask(others, refused=True, what=f"without {right[0]}")
    for choice in itertools.product(*case.rights):
        await ask(choice, refused=False, what=f"with {choice}")
        for grant in choice:
            others = [each for each in choice if each != grant]
            if implied((grant,), others) or len(choice) < len(case.rights):
                continue
            await here.allow(*choice)
            await here.node.broker.acls.add([grant.binding(Permission.DENY)])
            await here.restore()
            found = await case.send(here, TOPIC)
            if not found.refused:
                wrong.append(f"{case.name} with {grant} denied: {str(found)[:_SHOWN]}")
    return wrong


@pytest.mark.parametrize("listener", ALL)
def test_the_matrix(tmp_path: Path, listener: str) -> None:
    async def scenario(here: World) -> None:
        wrong = [each for case in ALL[listener] for each in await judge(here, case)]
        assert not wrong, "\n".join(wrong)

    play(tmp_path, scenario)


@pytest.mark.parametrize("listener", ALL)
def test_without_rights_a_topic_looks_the_same_whether_it_exists_or_not(
    tmp_path: Path, listener: str
) -> None:
    async def scenario(here: World) -> None:
        await here.allow()
        assert here.node.broker.topics.get(MISSING) is None
        for case in ALL[listener]:
            if case.names_topic:
                existing, missing = await case.send(here, TOPIC), await case.send(here, MISSING)
                assert plain(existing, MISSING) == plain(missing, MISSING), case.name
        assert here.node.broker.topics.get(MISSING) is None

    play(tmp_path, scenario)
