"""The logins of one listener, with an entry in the audit log for each: who came, or that a login failed.

A failed login names the user only if there is such a user: what was typed in the place of a name may be a
password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.security.audit import FAILED, Audit
from tailrace.security.authenticated import Authenticated
from tailrace.security.authenticator import AuthenticatorPort, Login, Step
from tailrace.security.failure import AuthenticationFailed
from tailrace.security.mechanism import TOKEN
from tailrace.security.secret import Secret


class AuditedLogins:
    """An `AuthenticatorPort` over another one."""

    def __init__(self, authenticator: AuthenticatorPort, audit: Audit, *, listener: str) -> None:
        self._authenticator = authenticator
        self._audit = audit
        self._listener = listener

    def __repr__(self) -> str:
        return f"<AuditedLogins of {self._listener}, {self._authenticator}>"

    def begin(self, mechanism: str, *, host: str) -> Login:
        return _AuditedLogin(self, self._authenticator.begin(mechanism, host=host), mechanism, host)

    async def check(self, user: str, password: Secret, *, host: str, mechanism: str) -> Authenticated:
        with self._noting_failure(host=host, mechanism=mechanism):
            found = await self._authenticator.check(user, password, host=host, mechanism=mechanism)
        self._note(found, host=host, mechanism=mechanism)
        return found

    async def check_bearer(self, token: Secret, *, host: str) -> Authenticated:
        with self._noting_failure(host=host, mechanism=TOKEN):
            found = await self._authenticator.check_bearer(token, host=host)
        self._note(found, host=host, mechanism=found.mechanism)
        return found

    # ---- inside

    @contextmanager
    def _noting_failure(self, *, host: str, mechanism: str) -> Iterator[None]:
        try:
            yield
        except AuthenticationFailed as error:
            self._audit.login(
                name=error.user, host=host, listener=self._listener, mechanism=mechanism, result=FAILED
            )
            raise

    def _note(self, found: Authenticated, *, host: str, mechanism: str) -> None:
        kind, name = found.principal
        self._audit.login(kind=kind, name=name, host=host, listener=self._listener, mechanism=mechanism)


class _AuditedLogin:
    def __init__(self, owner: AuditedLogins, login: Login, mechanism: str, host: str) -> None:
        self._owner = owner
        self._login = login
        self._mechanism = mechanism
        self._host = host

    async def step(self, data: bytes) -> Step:
        with self._owner._noting_failure(host=self._host, mechanism=self._mechanism):
            step = await self._login.step(data)
        if step.authenticated is not None:
            self._owner._note(step.authenticated, host=self._host, mechanism=self._mechanism)
        return step
