"""/api/v1/tokens: API tokens, which act for a user within a scope.

The text of a token is in the answer that created it and nowhere else. It is given to callers on this machine
alone as long as the connection is not encrypted, like passwords are taken.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from tailrace.http.error import Code, invalid
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.rest.user import check_private
from tailrace.model import ConfigError
from tailrace.model.duration import parse_duration_ms
from tailrace.model.scope import PERMISSIONS_MAX, read_scope
from tailrace.security import ApiToken

_Duration = Annotated[str, msgspec.Meta(max_length=20)]
_Permission = Annotated[str, msgspec.Meta(max_length=400)]


class TokenView(msgspec.Struct, frozen=True):
    """An API token, without its text."""

    id: str
    owner: str
    name: str
    scope: list[str]
    created_ms: int
    expires_ms: int
    used_ms: int | None  # about when it was used last, to the hour


class TokenList(msgspec.Struct, frozen=True):
    """The tokens that the caller may see."""

    tokens: list[TokenView]


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that is to be created; without an owner, one of the caller."""

    scope: Annotated[list[_Permission], msgspec.Meta(min_length=1, max_length=PERMISSIONS_MAX)]
    name: str = ""
    owner: str = ""
    expires: _Duration = "30d"


class CreatedToken(msgspec.Struct, frozen=True):
    """A token with its text, which is not shown again."""

    token: str
    id: str
    owner: str
    name: str
    scope: list[str]
    created_ms: int
    expires_ms: int


class TokenQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose tokens; without an owner, all that the caller may see."""

    owner: str = ""


class RotationBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether tokens that were not used since the last rotation end."""

    drop: bool = False


class Rotation(msgspec.Struct, frozen=True):
    """How many tokens stay under the earlier key until they are used."""

    tokens: int


async def list_tokens(call: Call[TokenQuery, NoBody]) -> TokenList:
    return TokenList([_view(each) for each in call.access.tokens().list(call.query.owner)])


async def create_token(call: Call[NoQuery, NewToken]) -> CreatedToken:
    tokens, body = call.access.tokens(), call.body
    tokens.check_owner(body.owner)
    check_private(call)
    try:
        scope, lifetime_ms = read_scope(body.scope), parse_duration_ms(body.expires)
    except (ValueError, ConfigError) as error:
        raise invalid(str(error)) from None
    made, text = await tokens.create(body.owner, scope=scope, lifetime_ms=lifetime_ms, label=body.name)
    return CreatedToken(
        token=text.reveal(),
        id=made.id,
        owner=made.owner,
        name=made.label,
        scope=made.scope.texts(),
        created_ms=made.created_ms,
        expires_ms=made.expires_ms,
    )


async def revoke_token(call: Call[NoQuery, NoBody]) -> None:
    await call.access.tokens().revoke(call.params["token"])


async def rotate_token_key(call: Call[NoQuery, RotationBody]) -> Rotation:
    return Rotation(await call.access.tokens().rotate_key(drop=call.body.drop))


def _view(token: ApiToken) -> TokenView:
    return TokenView(
        id=token.id,
        owner=token.owner,
        name=token.label,
        scope=token.scope.texts(),
        created_ms=token.created_ms,
        expires_ms=token.expires_ms,
        used_ms=token.used_ms,
    )


_FAILS = (Code.AUTHORIZATION_FAILED,)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/tokens",
        name="listTokens",
        tag="tokens",
        summary="API tokens, without their texts",
        doc="A user sees its own tokens. Those of others need Describe on the cluster.",
        handler=list_tokens,
        query=TokenQuery,
        answer=TokenList,
        fails=_FAILS,
    ),
    Operation(
        method="POST",
        path="/api/v1/tokens",
        name="createToken",
        tag="tokens",
        summary="Create an API token",
        doc="A scope is a list of OPERATION:KIND:NAME, such as read:topic:orders; `all` is everything that "
        "the owner may do. A token lives for a year at most. A token for another user needs Alter on the "
        "cluster, and a token cannot create tokens. The text is in this answer and nowhere else.",
        handler=create_token,
        body=NewToken,
        answer=CreatedToken,
        status=201,
        fails=(*_FAILS, Code.USER_NOT_FOUND),
    ),
    Operation(
        method="DELETE",
        path="/api/v1/tokens/{token}",
        name="revokeToken",
        tag="tokens",
        summary="Revoke an API token, and end what is connected by it",
        handler=revoke_token,
        answer=None,
        status=204,
        fails=(*_FAILS, Code.TOKEN_NOT_FOUND),
    ),
    Operation(
        method="POST",
        path="/api/v1/tokens/rotate-key",
        name="rotateTokenKey",
        tag="tokens",
        summary="Make another server key for API tokens",
        doc="Tokens move to the new key when they are used. The key before stays until the next rotation.",
        handler=rotate_token_key,
        body=RotationBody,
        answer=Rotation,
        fails=_FAILS,
    ),
)
