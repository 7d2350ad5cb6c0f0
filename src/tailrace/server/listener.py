"""[[listeners]] of the configuration: where the node is reached, by which protocol, and who may come.

    [[listeners]]
    name = "clients"
    protocol = "kafka"                  kafka, native or http
    address = "127.0.0.1:9092"
    sasl = ["SCRAM-SHA-256"]            without it everybody comes as User:ANONYMOUS
    tls = {cert = "server.crt", key = "server.key"}      and client_ca, min_version, crl, principal

If there is any, these are all the listeners of the node. A problem names its key and the fix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.model import ConfigError
from tailrace.model.address import PORT_MAX, Address
from tailrace.net.certificate import PRINCIPAL_RULES
from tailrace.net.tls import TLS_VERSIONS, TlsConfig
from tailrace.security import MECHANISMS, OAUTHBEARER, PLAIN
from tailrace.security.oauth.config import OauthConfig
from tailrace.security.verifier import HASHES
from tailrace.server.oauth import OAUTH_KEY, oauth_problems, read_oauth

PROTOCOLS: Final = ("kafka", "native", "http")
REPLACED: Final = frozenset({"server.host", "server.kafka_port", "native.port", "http.port", "http.enabled"})
"""What says where the default listeners are."""
_TLS_KEYS: Final = frozenset({"cert", "key", "client_ca", "crl", "min_version", "principal"})
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)

LISTENER_KEYS: Final[Mapping[str, tuple[str, str, str]]] = {
    "listeners.name": (
        "text",
        "",
        "The name of a listener, in logs and metrics: small letters, digits, - and _.",
    ),
    "listeners.protocol": ("kafka, native or http", "", "What is spoken on the listener."),
    "listeners.address": (
        "HOST:PORT",
        "",
        "Where the listener is bound; port 0 takes any free one. Anything but a loopback address needs "
        "tls, or server.allow_plaintext.",
    ),
    "listeners.sasl": (
        "list of mechanisms",
        "[]",
        "How clients log in: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN and OAUTHBEARER; on an http listener PLAIN, "
        "which there is HTTP Basic, and OAUTHBEARER, which is HTTP Bearer. API tokens go where PLAIN does. "
        "PLAIN and OAUTHBEARER send the secret itself, and are offered with tls or on loopback addresses "
        "only. Without this key, and without tls.client_ca, every client is User:ANONYMOUS.",
    ),
    "listeners.tls": (
        "table of files and rules",
        "{}",
        "Encryption: cert and key (PEM files); client_ca (every client presents a certificate of these CAs, "
        "and is its principal unless sasl says otherwise); min_version (1.3, or 1.2); crl (revoked client "
        "certificates); principal (DN, CN, UID, SAN:DNS, SAN:EMAIL or SAN:URI: what of a certificate names "
        "the principal). Changed files are read again without a restart.",
    ),
    "listeners.oauth": OAUTH_KEY,
}
"""Of each key of a listener: its type, its default, its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerConfig:
    """One listener."""

    name: str
    protocol: str
    address: Address
    sasl: tuple[str, ...] = ()
    oauth: OauthConfig | None = None  # the issuer of tokens, with OAUTHBEARER
    tls: TlsConfig | None = None

    @property
    def security_protocol(self) -> str:
        """How Kafka names the protocol of this listener."""
        return f"{'SASL_' if self.sasl else ''}{'PLAINTEXT' if self.tls is None else 'SSL'}"


def is_private(listener: ListenerConfig) -> bool:
    """Whether no other machine can read what clients send: the listener has TLS, or a loopback address.

    Then PLAIN, Basic, OAUTHBEARER and tokens are allowed on it, which send the secret itself.
    """
    return listener.tls is not None or is_loopback(
        listener.address.host, key=f"listeners {listener.name!r}: address"
    )


def read_listeners(given: object) -> tuple[list[ListenerConfig], list[str]]:
    """The listeners of a file, and what is wrong with them."""
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        return [], ["listeners must be tables: write [[listeners]] above the keys of each"]
    found: list[ListenerConfig] = []
    problems: list[str] = []
    for number, table in enumerate(given, start=1):
        name = table.get("name")
        where = f"listeners {name!r}" if isinstance(name, str) else f"listeners number {number}"
        wrong = list(_problems(table))
        problems += [f"{where}: {each}" for each in wrong]
        if not wrong:
            found.append(_listener(table))
    problems += [
        f"listeners {each.name!r}: a listener of another protocol cannot have this name"
        for each in found
        if each.name in PROTOCOLS and each.name != each.protocol
    ]
    names = Counter(each.name for each in found)
    problems += [f"listeners {name!r}: {count} have this name" for name, count in names.items() if count > 1]
    return found, problems


def check_listeners(listeners: Sequence[ListenerConfig], *, allow_plaintext: bool) -> None:
    """ConfigError for listeners that would serve what must not be served."""
    for protocol in ("kafka", "native"):
        if not any(each.protocol == protocol for each in listeners):
            raise ConfigError(
                f'[[listeners]] has none with protocol = "{protocol}", and a node has at least one. Add one, '
                f'such as name = "{protocol}", protocol = "{protocol}", address = "127.0.0.1:0"'
            )
    if sum(each.protocol == "http" for each in listeners) > 1:
        raise ConfigError('[[listeners]] has several with protocol = "http", and a node has one at most')
    for each in listeners:
        host = each.address.host
        if is_private(each):
            continue
        clear = [mechanism for mechanism in (PLAIN, OAUTHBEARER) if mechanism in each.sasl]
        if clear:
            raise ConfigError(
                f"listeners {each.name!r}: sasl = {clear[0]} on {host} would send secrets in the clear to "
                "other machines. Give the listener tls, or use SCRAM-SHA-256, or a loopback address"
            )
        if not allow_plaintext:
            raise ConfigError(
                f"listeners {each.name!r}: address = {host!r} would serve other machines without encryption. "
                "Give it tls (tailrace cert init DIR), use a loopback address such as 127.0.0.1, or set "
                "server.allow_plaintext = true"
            )


def _problems(table: Mapping[str, object]) -> Iterator[str]:
    known = {key.partition(".")[2] for key in LISTENER_KEYS}
    for key in sorted(table.keys() - known):
        yield f"{key} is not a setting. There are: {', '.join(sorted(known))}"
    name = table.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "name must be 1 to 32 small letters, digits, - and _"
    if table.get("protocol") not in PROTOCOLS:
        yield f"protocol must be {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}"
    try:
        _address(table.get("address"))
    except ValueError as error:
        yield f"address must be HOST:PORT, such as 127.0.0.1:9092: {error}"
    yield from _sasl_problems(table.get("sasl", []), table.get("protocol"))
    yield from oauth_problems(table)
    if "tls" in table:
        yield from _tls_problems(table["tls"])


def _tls_problems(tls: object) -> Iterator[str]:
    if not isinstance(tls, dict):
        yield 'tls must be a table, such as {cert = "server.crt", key = "server.key"}'
        return
    for key in sorted(tls.keys() - _TLS_KEYS):
        yield f"tls.{key} is not a setting. There are: {', '.join(sorted(_TLS_KEYS))}"
    for key in ("cert", "key"):
        if key not in tls:
            yield f"tls.{key} is missing: tls needs cert and key. To make them: tailrace cert init DIR"
    for key, value in tls.items():
        if key in _TLS_KEYS and (not isinstance(value, str) or not value):
            yield f"tls.{key} must be a text that is not empty"
    if tls.get("min_version", "1.3") not in TLS_VERSIONS:
        yield f"tls.min_version must be {' or '.join(TLS_VERSIONS)}"
    if tls.get("principal", "DN") not in PRINCIPAL_RULES:
        yield f"tls.principal must be one of {', '.join(PRINCIPAL_RULES)}"
    for key in ("crl", "principal"):
        if key in tls and "client_ca" not in tls:
            yield f"tls.{key} is about certificates of clients, and needs tls.client_ca"


def _sasl_problems(sasl: object, protocol: object) -> Iterator[str]:
    if not isinstance(sasl, list) or not all(isinstance(each, str) for each in sasl):
        yield 'sasl must be a list, such as ["SCRAM-SHA-256"]'
        return
    for each in sasl:
        if each not in MECHANISMS:
            yield f"sasl has {each!r}, and there are: {', '.join(MECHANISMS)}"
    if protocol == "http" and any(each in HASHES for each in sasl):
        yield f'sasl of an http listener is of "{PLAIN}" (HTTP Basic) and "{OAUTHBEARER}" (Bearer)'


def _listener(table: Mapping[str, object]) -> ListenerConfig:
    sasl = table.get("sasl", [])
    assert isinstance(sasl, list)
    return ListenerConfig(
        name=str(table["name"]),
        protocol=str(table["protocol"]),
        address=_address(table["address"]),
        sasl=tuple(dict.fromkeys(map(str, sasl))),
        oauth=read_oauth(table),
        tls=_tls(table["tls"]) if "tls" in table else None,
    )


def _tls(given: object) -> TlsConfig:
    assert isinstance(given, dict)
    return TlsConfig(
        cert=Path(given["cert"]),
        key=Path(given["key"]),
        client_ca=Path(given["client_ca"]) if "client_ca" in given else None,
        crl=Path(given["crl"]) if "crl" in given else None,
        min_version=given.get("min_version", "1.3"),
        principal=given.get("principal", "DN"),
    )


def _address(given: object) -> Address:
    """Like `parse_address`, with port 0 for any free one; a Unix socket is no address here."""
    if not isinstance(given, str):
        raise ValueError("it is missing" if given is None else "it is no text")
    host, colon, port = given.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare) != host.startswith("[") or not port.isascii():
        raise ValueError(f"{given!r} is none")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"{given!r} has no port from 0 to {PORT_MAX}")
    return Address(bare, int(port))


def is_loopback(host: str, *, key: str = "server.host") -> bool:
    """Whether only this machine reaches an address; a name is looked up."""
    if host.lower() in ("127.0.0.1", "localhost"):
        return True
    import ipaddress
    import socket

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{key} = {host!r} is no address of this machine: {error.strerror}") from error
    return all(ipaddress.ip_address(each[4][0]).is_loopback for each in found)
