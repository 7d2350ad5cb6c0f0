"""Who a client logs in as, and the exchange by which it does.

    Credentials        user, password, mechanism; `bearer` has those with a token
    Exchange           messages for the broker, whatever carries them: Kafka's SaslAuthenticate, native AUTH
    from_environment   TAILRACE_USER, with TAILRACE_PASSWORD or the file named by TAILRACE_PASSWORD_FILE; or
                       TAILRACE_TOKEN, or the file named by TAILRACE_TOKEN_FILE

The mechanism is the one that was chosen: a client never falls back to a weaker one. A password is hashed in a
thread, since that takes milliseconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.client.bearer import BearerCredentials, GiveToken, called, fixed
from tailrace.model import ConfigError
from tailrace.security import PLAIN, SCRAM_SHA_256, AuthenticationFailed, Secret
from tailrace.security.api_token import TOKEN_USER, is_api_token
from tailrace.security.mechanism import PASSWORD_MECHANISMS
from tailrace.security.sasl.plain import write_plain
from tailrace.security.sasl.scram_client import ScramClient

USER_VARIABLE: Final = "TAILRACE_USER"
PASSWORD_VARIABLE: Final = "TAILRACE_PASSWORD"
PASSWORD_FILE_VARIABLE: Final = "TAILRACE_PASSWORD_FILE"
TOKEN_VARIABLE: Final = "TAILRACE_TOKEN"
TOKEN_FILE_VARIABLE: Final = "TAILRACE_TOKEN_FILE"
_FILE_BYTES_MAX: Final = 4096
_TOKEN_FILE_BYTES_MAX: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user and its password."""

    username: str
    password: Secret = field(hash=False)
    mechanism: str = SCRAM_SHA_256

    def __post_init__(self) -> None:
        if not self.username:
            raise ConfigError("username is empty. Give the name of a user, and its password")
        if self.mechanism not in PASSWORD_MECHANISMS:
            known = ", ".join(PASSWORD_MECHANISMS)
            raise ConfigError(f"the mechanism {self.mechanism!r} is none of {known}")

    def begin(self) -> Exchange:
        """A new login."""
        return Exchange(self)


AnyCredentials = Credentials | BearerCredentials
"""How a client logs in."""


def credentials_of(
    username: str | None, password: str | Secret | None, token: str | Secret | GiveToken | None = None
) -> AnyCredentials | None:
    """What a client was given; None where it was given nothing. ConfigError for one without the other."""
    if token is not None:
        if username is not None or password is not None:
            raise ConfigError("token stands for a user and its password. Leave username and password out")
        return token_credentials(token)
    if username is None and password is None:
        return None
    if username is None or password is None:
        raise ConfigError("username and password go together. Give both, or none")
    return Credentials(username, password if isinstance(password, Secret) else Secret(password))


def token_credentials(token: str | Secret | GiveToken) -> AnyCredentials:
    """The login with a token: an API token is the password of the user `token`, a JWT goes by OAUTHBEARER."""
    if not isinstance(token, str | Secret):
        return BearerCredentials(called(token))
    secret = token if isinstance(token, Secret) else Secret(token)
    if not secret.reveal():
        raise ConfigError("the token is empty")
    if is_api_token(secret):
        return Credentials(TOKEN_USER, secret, PLAIN)
    return BearerCredentials(fixed(secret))


def from_environment(environment: Mapping[str, str] | None = None) -> AnyCredentials | None:
    """The login that the environment names; None if it names none."""
    given = os.environ if environment is None else environment
    user = given.get(USER_VARIABLE)
    token = _token_of(given)
    if token is not None:
        if user:
            raise ConfigError(f"{USER_VARIABLE} and {TOKEN_VARIABLE} are both set. Unset one of them")
        return token_credentials(token)
    if not user:
        return None
    if path := given.get(PASSWORD_FILE_VARIABLE):
        return Credentials(user, read_password_file(Path(path)))
    if password := given.get(PASSWORD_VARIABLE):
        return Credentials(user, Secret(password))
    raise ConfigError(
        f"{USER_VARIABLE} is set without a password. Set {PASSWORD_VARIABLE} or {PASSWORD_FILE_VARIABLE}"
    )


def _token_of(given: Mapping[str, str]) -> Secret | None:
    if path := given.get(TOKEN_FILE_VARIABLE):
        return read_token_file(Path(path))
    return Secret(token) if (token := given.get(TOKEN_VARIABLE)) else None


def read_token_file(path: Path) -> Secret:
    """The token in a file."""
    return _read_secret(path, what=f"the token file {path}", bytes_max=_TOKEN_FILE_BYTES_MAX)


def read_password_file(path: Path) -> Secret:
    """The content of a file without its last line break."""
    return _read_secret(path, what=f"the password file {path}", bytes_max=_FILE_BYTES_MAX)


def _read_secret(path: Path, *, what: str, bytes_max: int) -> Secret:
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {what}: {error.strerror}") from error
    return password_text(data, what=what, bytes_max=bytes_max)


def password_text(data: bytes, *, what: str, bytes_max: int = _FILE_BYTES_MAX) -> Secret:
    """A password out of bytes without their last line break; ConfigError names `what` they are."""
    try:
        text = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigError(f"{what} is not UTF-8 text") from None
    if not text or len(data) > bytes_max:
        raise ConfigError(f"{what} is empty" if not text else f"{what} is over {bytes_max} bytes")
    return Secret(text)


class Exchange:
    """One login: `first`, then `answer` what the broker says until it returns None."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._scram: ScramClient | None = None
        self._is_proven = False

    async def first(self) -> bytes:
        given = self._credentials
        if given.mechanism == PLAIN:
            return write_plain(given.username, given.password)
        self._scram = ScramClient(given.mechanism, given.username, given.password)
        return self._scram.first()

    async def answer(self, data: bytes) -> bytes | None:
        """The next message; None once the broker has proven that it knows the user."""
        scram = self._scram
        if scram is None:
            if data:
                raise AuthenticationFailed("the broker answered PLAIN with a message, and none is expected")
            return None
        if not self._is_proven:
            self._is_proven = True
            return await asyncio.to_thread(scram.prove, data)
        scram.check(data)
        return None
