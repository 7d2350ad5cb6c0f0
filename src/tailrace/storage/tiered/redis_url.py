"""Where the cache is, as Redis's own clients write it.

    redis://127.0.0.1:6379/0    redis://user:password@cache.lan:6379    unix:///run/redis/redis.sock

The whole text is a secret, as it may hold a password: no error repeats any of it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from tailrace.model import ConfigError
from tailrace.model.address import Address, unix_address
from tailrace.postgres.dsn import is_local
from tailrace.security.secret import Secret
from tailrace.storage.tiered.config import RedisConfig

PORT: Final = 6379
_TEXT_MAX: Final = 4096
_DATABASES: Final = 1024


def parse_redis_url(text: Secret, *, key: str, expire_s: int = 3600) -> RedisConfig:
    """The cache that a text names; ConfigError names `key` and what is wrong, and shows nothing of it."""
    try:
        return _parse(text.reveal().strip(), expire_s)
    except ValueError as error:
        raise ConfigError(
            f"{key} is no URL that can be used: {error}. It is like redis://127.0.0.1:6379/0"
        ) from None


def _parse(text: str, expire_s: int) -> RedisConfig:
    if len(text) > _TEXT_MAX or not text.isprintable():
        raise ValueError(f"it has over {_TEXT_MAX} characters, or characters that cannot be printed")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("its host or port cannot be read; percent-encode / : @ ? #") from None
    if parts.scheme == "unix":
        return RedisConfig(address=unix_address(unquote(parts.path)), expire_s=expire_s)
    if parts.scheme != "redis":
        raise ValueError("it begins with neither redis:// nor unix://")
    if parts.query or parts.fragment:
        raise ValueError("it has parameters, and none is used")
    if not host:
        raise ValueError("it has no host")
    if not is_local(host):
        raise ValueError(
            "its host is another machine, and what is cached would cross the network in the clear. Run Redis "
            "beside the broker, or lead to it through a tunnel on loopback"
        )
    return RedisConfig(
        address=Address(host, port or PORT),
        user=unquote(parts.username or ""),
        password=Secret(unquote(parts.password)) if parts.password else None,
        database=_database(parts.path),
        expire_s=expire_s,
    )


def _database(path: str) -> int:
    number = path.removeprefix("/") or "0"
    if not (number.isascii() and number.isdecimal() and int(number) < _DATABASES):
        raise ValueError(f"its path is not the number of a database below {_DATABASES}")
    return int(number)
