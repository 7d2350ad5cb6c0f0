"""/api/v1/users: who may log in.

Passwords are taken over TLS, and without it from this machine alone. They are checked, hashed and
forgotten, and no answer repeats one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.http.error import Code, HttpError
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model.operation import Operation as AclOperation
from tailrace.security import Secret, parse_principal
from tailrace.security.audit import Change


class UserView(msgspec.Struct, frozen=True):
    """A user."""

    name: str
    enabled: bool
    mechanisms: list[str]  # SCRAM mechanisms by which the password was prepared


class UserList(msgspec.Struct, frozen=True):
    """All users, by name."""

    users: list[UserView]


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user that is to be created."""

    name: str
    password: str


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be changed of a user; what is left out stays."""

    password: str | None = None
    enabled: bool | None = None


async def list_users(call: Call[NoQuery, NoBody]) -> UserList:
    users = call.access.users(AclOperation.DESCRIBE)
    return UserList([_view(call, name) for name in (*users, *map(str, users.disabled))])


async def create_user(call: Call[NoQuery, NewUser]) -> UserView:
    users = call.access.users(AclOperation.ALTER)
    check_private(call)
    with _changing(call, "user.create", call.body.name):
        await users.create(call.body.name, Secret(call.body.password))
    return _view(call, call.body.name)


async def change_user(call: Call[NoQuery, UserChange]) -> UserView:
    users, name = call.access.users(AclOperation.ALTER), call.params["user"]
    if call.body.password is not None:
        check_private(call)
        with _changing(call, "user.password", name):
            await users.set_password(name, Secret(call.body.password))
    if call.body.enabled is not None:
        with _changing(call, "user.enable" if call.body.enabled else "user.disable", name):
            await users.set_enabled(name, enabled=call.body.enabled)
    return _view(call, name)


async def delete_user(call: Call[NoQuery, NoBody]) -> None:
    users, name = call.access.users(AclOperation.ALTER), call.params["user"]
    with _changing(call, "user.delete", name):
        await users.delete(name)


def _changing(call: Call[Any, Any], what: str, name: str) -> Change:
    return call.access.changing(what, f"user {name!r}")


def _view(call: Call[Any, Any], name: str) -> UserView:
    users = call.access.users(AclOperation.DESCRIBE)
    if (principal := parse_principal(name)) is not None:
        return UserView(name=name, enabled=users.disabled.admits(principal), mechanisms=[])
    found = users.known(name)
    return UserView(name=name, enabled=found.enabled, mechanisms=sorted(found.verifiers))


def check_private(call: Call[Any, Any]) -> None:
    if not call.access.session.is_private:
        raise HttpError(
            Code.AUTHORIZATION_FAILED,
            "passwords are not taken over a connection without encryption. Run this on the broker's machine",
        )


_FAILS = (Code.AUTHORIZATION_FAILED,)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/users",
        name="listUsers",
        tag="users",
        summary="Who may log in",
        handler=list_users,
        answer=UserList,
        fails=_FAILS,
    ),
    Operation(
        method="POST",
        path="/api/v1/users",
        name="createUser",
        tag="users",
        summary="Create a user",
        doc="A password has 8 to 256 characters and is none of the commonest. It is taken over TLS, or from "
        "the broker's own machine.",
        handler=create_user,
        answer=UserView,
        body=NewUser,
        status=201,
        fails=_FAILS,
    ),
    Operation(
        method="PATCH",
        path="/api/v1/users/{user}",
        name="changeUser",
        tag="users",
        summary="Change the password of a user, disable or enable it",
        doc="The connections of a user that is disabled end. A principal from elsewhere, of a client "
        "certificate or a JWT, is disabled by its name, such as User:CN=alice,O=Acme.",
        handler=change_user,
        answer=UserView,
        body=UserChange,
        fails=(*_FAILS, Code.USER_NOT_FOUND),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/users/{user}",
        name="deleteUser",
        tag="users",
        summary="Delete a user, and end its connections",
        handler=delete_user,
        answer=None,
        status=204,
        fails=(*_FAILS, Code.USER_NOT_FOUND),
    ),
)
