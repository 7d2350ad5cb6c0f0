"""The configuration of a node: flags over environment over file over defaults.

`read_config` finds the values and remembers where each came from; `Configuration.server` is what a node is
built from. A wrong name or value refuses to start, and the message names the key and the fix. Without
`--config` the file is the one that TAILRACE_CONFIG names, else `tailrace.toml` in the working directory if
there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tailrace.model import ConfigError
from tailrace.security.secret import Secret
from tailrace.server.config import ServerConfig
from tailrace.server.encryption import read_encryption
from tailrace.server.kind import Hidden, Value, read_principals
from tailrace.server.listener import REPLACED, ListenerConfig
from tailrace.server.setting import read_advertised, settings
from tailrace.server.source import Given, Source, read_environment, read_file, read_flags
from tailrace.server.variable import CONFIG
from tailrace.storage.api import Fsync

FILE_NAME = "tailrace.toml"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every value with where it came from, and what nobody obeys yet."""

    values: Mapping[str, Given]
    file: Path | None
    pipelines: Mapping[str, object] = field(default_factory=dict)  # [pipelines.NAME], as the file has them
    schemas: Mapping[str, str] = field(default_factory=dict)  # [schemas.TOPIC] value, by topic
    spark: Mapping[str, object] = field(default_factory=dict)  # [spark], the same
    listeners: Sequence[ListenerConfig] = ()  # [[listeners]]

    def __getitem__(self, key: str) -> Value:
        return self.values[key].value

    def server(self) -> ServerConfig:
        """What a node is built from; ConfigError if it would serve the world without encryption."""
        advertised = str(self["server.advertised"])
        engine = str(self["storage.engine"])
        return ServerConfig(
            host=str(self["server.host"]),
            kafka_port=int(self["server.kafka_port"]),
            native_port=int(self["native.port"]),
            native_socket=str(self["native.socket"]),
            native_heartbeat_ms=int(self["native.heartbeat_interval_ms"]),
            http_port=int(self["http.port"]) if self["http.enabled"] is True else None,
            http_allowed_hosts=tuple(str(self["http.allowed_hosts"]).replace(",", " ").split()),
            advertised=None if advertised == "auto" else read_advertised(advertised),
            allow_plaintext=bool(self["server.allow_plaintext"]),
            authorizer="acl" if self["security.authorizer"] == "acl" else "off",
            super_users=read_principals(str(self["security.super_users"])),
            engine=engine,
            engine_settings=self._own_table(f"{engine}."),
            users="postgres" if self["security.users"] == "postgres" else "metadata",
            postgres_dsn=Secret(dsn) if (dsn := str(self["security.postgres_dsn"])) else None,
            postgres_grace_s=int(self["security.postgres_grace_s"]),
            data_dir=Path(str(self["storage.data_dir"])),
            encryption=read_encryption({key: given.value for key, given in self.values.items()}),
            fsync=Fsync.parse(str(self["storage.fsync"])),
            log_level=str(self["log.level"]),
            log_format="json" if self["log.format"] == "json" else "text",
            telemetry_endpoint=str(self["telemetry.otlp_endpoint"]),
            telemetry_traces=bool(self["telemetry.traces"]),
            telemetry_metrics=bool(self["telemetry.metrics"]),
            telemetry_interval_s=int(self["telemetry.interval_s"]),
            telemetry_sample_one_in=int(self["telemetry.sample_one_in"]),
            audit=str(self["security.audit"]),  # type: ignore[arg-type]  # Choice has checked it
            listeners=tuple(self.listeners),
            broker=self._table("broker."),
            topic_defaults=self._table("topic_defaults."),
        )

    def _own_table(self, prefix: str) -> dict[str, Value | Secret]:
        """Everything in one of our own tables, defaults too; what is hidden becomes a secret."""
        table = settings()
        return {
            key.removeprefix(prefix): Secret(str(given.value))
            if given.value and isinstance(table[key].kind, Hidden)
            else given.value
            for key, given in self.values.items()
            if key.startswith(prefix)
        }

    def _table(self, prefix: str) -> dict[str, str]:
        """What was set in one of the tables with Kafka's names; the broker has its own defaults."""
        return {
            key.removeprefix(prefix): str(given.value)
            for key, given in self.values.items()
            if key.startswith(prefix) and given.source != DEFAULT
        }


def read_config(
    *,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str],
    file: Path | None = None,
    directory: Path | None = None,
) -> Configuration:
    """Everything that is set, by rank; ConfigError names what is wrong and how to mend it."""
    table = settings()
    path = _find_file(file, environment, directory or Path())
    from_file = Source() if path is None else read_file(table, path)
    ranked = [read_flags(table, flags or {}), read_environment(table, environment), from_file]
    refuse(problem for source in ranked for problem in source.problems)
    if from_file.listeners:
        refuse(
            f"{ranked_given.source}: {key} has no effect beside [[listeners]]: set the address there"
            for source in ranked
            for key, ranked_given in source.values.items()
            if key in REPLACED
        )
    values = {key: Given(value=setting.default, source=DEFAULT) for key, setting in table.items()}
    for source in reversed(ranked):
        values.update(source.values)
    return Configuration(
        values, path, from_file.pipelines, from_file.schemas, from_file.spark, tuple(from_file.listeners)
    )


def refuse(problems: Iterable[str]) -> None:
    """ConfigError with the first problem, and how many more there are."""
    first, *others = [*problems, ""]
    if first:
        more = len(others) - 1
        raise ConfigError(first + (f" (and {more} more: see tailrace config validate)" if more else ""))


def check_file(path: Path) -> list[str]:
    """Everything that is wrong with a file by itself."""
    from tailrace.spark.pipelines.declared import check_declared, check_schemas

    try:
        source = read_file(settings(), path)
        if not source.problems:
            values = {key: Given(value=each.default, source=DEFAULT) for key, each in settings().items()}
            Configuration({**values, **source.values}, path, listeners=source.listeners).server()
            problems = check_declared(source.pipelines, with_configs=True) + check_schemas(source.schemas)
            return [f"{path}: {each}" for each in problems]
    except ConfigError as error:
        return [str(error)]
    return source.problems


def _find_file(file: Path | None, environment: Mapping[str, str], directory: Path) -> Path | None:
    if file is not None:
        return file
    if named := environment.get(CONFIG):
        return Path(named)
    usual = directory / FILE_NAME
    return usual if usual.exists() else None
