"""What a node is built from. Where the values come from is `configuration`'s business.

An embedded broker needs no more than this module of the configuration, and is meant to be ready at once: what
only files and environments need is not imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.security.secret import Secret
from tailrace.server.listener import ListenerConfig, check_listeners, is_loopback
from tailrace.storage.api import COMMIT, Fsync

if TYPE_CHECKING:
    from tailrace.security.secret import Secret
    from tailrace.server.encryption import EncryptionConfig
    from tailrace.server.kind import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What a node is built from."""

    host: str = "127.0.0.1"
    kafka_port: int = 9092
    native_port: int = 9999
    native_socket: str = ""  # the path of a Unix socket; "": there is none
    native_heartbeat_ms: int = 30_000
    http_port: int | None = None  # None: there is no such listener
    http_allowed_hosts: tuple[str, ...] = ()
    advertised: tuple[str, int] | None = None  # None: the address by which each client came
    allow_plaintext: bool = False
    authorizer: Literal["off", "acl"] = "off"
    super_users: tuple[str, ...] = ()  # principals such as User:admin
    engine: str = "segment"  # a name in `server.engines`
    users: Literal["metadata", "postgres"] = "metadata"
    postgres_dsn: Secret | None = None  # of `users`
    postgres_grace_s: int = 900
    engine_settings: Mapping[str, Value | Secret] = field(default_factory=dict)  # its own table
    data_dir: Path = Path("tailrace-data")
    encryption: EncryptionConfig | None = None  # None: nothing is encrypted
    fsync: Fsync = COMMIT
    log_level: str = "info"
    log_format: Literal["text", "json"] = "text"
    telemetry_endpoint: str = ""  # "": nothing is sent
    telemetry_traces: bool = True
    telemetry_metrics: bool = True
    telemetry_interval_s: int = 15
    telemetry_sample_one_in: int = 100
    audit: Literal["auto", "on", "off"] = "auto"
    listeners: tuple[ListenerConfig, ...] = ()  # none: one of each protocol, at the ports above
    broker: Mapping[str, str] = field(default_factory=dict)  # Kafka's names; only what was set
    topic_defaults: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.users == "postgres" and self.postgres_dsn is None:
            raise ConfigError(
                "security.users = postgres needs security.postgres_dsn, such as "
                "postgresql://tailrace@db.lan/tailrace. With a password in it, keep it in a file that "
                "TAILRACE_SECURITY__POSTGRES_DSN_FILE names"
            )
        if self.listeners:
            check_listeners(self.listeners, allow_plaintext=self.allow_plaintext)
            check_socket(self.listeners_of("native")[0], self.native_socket)
        else:
            check_exposure(self.host, allow_plaintext=self.allow_plaintext)

    @property
    def audits(self) -> bool:
        """Whether there is an audit log: where clients have names, unless it was said otherwise."""
        return self.audit == "on" or (self.audit == "auto" and any(each.sasl for each in self.listeners))

    def listeners_of(self, protocol: str) -> list[ListenerConfig]:
        """Those of a protocol: what was set, or the default one."""
        if self.listeners:
            return [each for each in self.listeners if each.protocol == protocol]
        ports = {"kafka": self.kafka_port, "native": self.native_port, "http": self.http_port}
        port = ports[protocol]
        if port is None:
            return []
        return [ListenerConfig(name=protocol, protocol=protocol, address=Address(self.host, port))]


def check_socket(listener: ListenerConfig, path: str) -> None:
    """ConfigError for a Unix socket, which has no TLS, beside a listener whose certificates say who comes."""
    if path and listener.tls is not None and listener.tls.client_ca is not None and not listener.sasl:
        raise ConfigError(
            f"native.socket = {path!r} would let clients in without a certificate, which listeners "
            f"{listener.name!r} demands. Leave it out, or give the listener sasl"
        )


def check_exposure(host: str, *, allow_plaintext: bool) -> None:
    """Nothing is served to other machines without encryption, unless somebody says that it may."""
    if allow_plaintext or is_loopback(host):
        return
    raise ConfigError(
        f"server.host = {host!r} would serve other machines without encryption. Use a loopback address "
        "such as 127.0.0.1, or set server.allow_plaintext = true (TAILRACE_SERVER__ALLOW_PLAINTEXT=true)"
    )
