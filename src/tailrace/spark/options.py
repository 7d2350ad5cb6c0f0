"""Options of the data source as Spark hands them over: text, with names in any mix of upper and lower case.

A name is known, refused with advice, or an error that suggests the nearest one: an option that does nothing
in silence is worse than one that is refused. `kafka.*` options are those of Kafka's own clients. What merely
tunes the Java client is accepted and does nothing (KAFKA_IGNORED), so that a query can be moved over.

    Options          names checked, values read one at a time with their types
    LinkSettings     where the cluster is, and how to talk to it; source and sink share it
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tailrace.client.address import parse_bootstrap
from tailrace.client.bearer import BearerCredentials
from tailrace.client.credentials import AnyCredentials
from tailrace.client.sasl_properties import PROTOCOL, SASL_PROPERTIES, read_sasl
from tailrace.client.ssl_properties import SSL_PROPERTIES, read_tls
from tailrace.model import ConfigError
from tailrace.spark.link import CLIENT_ID, REQUEST_TIMEOUT_S, BrokerLink, link_to
from tailrace.spark.login import AnyLogin, spark_login, spark_token
from tailrace.spark.tls import SparkTls, spark_tls

KAFKA_LINK = frozenset(
    {"kafka.bootstrap.servers", "kafka.client.id", "kafka.request.timeout.ms", "kafka.security.protocol"}
) | {f"kafka.{name}" for name in SASL_PROPERTIES | SSL_PROPERTIES}
"""What every user of a link may set."""

KAFKA_IGNORED = frozenset(
    f"kafka.{name}"
    for name in (
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "check.crcs",
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
    )
)
"""Settings of the Java client that have no counterpart here."""

# What Spark itself may add to the options of any source.
_SPARKS_OWN = frozenset({"path", "serialization.format"})
# Names of Java's that have no counterpart here.
_SECURITY = ("kafka.sasl.", "kafka.ssl.", "kafka.security.providers")
# An empty one turns a check of TLS off, and is common in settings that serve plain and other listeners.
_NO_HOST_CHECK = "kafka.ssl.endpoint.identification.algorithm"
_FLAGS = {"true": True, "false": False}
_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "seconds": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "minutes": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "hours": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "days": 86_400_000,
}
_DURATION = re.compile(r"\s*(\d{1,12})\s*([a-z]*)\s*")

T = TypeVar("T")


class Options:
    """Options whose names were checked."""

    def __init__(
        self,
        given: Mapping[str, str],
        *,
        known: Iterable[str],
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """`known` are the names as the documentation writes them; `refused` gives the advice for a name."""
        self._given = {name.lower(): value for name, value in given.items()}
        self._names = {name.lower(): name for name in known}
        advice = {name.lower(): (name, text) for name, text in (refused or {}).items()}
        for name, value in self._given.items():
            if name in advice:
                raise ConfigError(f"option {advice[name][0]}={value!r} is not supported: {advice[name][1]}")
            if name != _NO_HOST_CHECK or value.strip():
                self._check_name(name)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._given.get(name.lower())
        return default if value is None else value.strip()

    def number(self, name: str, *, least: int = 1) -> int | None:
        """A whole number, or None where the option is not given."""
        value = self.text(name)
        if value is None:
            return None
        # int() alone would also take underscores and digits of other scripts.
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", value) or int(value) < least:
            raise ConfigError(f"option {name}={value!r} is not a whole number. Use {least} or more")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        return self.choice(name, str(default).lower(), _FLAGS)

    def choice(self, name: str, default: str, choices: Mapping[str, T]) -> T:
        """What one of some words stands for, in any case."""
        value = self.text(name, default) or ""
        if value.lower() not in choices:
            raise ConfigError(f"option {name}={value!r} is not possible. Use one of: {', '.join(choices)}")
        return choices[value.lower()]

    def duration_ms(self, name: str, *, default_ms: int) -> int:
        """A time as Spark writes it: `15m`, `30 seconds`, or a bare number of milliseconds."""
        value = self.text(name)
        if value is None:
            return default_ms
        match = _DURATION.fullmatch(value.lower())
        if match is None or (match[2] or "ms") not in _UNITS_MS:
            raise ConfigError(f"option {name}={value!r} is not a duration. Use for example 30s, 15m or 1h")
        return int(match[1]) * _UNITS_MS[match[2] or "ms"]

    def _check_name(self, name: str) -> None:
        if name in self._names or name in KAFKA_IGNORED or name in _SPARKS_OWN:
            return
        if name.startswith(_SECURITY):
            raise ConfigError(
                f"option {name} is not supported. There are kafka.security.protocol, and "
                f"{', '.join(f'kafka.{each}' for each in sorted(SASL_PROPERTIES | SSL_PROPERTIES))}"
            )
        raise ConfigError(f"option {name!r} is not known. {self._suggestion(name)}")

    def _suggestion(self, name: str) -> str:
        if f"kafka.{name}" in self._names:
            return (
                f"Did you mean {self._names[f'kafka.{name}']}? Settings of Kafka's clients begin with kafka."
            )
        near = difflib.get_close_matches(name, self._names, n=1, cutoff=0.6)
        if near:
            return f"Did you mean {self._names[near[0]]}?"
        own = sorted(each for key, each in self._names.items() if not key.startswith("kafka."))
        return f"There are {', '.join(own)}, and kafka.* as Kafka's clients have them"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Where the cluster is and how to talk to it; picklable, unlike the link itself."""

    bootstrap_servers: str
    client_id: str = CLIENT_ID
    request_timeout_s: float = REQUEST_TIMEOUT_S
    login: AnyLogin | None = None
    tls: SparkTls | None = None

    def link(self) -> BrokerLink:
        """This process's link there."""
        return link_to(
            self.bootstrap_servers,
            client_id=self.client_id,
            request_timeout_s=self.request_timeout_s,
            login=self.login,
            tls=self.tls,
        )


def link_settings(options: Options) -> LinkSettings:
    """The settings under KAFKA_LINK."""
    servers = options.text("kafka.bootstrap.servers")
    if not servers:
        raise ConfigError(
            "option kafka.bootstrap.servers is missing."
            " Set it to host:port of a broker, for example 127.0.0.1:9092"
        )
    try:
        parse_bootstrap(servers)
    except ConfigError as error:
        raise ConfigError(f"option kafka.bootstrap.servers={servers!r}: {error}") from error
    try:
        given = {name: options.text(f"kafka.{name}") for name in SASL_PROPERTIES | {PROTOCOL}}
        credentials = read_sasl(given)
        tls = read_tls({name: options.text(f"kafka.{name}") for name in SSL_PROPERTIES | {PROTOCOL}})
    except ConfigError as error:
        raise ConfigError(f"option kafka.{error}") from error
    timeout_ms = options.number("kafka.request.timeout.ms")
    return LinkSettings(
        bootstrap_servers=servers,
        client_id=options.text("kafka.client.id") or CLIENT_ID,
        request_timeout_s=REQUEST_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000,
        login=_login(credentials, given),
        tls=spark_tls(tls),
    )


def _login(credentials: AnyCredentials | None, given: Mapping[str, str | None]) -> AnyLogin | None:
    """The login as it is shipped to workers."""
    if isinstance(credentials, BearerCredentials):
        return spark_token(given)
    return spark_login(credentials)
