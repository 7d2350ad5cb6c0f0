"""TLS of one listener: the context of its handshakes, its certificate, and who a client certificate is.

    TlsConfig ──make_context──► SSLContext      one for all clients, until a file changes
                                    │ reload    a new one for the clients that come then
                                    ▼
    a certificate of a client ──identify──► Principal     or nobody, and the connection ends

TLS 1.3, or 1.2 where `min_version` says so, with ECDHE and AEAD only. A context is never changed: a reload
makes another one, so that a CA that was taken out, or a CRL, holds for every handshake that begins then. A
reload that fails keeps the context that there is. There are no session tickets: a resumed session would not
be checked against the CRL again, and the key of tickets would open what was recorded before.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.model import ConfigError, escape
from tailrace.model.session import Principal, Session
from tailrace.net.certificate import CertificateRefused, expiry_of, principal_of
from tailrace.net.folded_log import FoldedLog
from tailrace.net.logins import PendingLogins
from tailrace.security import CERTIFICATE

if TYPE_CHECKING:
    from tailrace.net.peer import ConnectionFacts
    from tailrace.net.transport import Transport

logger = logging.getLogger(__name__)

TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CIPHERS_1_2: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_PEM_BYTES_MAX: Final = 16 << 20

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """The files of a listener's TLS, in PEM."""

    cert: Path  # the certificate of the server, and those between it and its CA
    key: Path
    client_ca: Path | None = None  # then a client presents a certificate of one of these CAs
    min_version: str = "1.3"
    crl: Path | None = None  # certificates of clients that are revoked
    principal: str = "DN"  # see `certificate`

    def files(self) -> Iterator[Path]:
        """Every file that a context is made of."""
        yield self.cert
        yield self.key
        if self.client_ca is not None:
            yield self.client_ca
        if self.crl is not None:
            yield self.crl


@dataclass(slots=True)
class HandshakeCounts:
    """What became of handshakes. The numbers only grow."""

    succeeded: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # by reason, of which there are few


def _everyone(principal: Principal) -> bool:  # noqa: ARG001
    return True


class ServerTls:
    """The TLS of one listener, from its start to its end."""

    def __init__(
        self,
        config: TlsConfig,
        *,
        listener: str = "",
        protocol: str = "",
        identifies: bool | None = None,
        admits: Callable[[Principal], bool] = _everyone,
        pending: PendingLogins | None = None,
    ) -> None:
        """ConfigError names the file that will not do.

        `identifies` says whether the principal of a client is that of its certificate; without it, it is
        wherever there is a `client_ca`. `admits` says whether a principal may come. Handshakes under way
        count in `pending`, which listeners share.
        """
        self.config = config
        self.listener = listener
        self.protocol = protocol
        self.identifies = config.client_ca is not None if identifies is None else identifies
        self.pending = PendingLogins() if pending is None else pending
        self.counts = HandshakeCounts()
        self.log = FoldedLog(logger)
        self._admits = admits
        self._stamp = _stamp(config)
        self.context = make_context(config)
        self.expires_at = _expiry(config.cert)  # seconds since 1970
        _warn_of_mode(config.key)

    def __repr__(self) -> str:
        return f"<ServerTls {self.listener} {self.config.cert}>"

    def identify(self, transport: Transport) -> Principal | None:
        """Whose certificate a client has presented; None where a login says who it is, or nobody asks.

        CertificateRefused for one whose owner is not a principal, or may not come.
        """
        if not self.identifies:
            return None
        connection = transport.get_extra_info("ssl_object")
        der = None if connection is None else connection.getpeercert(True)
        if not der:
            raise CertificateRefused("it presented no certificate")
        principal = principal_of(der, self.config.principal)
        if not self._admits(principal):
            raise CertificateRefused(f"{principal} is disabled")
        return principal

    def reload_if_changed(self) -> bool:
        """Whether the files have changed and are used from now on; a failure keeps those of before."""
        stamp = _stamp(self.config)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            context, expires_at = make_context(self.config), _expiry(self.config.cert)
        except ConfigError as error:
            logger.error("certificate kept: listener %s goes on with the old one: %s", self.listener, error)
            return False
        self.context, self.expires_at = context, expires_at
        logger.info("certificate reloaded: listener %s, expires %s", self.listener, _day(expires_at))
        return True

    def refused(self, client: str, host: str, reason: str, *, why: str) -> None:
        """A client did not get in: count it under `why`, and log the reason once per address and minute."""
        self.counts.failed[why] += 1
        self.log.warn(
            "TLS refused: %s on listener %s: %s",
            escape(client),
            self.listener,
            escape(reason),
            subject=host,
            now=time.monotonic(),
        )


def first_session(
    tls: ServerTls, transport: Transport, facts: ConnectionFacts, *, listener: str
) -> Session | None:
    """The session with which a connection of a TLS listener begins; None for a client that may not come.

    Its principal is that of the client's certificate where no login follows. A refusal is logged.
    """
    encrypted = transport.get_extra_info("ssl_object") is not None  # a Unix socket beside it is not
    try:
        principal = tls.identify(transport)
    except CertificateRefused as error:
        tls.refused(str(facts), facts.peer_host, str(error), why="certificate")
        return None
    if principal is None:
        return Session(host=facts.peer_host, listener=listener, encrypted=encrypted)
    return Session(
        principal=principal,
        host=facts.peer_host,
        listener=listener,
        mechanism=CERTIFICATE,
        encrypted=encrypted,
    )


class HandshakeObject(ssl.SSLObject):
    """The TLS of one connection, which keeps what it would tell a client whose handshake fails.

    asyncio and uvloop end the connection without sending that alert, and no client could say what is wrong.
    """

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            error.alert = self.outgoing.read()  # type: ignore[attr-defined]
            raise


class ServerContext(ssl.SSLContext):
    """A context whose connections are such."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> Any:
        made = super().wrap_bio(incoming, outgoing, *args, **named)
        assert isinstance(made, HandshakeObject)
        made.outgoing = outgoing
        return made


def alert_of(error: ssl.SSLError) -> bytes:
    """The bytes by which a client learns why its handshake failed."""
    alert: bytes = getattr(error, "alert", b"")
    return alert


def make_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a server; ConfigError names the file that will not do, and the fix."""
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = HandshakeObject
    context.minimum_version = TLS_VERSIONS[config.min_version]
    context.set_ciphers(_CIPHERS_1_2)  # of TLS 1.2; all of TLS 1.3 are AEAD with an ephemeral exchange
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_pair(context, config)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    if config.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trusted(context, config.client_ca, what="client_ca")
    if config.crl is not None:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        _load_trusted(context, config.crl, what="crl")
    return context


def _load_pair(context: ssl.SSLContext, config: TlsConfig) -> None:
    cert, key = config.cert, config.key
    for what, path in (("cert", cert), ("key", key)):
        _check_readable(path, what=what)

    def no_password() -> str:
        raise ConfigError(
            f"tls key {key} is encrypted, and a broker that starts by itself cannot be asked for its "
            "password. Decrypt it (openssl pkey -in KEY -out NEW), and keep it readable by the broker only"
        )

    try:
        context.load_cert_chain(cert, key, password=no_password)
    except ssl.SSLError as error:
        reason = error.reason or ""
        if "MISMATCH" in reason:
            raise ConfigError(f"tls cert {cert} and key {key} do not belong together") from error
        raise ConfigError(
            f"tls cert {cert} and key {key} are not a certificate and its private key in PEM ({reason})"
        ) from error


def _load_trusted(context: ssl.SSLContext, path: Path, *, what: str) -> None:
    _check_readable(path, what=what)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        kind = "certificates" if what == "client_ca" else "a revocation list"
        raise ConfigError(f"tls {what} {path} is not {kind} in PEM ({error.reason})") from error


def _check_readable(path: Path, *, what: str) -> None:
    try:
        size = path.stat().st_size
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(
            f"cannot read tls {what} {path}: {error.strerror}. To make certificates: tailrace cert init DIR"
        ) from error
    if size > _PEM_BYTES_MAX:
        raise ConfigError(f"tls {what} {path} is over {_PEM_BYTES_MAX} bytes, which no such file is")


def _expiry(cert: Path) -> float:
    try:
        return expiry_of(cert.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"tls cert {cert} is not a certificate in PEM: {error}") from error


def _stamp(config: TlsConfig) -> Stamp:
    """By which a change of the files is seen."""
    found: list[tuple[int, int, int] | None] = []
    for path in config.files():
        try:
            facts = os.stat(path)
            found.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
        except OSError:
            found.append(None)
    return tuple(found)


def _warn_of_mode(key: Path) -> None:
    if stat.S_IMODE(key.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO) & ~stat.S_IRGRP:
        logger.warning("private key open to others: every user may read %s. Try: chmod 600 %s", key, key)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))
