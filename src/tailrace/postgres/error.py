"""What PostgreSQL and its driver raise, as errors of ours. Nothing above this package sees the driver's.

    DatabaseAway     08*, 57P0*, a socket that failed, anything without an SQLSTATE: try again later
    DatabaseBusy     55P03, 57014, 40001, 40P01, 53300, 53400: try again
    DatabaseFull     53100, 53200: try again when there is room
    DatabaseRefused  28*, 3D000, 42501, 25006 (login, database, privilege, standby): a person must act
    DatabaseFailed   the rest: a bug of ours, or tables that were changed by others

After DatabaseAway it is not known whether a statement that had been sent was carried out: the answer may be
what was lost. After the others it is known that it was not.

A text holds what the server says first, never its detail, which repeats values of rows, and never the DSN.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from tailrace.model import BrokerError, ErrorCode, escape

_AWAY: Final = ("08", "57P0")
_BUSY: Final = frozenset({"55P03", "57014", "40001", "40P01", "53300", "53400"})
_FULL: Final = frozenset({"53100", "53200"})
_REFUSED: Final = frozenset({"3D000", "42501", "25006"})
_SAID_MAX: Final = 200


class DatabaseError(BrokerError):
    """What a database did not do."""

    default_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, *, sqlstate: str = "") -> None:
        super().__init__(message, code=self.default_code)
        self.sqlstate = sqlstate


class DatabaseAway(DatabaseError):
    """The database cannot be reached, or ended the connection; the outcome of what was sent is unknown."""

    retriable = True
    default_code = ErrorCode.BROKER_NOT_AVAILABLE


class DatabaseBusy(DatabaseError):
    """A lock, a limit of time or a limit of connections was met; nothing was changed."""

    retriable = True
    default_code = ErrorCode.REQUEST_TIMED_OUT


class DatabaseFull(DatabaseError):
    """The database has no room; nothing was changed."""

    retriable = True
    default_code = ErrorCode.KAFKA_STORAGE_ERROR


class DatabaseRefused(DatabaseError):
    """The database does not let this user do this."""


class DatabaseFailed(DatabaseError):
    """The database does not take a statement of ours."""


def map_error(error: BaseException, *, where: object) -> DatabaseError | None:
    """The error of ours for one of the driver; None for what is none of the database's.

    `where` names the database in the text: a Dsn, whose str has no secret.
    """
    if isinstance(error, DatabaseError):
        return error
    sqlstate = getattr(error, "sqlstate", None)
    if isinstance(sqlstate, str) and len(sqlstate) == 5:
        return _of_sqlstate(sqlstate, _said(error), where)
    if isinstance(error, ssl.SSLCertVerificationError):
        return DatabaseAway(
            f"the certificate of {where} is not trusted: {error.verify_message}. In the connection URI, name "
            "its certificate authority with sslrootcert, and the host as the certificate does"
        )
    if isinstance(error, TimeoutError):
        return DatabaseAway(f"{where} did not answer in time. Check the database, and the network to it")
    if isinstance(error, OSError):
        said = os.strerror(error.errno) if error.errno else escape(str(error)[:_SAID_MAX])
        return DatabaseAway(f"{where} cannot be reached: {said}. Check that it runs, and the address")
    if type(error).__module__.startswith("asyncpg") and not isinstance(error, ValueError):  # our own bug
        return DatabaseAway(f"the connection to {where} was lost ({type(error).__name__}). It is made again")
    return None


@contextmanager
def mapped(where: object) -> Iterator[None]:
    """Raise errors of the driver as ours."""
    try:
        yield
    except Exception as error:
        ours = map_error(error, where=where)
        if ours is None or ours is error:
            raise
        raise ours from error


def _of_sqlstate(sqlstate: str, said: str, where: object) -> DatabaseError:
    if sqlstate.startswith(_AWAY):
        return DatabaseAway(f"{where} is away: {said} ({sqlstate})", sqlstate=sqlstate)
    if sqlstate in _BUSY:
        return DatabaseBusy(f"{where} is busy: {said} ({sqlstate}). Try again", sqlstate=sqlstate)
    if sqlstate in _FULL:
        return DatabaseFull(
            f"{where} has no room: {said} ({sqlstate}). Free or add space; then it goes on", sqlstate=sqlstate
        )
    if sqlstate.startswith("28") or sqlstate in _REFUSED:
        return DatabaseRefused(
            f"{where} refuses this: {said} ({sqlstate}). Check user, password, database and privileges",
            sqlstate=sqlstate,
        )
    return DatabaseFailed(f"{where} failed: {said} ({sqlstate})", sqlstate=sqlstate)


def _said(error: BaseException) -> str:
    """The first line of the server's message, which has no values of rows."""
    text = str(error.args[0] if error.args else "").partition("\n")[0]
    return escape(text[:_SAID_MAX]) or type(error).__name__
