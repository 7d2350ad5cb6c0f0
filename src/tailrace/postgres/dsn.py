"""Where a database is and how to log in, read from a connection URI as libpq writes it.

    postgresql://user:password@db.example.com:5432/tailrace?sslrootcert=/etc/tailrace/postgres-ca.pem
    postgresql:///tailrace?host=/var/run/postgresql     a Unix socket; the user is that of the process

Of libpq's parameters these are read: host, port, user, password, dbname, sslmode, sslrootcert, sslcert,
sslkey, application_name, connect_timeout. Others are refused, so that none is ignored in silence.

Off loopback sslmode is verify-full, which checks the chain of the certificate and the name of the host, and
nothing weaker is accepted. On loopback and Unix sockets it is disable unless verify-full is asked for.

The whole text is a secret, as it may hold a password: no error repeats any of it but names of parameters.
"""

from __future__ import annotations

import getpass
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from tailrace.model import ConfigError
from tailrace.model.address import PORT_MAX
from tailrace.security.secret import Secret

DISABLE: Final = "disable"
VERIFY_FULL: Final = "verify-full"
PORT: Final = 5432
_TEXT_MAX: Final = 4096
_TIMEOUT_S_MAX: Final = 600
_SOCKETS: Final = "/var/run/postgresql"
_PARAMETERS: Final = frozenset(
    {
        "application_name",
        "connect_timeout",
        "dbname",
        "host",
        "password",
        "port",
        "sslcert",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "user",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dsn:
    """A database and a way into it. Its repr has no password."""

    host: str  # a name, an address, or the directory of a Unix socket
    port: int = PORT
    user: str
    database: str
    password: Secret | None = None
    sslmode: str = DISABLE
    sslrootcert: str = ""  # "": the system's certificates
    sslcert: str = ""
    sslkey: str = ""
    application_name: str = "tailrace"
    connect_timeout_s: float = 10.0

    def __str__(self) -> str:
        """What logs and errors call the database."""
        where = self.host if self.host.startswith("/") else f"{self.host}:{self.port}"
        return f"PostgreSQL {where}/{self.database}"


def parse_dsn(text: Secret, *, key: str) -> Dsn:
    """The database that a text names; ConfigError names `key` and what is wrong, and shows nothing of it."""
    try:
        return _parse(text.reveal().strip())
    except ValueError as error:
        raise ConfigError(
            f"{key} is no connection URI that can be used: {error}. "
            "It is like postgresql://user:password@host:5432/database"
        ) from None


def tls_context(dsn: Dsn) -> ssl.SSLContext | None:
    """What the connection is encrypted with; None without TLS. ConfigError for files that cannot be read."""
    if dsn.sslmode == DISABLE:
        return None
    try:
        context = ssl.create_default_context(cafile=dsn.sslrootcert or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if dsn.sslcert:
            context.load_cert_chain(dsn.sslcert, dsn.sslkey or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(name for name in (dsn.sslrootcert, dsn.sslcert, dsn.sslkey) if name)
        raise ConfigError(
            f"the certificates for {dsn} cannot be used ({files}): {error.strerror or 'not PEM files'}. "
            "Check sslrootcert, sslcert and sslkey of its connection URI"
        ) from error
    return context


def is_local(host: str) -> bool:
    """Whether what is sent to this host stays on this machine. Of names only localhost does."""
    if host.startswith("/") or host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parse(text: str) -> Dsn:
    if len(text) > _TEXT_MAX or not text.isprintable():
        raise ValueError(f"it has over {_TEXT_MAX} characters, or characters that cannot be printed")
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in ("postgresql", "postgres"):
        raise ValueError("it does not begin with postgresql://")
    given = _given(text)
    host = given.get("host", _SOCKETS)
    if not host or "," in host:
        raise ValueError("it names several hosts, or an empty one" if "," in host else "its host is empty")
    user = given.get("user") or getpass.getuser()
    return Dsn(
        host=host,
        port=_number(given, "port", PORT, most=PORT_MAX),
        user=user,
        database=given.get("dbname") or user,
        password=Secret(given["password"]) if "password" in given else None,
        sslmode=_sslmode(given, host),
        sslrootcert=given.get("sslrootcert", ""),
        sslcert=given.get("sslcert", ""),
        sslkey=given.get("sslkey", ""),
        application_name=given.get("application_name", "tailrace")[:63],  # what PostgreSQL keeps of a name
        connect_timeout_s=_number(given, "connect_timeout", 10, most=_TIMEOUT_S_MAX),
    )


def _given(text: str) -> dict[str, str]:
    """The parameters, whether they stand before or after the question mark; the latter win, as in libpq."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise ValueError("its host, port or parameters cannot be read; percent-encode / : @ ? #") from None
    if parts.fragment:
        raise ValueError("it has a #, which stands as %23 in a password")
    found: dict[str, str] = {}
    for name, value in (
        ("user", parts.username),
        ("password", parts.password),
        ("host", host),
        ("dbname", parts.path.removeprefix("/")),
    ):
        if value:
            found[name] = unquote(value)
    if port is not None:
        found["port"] = str(port)
    for name, value in query:
        if name not in _PARAMETERS:
            raise ValueError(
                f"it has a parameter that is not used. There are: {', '.join(sorted(_PARAMETERS))}"
            )
        found[name] = value
    return found


def _sslmode(given: Mapping[str, str], host: str) -> str:
    local = is_local(host)
    mode = given.get("sslmode", DISABLE if local else VERIFY_FULL)
    if mode not in (DISABLE, VERIFY_FULL):
        raise ValueError(f"sslmode is {VERIFY_FULL}, or {DISABLE} on this machine: others check too little")
    if mode == DISABLE and not local:
        raise ValueError(
            f"sslmode = {DISABLE} would send data over the network in the clear. Leave it out, and name the "
            "certificate authority of the server with sslrootcert"
        )
    if mode == VERIFY_FULL and host.startswith("/"):
        raise ValueError("there is no TLS on a Unix socket. Leave sslmode out")
    return mode


def _number(given: Mapping[str, str], name: str, default: int, *, most: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= most):
        raise ValueError(f"{name} must be a number from 1 to {most}")
    return int(text)
