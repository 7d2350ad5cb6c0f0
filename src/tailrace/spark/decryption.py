"""Columns decrypted in a query: `decrypt` for DataFrames, `register_decrypt` for SQL.

    from tailrace.spark import decrypt, register_decrypt

    rows.select(decrypt("value", "key", "headers", "topic", keys="k1=/etc/orders/k1.key"))

    register_decrypt(spark, keys="k1=/etc/orders/k1.key")
    spark.sql("SELECT tailrace_decrypt(value, key, headers, topic) FROM records")

The rows are those of the source `tailrace` with includeHeaders=true and without encryption.keys. Plans and
event logs show names of files at most: workers read the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType

from tailrace.model import ConfigError
from tailrace.spark.encryption import SparkEncryption, key_files, open_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

SQL_NAME = "tailrace_decrypt"


def decrypt(
    value: Column | str,
    key: Column | str,
    headers: Column | str,
    topic: Column | str,
    *,
    keys: str | Sequence[str],
    policy: str = "require",
    on_failure: str = "fail",
    mirrors: Iterable[str] = (),
    origins: Iterable[str] | None = None,
) -> Column:
    """The decrypted values. `keys` names files: `k1=FILE`, several with commas or as a list.

    A record that is refused fails the query, or is null with on_failure="null".
    """
    function = _function(
        keys, policy=policy, on_failure=on_failure, mirrors=tuple(mirrors), origins=_tuple(origins)
    )
    given = [col(each) if isinstance(each, str) else each for each in (value, key, headers, topic)]
    decrypted: Column = function(*given)
    return decrypted


def register_decrypt(
    spark: SparkSession,
    *,
    keys: str | Sequence[str],
    name: str = SQL_NAME,
    policy: str = "require",
    on_failure: str = "fail",
    mirrors: Iterable[str] = (),
    origins: Iterable[str] | None = None,
) -> None:
    """Make the SQL function `name(value, key, headers, topic)` of this session."""
    function = _function(
        keys, policy=policy, on_failure=on_failure, mirrors=tuple(mirrors), origins=_tuple(origins)
    )
    spark.udf.register(name, function)


def _tuple(names: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _function(
    keys: str | Sequence[str],
    *,
    policy: str,
    on_failure: str,
    mirrors: tuple[str, ...],
    origins: tuple[str, ...] | None,
) -> Callable[..., Any]:
    if policy not in ("require", "allow"):
        raise ConfigError(f"policy = {policy!r} is none of require, allow")
    if on_failure not in ("fail", "null"):
        raise ConfigError(f"on_failure = {on_failure!r} is none of fail, null")
    files = key_files(keys if isinstance(keys, str) else ",".join(keys))
    if not files:
        raise ConfigError("decrypt needs keys, such as k1=/etc/orders/k1.key")
    settings = SparkEncryption(keys=files, policy=policy, mirrors=mirrors, origins=origins)
    is_null_on_failure = on_failure == "null"

    def tailrace_decrypt(batches: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        import pandas

        from tailrace.security.messages import Opener

        opener = Opener(settings.encryption())
        for columns in batches:
            opened = open_columns(opener, columns, is_null_on_failure=is_null_on_failure)
            yield pandas.Series(opened, dtype=object)

    # Not as annotations of source: those of the future are text that Spark would not find the names of.
    import pandas

    series = pandas.Series
    tailrace_decrypt.__annotations__ = {
        "batches": Iterator[tuple[series, series, series, series]],  # type: ignore[valid-type]
        "return": Iterator[series],  # type: ignore[valid-type]
    }
    make: Any = pandas_udf  # its overloads know no annotations that are set later
    made: Callable[..., Any] = make(tailrace_decrypt, returnType=BinaryType())
    return made
