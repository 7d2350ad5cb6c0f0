"""/api/v1/whoami: who the caller is to this node, and what it may do with the cluster."""

from __future__ import annotations

import msgspec

from tailrace.http.console_session import ConsoleSession
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.session import CONSOLE_KEY, SESSION_KEY
from tailrace.model.operation import CLUSTER, OPERATIONS_ON


class WhoAmI(msgspec.Struct, frozen=True):
    """The caller."""

    principal: str  # User:alice; User:ANONYMOUS where nobody is asked for a login
    listener: str
    mechanism: str  # how it logged in; "": it did not
    asks_login: bool  # whether the listener demands a login
    cluster_operations: list[str]  # what it may do with the cluster, in Kafka's words
    csrf: str  # what a change by a session of the console brings as tailrace-csrf; "": no such session


async def who_am_i(call: Call[NoQuery, NoBody]) -> WhoAmI:
    access, scope = call.access, call.request.scope
    session = access.session
    console: ConsoleSession | None = scope.get(CONSOLE_KEY)
    return WhoAmI(
        principal=str(session.principal),
        listener=session.listener,
        mechanism=session.mechanism,
        asks_login=SESSION_KEY in scope,
        cluster_operations=[
            each.name for each in OPERATIONS_ON[CLUSTER.kind] if access.allows(each, CLUSTER)
        ],
        csrf="" if console is None else console.csrf.reveal(),
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/whoami",
        name="whoAmI",
        tag="users",
        summary="Who the caller is, and what it may do with the cluster",
        handler=who_am_i,
        answer=WhoAmI,
    ),
)
