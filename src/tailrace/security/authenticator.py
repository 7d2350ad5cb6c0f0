"""Logins: by messages of a SASL mechanism, or by a password in the clear.

    Authenticator.begin(mechanism, host=...) -> Login      Kafka and native: one per exchange
    Login.step(data) -> Step                               a challenge, or who it is: Authenticated
    Authenticator.check(user, password, host=...)          HTTP Basic, and what PLAIN comes to
    Authenticator.check_bearer(token, host=...)            HTTP Bearer

The user name `token` says that the password is an API token.

A failure is raised when its time has come (`guessing`): the caller waits on the loop, and no thread is held.
Counted from the moment when the attempt began, that time hides how long the check took. What fails is counted
by mechanism, and logged folded: one line per address and minute.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn, Protocol

from tailrace.model import escape
from tailrace.model.session import Principal
from tailrace.security.api_token import TOKEN_USER, is_api_token
from tailrace.security.authenticated import Authenticated
from tailrace.security.failure import (
    AuthenticationFailed,
    disabled_principal,
    malformed,
    wrong_credentials,
    wrong_token,
)
from tailrace.security.guessing import Guessing
from tailrace.security.mechanism import OAUTHBEARER, PLAIN, TOKEN
from tailrace.security.remembered import Remembered
from tailrace.security.sasl.oauthbearer import REFUSAL, read_bearer
from tailrace.security.sasl.plain import read_plain
from tailrace.security.sasl.scram_server import ScramServer
from tailrace.security.secret import Secret
from tailrace.security.tokens import Tokens
from tailrace.security.users import Users
from tailrace.security.verifier import SCRAM_SHA_256, proves

logger = logging.getLogger(__name__)

_LOGGED_EVERY_S: Final = 60.0
_LOGGED_HOSTS_MAX: Final = 1_000


class Step(NamedTuple):
    """What a login comes to: bytes for the client, and who it is once that is proven."""

    data: bytes
    authenticated: Authenticated | None = None


class Login(Protocol):
    """One exchange of a mechanism."""

    async def step(self, data: bytes) -> Step:
        """Take a message of the client; AuthenticationFailed ends the exchange."""


class TokenIssuer(Protocol):
    """The issuer of JSON Web Tokens that a listener believes (`oauth.issuer`)."""

    async def check(self, token: Secret) -> Authenticated:
        """Who a token is; AuthenticationFailed."""


class AuthenticatorPort(Protocol):
    """What a listener asks who its clients are."""

    def begin(self, mechanism: str, *, host: str) -> Login:
        """A new exchange with a client at an address."""

    async def check(self, user: str, password: Secret, *, host: str, mechanism: str) -> Authenticated:
        """Who logs in with a password in the clear; AuthenticationFailed."""

    async def check_bearer(self, token: Secret, *, host: str) -> Authenticated:
        """Who comes with a token; AuthenticationFailed."""


@dataclass(slots=True)
class LoginCounts:
    """How many logins there were, by mechanism. The numbers only grow."""

    succeeded: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


class Authenticator:
    """Logs users of a node in."""

    def __init__(self, users: Users, *, monotonic: Callable[[], float], tokens: Tokens | None = None) -> None:
        """Without `tokens` no API token is accepted."""
        self._users = users
        self._tokens = tokens
        self._monotonic = monotonic
        self._guessing = Guessing()
        self._remembered = Remembered()
        self._logged: dict[str, tuple[float, int]] = {}  # by address: when, and how many since
        self._issuer: TokenIssuer | None = None
        self.counts = LoginCounts()
        users.watch(self._remembered.forget)

    def __repr__(self) -> str:
        return f"<Authenticator of {self._users}>"

    def believing(self, issuer: TokenIssuer) -> Authenticator:
        """The same authenticator, for a listener that accepts the tokens of an issuer."""
        made = copy.copy(self)  # users, counts and what is remembered stay those of the node
        made._issuer = issuer
        return made

    def begin(self, mechanism: str, *, host: str) -> Login:
        if mechanism == PLAIN:
            return _PlainLogin(self, host)
        if mechanism == OAUTHBEARER:
            return _BearerLogin(self, host)
        return _ScramLogin(self, mechanism, host)

    async def check(self, user: str, password: Secret, *, host: str, mechanism: str) -> Authenticated:
        if user == TOKEN_USER:
            return await self._check_api_token(password, host)
        began = self._monotonic()
        if not await self._is_right(user, password):
            await self._fail(
                wrong_credentials(mechanism), host=host, user=user, mechanism=mechanism, began=began
            )
        return self._admit(user, mechanism)

    async def check_bearer(self, token: Secret, *, host: str) -> Authenticated:
        if self._issuer is None or is_api_token(token):
            return await self._check_api_token(token, host)
        began = self._monotonic()
        try:
            return await self._check_jwt(self._issuer, token)
        except AuthenticationFailed as error:
            await self._fail(error, host=host, user="", mechanism=OAUTHBEARER, began=began)

    # ---- inside

    async def _check_jwt(self, issuer: TokenIssuer, token: Secret, *, authzid: str = "") -> Authenticated:
        found = await issuer.check(token)
        name = found.principal.name
        if authzid not in ("", name):
            raise malformed(OAUTHBEARER, "a principal acts as itself only (authzid)")
        if name in self._users and not self._users.may_log_in(name):
            raise disabled_principal()
        self.counts.succeeded[OAUTHBEARER] += 1
        return found

    async def _check_api_token(self, token: Secret, host: str) -> Authenticated:
        began = self._monotonic()
        found = None if self._tokens is None else self._tokens.prove(token)
        if found is None:
            await self._fail(wrong_token(), host=host, user="", mechanism=TOKEN, began=began)
        self.counts.succeeded[TOKEN] += 1
        return Authenticated(
            Principal("User", found.owner),
            TOKEN,
            expires_at_ms=found.expires_ms,
            scope=found.scope,
            token_id=found.id,
        )

    async def _is_right(self, name: str, password: Secret) -> bool:
        user = self._users.get(name)
        if (
            user is not None
            and user.enabled
            and self._remembered.knows(user, password, now=self._monotonic())
        ):
            return True
        # An unknown user costs the same work as a known one.
        mechanism = SCRAM_SHA_256 if user is None else min(user.verifiers)
        verifier = self._users.verifier(name, mechanism)
        right = await self._users.hashing.run(lambda: proves(password, verifier))
        if not right or user is None or self._users.get(name) is not user:  # changed meanwhile
            return False
        self._remembered.note(user, password, now=self._monotonic())
        return user.enabled

    def _admit(self, user: str, mechanism: str) -> Authenticated:
        self.counts.succeeded[mechanism] += 1
        return Authenticated(Principal("User", user), mechanism)

    async def _fail(
        self, error: AuthenticationFailed, *, host: str, user: str, mechanism: str, began: float
    ) -> NoReturn:
        """Raise the error when it may be told."""
        error.user = user if user in self._users else ""
        await self._wait_out(host=host, user=user, mechanism=mechanism, began=began)
        raise error from None

    async def _wait_out(self, *, host: str, user: str, mechanism: str, began: float) -> None:
        """Note a failure; returns when it may be told."""
        self.counts.failed[mechanism] += 1
        now = self._monotonic()
        delay_s = self._guessing.failed(host=host, user=user, now=now)
        self._log(host, mechanism, now)
        await asyncio.sleep(max(began + delay_s - now, 0.0))

    def _log(self, host: str, mechanism: str, now: float) -> None:
        at, folded = self._logged.get(host, (-_LOGGED_EVERY_S, 0))
        if now - at < _LOGGED_EVERY_S:
            self._logged[host] = (at, folded + 1)
            return
        if len(self._logged) >= _LOGGED_HOSTS_MAX:
            self._logged.clear()
        self._logged[host] = (now, 0)
        more = f", and {folded} before it" if folded else ""
        logger.warning("login failed: from %s by %s%s", escape(host) or "this process", mechanism, more)


class _PlainLogin:
    def __init__(self, owner: Authenticator, host: str) -> None:
        self._owner = owner
        self._host = host

    async def step(self, data: bytes) -> Step:
        owner = self._owner
        began = owner._monotonic()
        try:
            message = read_plain(data)
        except ValueError as error:
            failure = malformed(PLAIN, str(error))
            await owner._fail(failure, host=self._host, user="", mechanism=PLAIN, began=began)
        found = await owner.check(message.user, message.password, host=self._host, mechanism=PLAIN)
        return Step(b"", found)


class _BearerLogin:
    """A refusal is told as the mechanism has it, and fails the exchange with the next message (RFC 7628)."""

    def __init__(self, owner: Authenticator, host: str) -> None:
        self._owner = owner
        self._host = host
        self._refused: AuthenticationFailed | None = None

    async def step(self, data: bytes) -> Step:
        if self._refused is not None:
            raise self._refused
        owner = self._owner
        began = owner._monotonic()
        try:
            return Step(b"", await self._check(data))
        except AuthenticationFailed as error:
            self._refused = error
        await owner._wait_out(host=self._host, user="", mechanism=OAUTHBEARER, began=began)
        return Step(REFUSAL)

    async def _check(self, data: bytes) -> Authenticated:
        try:
            message = read_bearer(data)
        except ValueError as error:
            raise malformed(OAUTHBEARER, str(error)) from None
        issuer = self._owner._issuer
        assert issuer is not None, "OAUTHBEARER is offered without an issuer"
        return await self._owner._check_jwt(issuer, message.token, authzid=message.authzid)


class _ScramLogin:
    def __init__(self, owner: Authenticator, mechanism: str, host: str) -> None:
        self._owner = owner
        self._mechanism = mechanism
        self._host = host
        self._server = ScramServer(mechanism)
        self._is_challenged = False

    async def step(self, data: bytes) -> Step:
        owner, mechanism, server = self._owner, self._mechanism, self._server
        began = owner._monotonic()
        try:
            if not self._is_challenged:
                answer = server.challenge(data, lambda name: owner._users.verifier(name, mechanism))
                self._is_challenged = True
                return Step(answer)
            answer = server.finish(data)
            if not owner._users.may_log_in(server.user):  # disabled since the challenge
                raise wrong_credentials(mechanism)
        except AuthenticationFailed as error:
            await owner._fail(error, host=self._host, user=server.user, mechanism=mechanism, began=began)
        return Step(answer, owner._admit(server.user, mechanism))
