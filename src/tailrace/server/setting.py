"""Every setting of a node, in one table: key, kind, default, flag, meaning.

A key is `table.name` as it stands in `tailrace.toml`. Two tables carry Kafka's own names, `[broker]` and
`[topic_defaults]`; they are the broker's (`tailrace.broker.configs`) and are added by `settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from tailrace.security.secret import SHOWN, Secret
from tailrace.server.engines import ENGINES
from tailrace.server.kind import (
    Checked,
    Choice,
    Hidden,
    Kafka,
    Kind,
    Names,
    Number,
    Principals,
    Text,
    Truth,
    Value,
)
from tailrace.server.variable import PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One thing that can be set."""

    key: str
    kind: Kind
    default: Value
    doc: str
    flag: str = ""  # of `tailrace up`

    def shown(self, value: Value) -> Value:
        """The value as it may be shown."""
        return SHOWN if isinstance(self.kind, Hidden) and value else value

    @property
    def environment(self) -> str:
        """`server.kafka_port` is TAILRACE_SERVER__KAFKA_PORT; further dots are single underscores."""
        table, _, name = self.key.partition(".")
        return f"{PREFIX}{table}__{name.replace('.', '_').replace('-', '_')}".upper()

    @property
    def flag_environment(self) -> str:
        """`--kafka-port` is TAILRACE_KAFKA_PORT; "" without a flag."""
        return f"{PREFIX}{self.flag.removeprefix('--').replace('-', '_')}".upper() if self.flag else ""


def _check_fsync(text: str) -> None:
    from tailrace.model import ConfigError
    from tailrace.storage.api import Fsync

    try:
        Fsync.parse(text)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def _check_endpoint(text: str) -> None:
    from tailrace.telemetry.config import check_endpoint

    check_endpoint(text)


def _check_advertised(text: str) -> None:
    if text != "auto":
        read_advertised(text)


def read_advertised(text: str) -> tuple[str, int]:
    """Where Kafka clients are told to connect; ValueError for what is no HOST:PORT, such as a Unix socket."""
    from tailrace.model.address import parse_address

    address = parse_address(text)
    if address.path:
        raise ValueError("HOST:PORT")
    return address.host, address.port


def _check_socket(text: str) -> None:
    if text:
        from tailrace.model.address import unix_address

        unix_address(text)


_POSTGRES_DSN = "security.postgres_dsn"


def _check_postgres_dsn(text: str) -> None:
    if text:
        from tailrace.postgres.dsn import parse_dsn

        parse_dsn(Secret(text), key=_POSTGRES_DSN)


_PORT = Number(low=0, high=65535, name="port")

_OWN = (
    Setting(
        key="server.host",
        kind=Text(),
        default="127.0.0.1",
        flag="--host",
        doc="The address that every listener binds to. Anything but a loopback address needs "
        "server.allow_plaintext.",
    ),
    Setting(
        key="server.kafka_port",
        kind=_PORT,
        default=9092,
        flag="--kafka-port",
        doc="The port of the Kafka listener; 0 takes any free one, and tailrace.ports.json tells which.",
    ),
    Setting(
        key="server.advertised",
        kind=Checked("auto or HOST:PORT", _check_advertised, "auto, or HOST:PORT (such as broker.lan:9092)"),
        default="auto",
        doc="Where Kafka clients are told to connect: auto is the address by which each client came.",
    ),
    Setting(
        key="server.allow_plaintext",
        kind=Truth(),
        default=False,
        doc="Serve without encryption on an address that other machines can reach.",
    ),
    Setting(
        key="security.authorizer",
        kind=Choice(("off", "acl")),
        default="off",
        doc="off lets every client do everything; acl lets it do what access control entries allow "
        "(tailrace acl add), and nothing else.",
    ),
    Setting(
        key="security.super_users",
        kind=Principals(),
        default="",
        doc="Principals that may do everything without an entry, such as User:admin. It has an effect with "
        "security.authorizer = acl.",
    ),
    Setting(
        key="storage.engine",
        kind=Choice(tuple(ENGINES)),
        default=next(iter(ENGINES)),
        flag="--engine",
        doc="; ".join(f"{each.name} {each.doc}" for each in ENGINES.values()) + ".",
    ),
    Setting(
        key="storage.data_dir",
        kind=Text("directory"),
        default="./tailrace-data",
        flag="--data-dir",
        doc="The directory of the log, the metadata and tailrace.ports.json.",
    ),
    Setting(
        key="storage.fsync",
        kind=Checked(
            "commit, interval:<ms> or os", _check_fsync, "commit, interval:<ms> (such as interval:200), or os"
        ),
        default="commit",
        flag="--fsync",
        doc="What an acknowledgement means: commit is synced to the disk, interval:<ms> is written and "
        "synced that often, os is written. Topics may choose for themselves (flush.messages, flush.ms).",
    ),
    Setting(
        key="log.level",
        kind=Choice(("debug", "info", "warning", "error")),
        default="info",
        doc="The least important log lines that are written.",
    ),
    Setting(
        key="log.format",
        kind=Choice(("text", "json")),
        default="text",
        doc="Log lines for people (text), or one JSON object per line (json).",
    ),
    Setting(
        key="native.port",
        kind=_PORT,
        default=9999,
        flag="--native-port",
        doc="The port of the native listener; 0 takes any free one, and tailrace.ports.json tells which.",
    ),
    Setting(
        key="native.socket",
        kind=Checked("path, or nothing", _check_socket, "a path (such as /run/tailrace.sock), or empty"),
        default="",
        doc="The path of a Unix socket that the native listener serves beside its port; empty for none. Only "
        "the user that runs the broker may open it.",
    ),
    Setting(
        key="native.heartbeat_interval_ms",
        kind=Number(low=1),
        default=30_000,
        doc="How often each side of an idle native connection shows that it is there; one that is silent for "
        "three times as long is closed.",
    ),
    Setting(
        key="http.enabled",
        kind=Truth(),
        default=True,
        doc="Whether there is an HTTP listener: REST, live streams, metrics and the console.",
    ),
    Setting(
        key="http.port",
        kind=_PORT,
        default=8080,
        flag="--http-port",
        doc="The port of the HTTP listener; 0 takes any free one, and tailrace.ports.json tells which.",
    ),
    Setting(
        key="http.allowed_hosts",
        kind=Names(),
        default="",
        doc="Names by which browsers and programs may call the HTTP listener, beside localhost and "
        "addresses: broker.lan, or the name that a proxy passes on.",
    ),
    Setting(
        key="security.audit",
        kind=Choice(("auto", "on", "off")),
        default="auto",
        doc="Whether logins, denials and changes are written to the topic __tailrace_audit and to the log; "
        "auto does where a listener asks for a login.",
    ),
    Setting(
        key="telemetry.otlp_endpoint",
        kind=Checked(
            "URL, or nothing",
            _check_endpoint,
            "the address of an OpenTelemetry collector (such as http://127.0.0.1:4318), or empty",
        ),
        default="",
        doc="Where traces and metrics are sent by OTLP over HTTP; empty sends nothing. It needs "
        "pip install 'tailrace[otel]'.",
    ),
    Setting(
        key="telemetry.traces",
        kind=Truth(),
        default=True,
        doc="Whether spans of requests are sent to telemetry.otlp_endpoint.",
    ),
    Setting(
        key="telemetry.metrics",
        kind=Truth(),
        default=True,
        doc="Whether the figures of /metrics are sent to telemetry.otlp_endpoint as well.",
    ),
    Setting(
        key="telemetry.interval_s",
        kind=Number(low=1, high=3600),
        default=15,
        doc="How often they are sent.",
    ),
    Setting(
        key="telemetry.sample_one_in",
        kind=Number(low=1),
        default=100,
        doc="Of so many requests by the Kafka and native listeners, one has a span; 1 is every one. By HTTP "
        "each has one, unless its caller says that the trace is not sampled.",
    ),
    Setting(
        key="security.users",
        kind=Choice(("metadata", "postgres")),
        default="metadata",
        doc="Where users are kept: metadata is the data directory, postgres is security.postgres_dsn.",
    ),
    Setting(
        key=_POSTGRES_DSN,
        kind=Hidden("connection URI", _POSTGRES_DSN, _check_postgres_dsn),
        default="",
        doc="The database of security.users = postgres, such as postgresql://tailrace@db.lan/tailrace. As it "
        "may hold a password, keep it in a file that TAILRACE_SECURITY__POSTGRES_DSN_FILE names. It needs "
        "pip install 'tailrace[postgres]'.",
    ),
    Setting(
        key="security.postgres_grace_s",
        kind=Number(low=1, high=86_400),
        default=900,
        doc="How long the users that are known may log in and go on while PostgreSQL is away.",
    ),
    Setting(
        key="client.request_timeout_ms",
        kind=Number(low=1),
        default=30_000,
        doc="How long the commands that use the native listener wait for an answer.",
    ),
    Setting(
        key="client.heartbeat_interval_ms",
        kind=Number(low=1),
        default=30_000,
        doc="How often the commands that use the native listener show that they are there.",
    ),
)


_SET_ELSEWHERE = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "delete.topic.enable",
        "follower.replication.throttled.rate",
        "fsync",
        "leader.replication.throttled.rate",
        "listeners",
        "log.dirs",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""What a node tells its clients under Kafka's names, and takes from the settings above, from clients, or not
at all."""


@cache
def settings() -> Mapping[str, Setting]:
    """The whole table, by key."""
    from tailrace.server.encryption import encryption_settings

    return {
        setting.key: setting
        for setting in (
            *_OWN,
            *encryption_settings(),
            *_engine_settings(),
            *_broker_settings(),
            *_topic_defaults(),
        )
    }


def _engine_settings() -> Iterator[Setting]:
    for engine in ENGINES.values():
        yield from engine.settings()


def _broker_settings() -> Iterator[Setting]:
    from tailrace.broker.configs import BROKER_CONFIGS, TOPIC_CONFIGS

    defaults = {key.server_default for key in TOPIC_CONFIGS.values()}
    for name, key in BROKER_CONFIGS.items():
        if name not in defaults | _SET_ELSEWHERE:
            yield Setting(key=f"broker.{name}", kind=Kafka(key), default=key.default, doc=key.doc)


def _topic_defaults() -> Iterator[Setting]:
    from tailrace.broker.configs import TOPIC_CONFIGS

    for name, key in TOPIC_CONFIGS.items():
        if key.server_default is not None:
            doc = f"For topics that do not set it themselves. {key.doc}"
            yield Setting(key=f"topic_defaults.{name}", kind=Kafka(key), default=key.default, doc=doc)
