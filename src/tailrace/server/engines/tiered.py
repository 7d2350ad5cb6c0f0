"""The tiered engine: logs and metadata in PostgreSQL, recent chunks in Redis, nothing on this machine.

`tiered.postgres_dsn` names the database and `tiered.redis_url` the cache, which may be left out. A process
that finds the database served by another one stands by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tailrace.model import ConfigError
from tailrace.server.engines.port import Description, Opened, StandBy

if TYPE_CHECKING:
    from tailrace.broker.health import Finding
    from tailrace.runtime import Clock
    from tailrace.security.secret import Secret
    from tailrace.server.config import ServerConfig
    from tailrace.server.setting import Setting
    from tailrace.storage.tiered.config import TieredConfig

_DSN: Final = "tiered.postgres_dsn"
_REDIS: Final = "tiered.redis_url"
_EXPIRE_S: Final = 3600


class TieredEngine:
    """PostgreSQL is the truth, Redis is a cache."""

    name = "tiered"
    doc = "keeps everything in PostgreSQL, and what is recent in Redis too"

    def settings(self) -> Sequence[Setting]:
        from tailrace.server.kind import Hidden, Number
        from tailrace.server.setting import Setting

        return (
            Setting(
                key=_DSN,
                kind=Hidden("connection URI", _DSN, _check_dsn),
                default="",
                doc="The database of the tiered engine, such as postgresql://tailrace@db.lan/tailrace. As it "
                "may hold a password, keep it in a file that TAILRACE_TIERED__POSTGRES_DSN_FILE names. It "
                "needs pip install 'tailrace[postgres]'.",
            ),
            Setting(
                key=_REDIS,
                kind=Hidden("URL", _REDIS, _check_redis),
                default="",
                doc="The cache of the tiered engine, such as redis://127.0.0.1:6379/0 or "
                "unix:///run/redis.sock; empty for none. It needs pip install 'tailrace[redis]'.",
            ),
            Setting(
                key="tiered.redis_expire_s",
                kind=Number(low=1),
                default=_EXPIRE_S,
                doc="How long a chunk stays in Redis.",
            ),
        )

    def check(self, config: ServerConfig) -> None:
        tiered_config(config)

    def describe(self, config: ServerConfig) -> Description:
        return Description(name=self.name, place=_place(config))

    async def open(
        self,
        config: ServerConfig,
        *,
        clock: Clock,
        owns_loop: bool,  # noqa: ARG002
        stand_by: StandBy,
    ) -> Opened:
        from tailrace.cluster.postgres_store import PostgresStore
        from tailrace.postgres import DatabaseError
        from tailrace.storage.tiered.storage import TieredStorage

        made = tiered_config(config)
        try:
            storage = await TieredStorage.open(made, clock=clock, stand_by=stand_by)
        except DatabaseError as error:
            raise ConfigError(f"{error}. It is {_DSN}") from error
        return Opened(storage=storage, store=PostgresStore(storage.writer, storage.pool))

    def examine(self, config: ServerConfig) -> Iterator[Finding]:
        from tailrace.server.engines.tiered_checkup import examine_tiered

        return examine_tiered(config)


def tiered_config(config: ServerConfig) -> TieredConfig:
    """What the engine goes by; ConfigError without a database."""
    from tailrace.postgres import parse_dsn
    from tailrace.server.assembly import queue_bytes_max
    from tailrace.storage.tiered.config import TieredConfig
    from tailrace.storage.tiered.redis_url import parse_redis_url
    from tailrace.storage.tiered.resp import load_hiredis

    dsn, url = _secret(config, "postgres_dsn"), _secret(config, "redis_url")
    if dsn is None:
        raise ConfigError(
            f"storage.engine = tiered needs {_DSN}, such as postgresql://tailrace@db.lan/tailrace. With a "
            "password in it, keep it in a file that TAILRACE_TIERED__POSTGRES_DSN_FILE names. To try it: "
            "make up-tiered"
        )
    redis = None
    if url is not None:
        load_hiredis()
        expire_s = int(str(config.engine_settings.get("redis_expire_s", _EXPIRE_S)))
        redis = parse_redis_url(url, key=_REDIS, expire_s=expire_s)
    return TieredConfig(
        dsn=parse_dsn(dsn, key=_DSN),
        redis=redis,
        fsync=config.fsync,
        queue_bytes_max=queue_bytes_max(config),
    )


def _secret(config: ServerConfig, name: str) -> Secret | None:
    from tailrace.security.secret import Secret

    given = config.engine_settings.get(name)
    if given is None or given == "":
        return None
    return given if isinstance(given, Secret) else Secret(str(given))


def _place(config: ServerConfig) -> str:
    from tailrace.postgres import parse_dsn

    dsn = _secret(config, "postgres_dsn")
    return "PostgreSQL" if dsn is None else str(parse_dsn(dsn, key=_DSN))


def _check_dsn(text: str) -> None:
    if text:
        from tailrace.postgres.dsn import parse_dsn
        from tailrace.security.secret import Secret

        parse_dsn(Secret(text), key=_DSN)


def _check_redis(text: str) -> None:
    if text:
        from tailrace.security.secret import Secret
        from tailrace.storage.tiered.redis_url import parse_redis_url

        parse_redis_url(Secret(text), key=_REDIS)
