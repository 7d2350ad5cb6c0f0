"""Message encryption in Spark: options of source and sink, batches of rows, and columns of any DataFrame.

    encryption.keys        k1=/etc/orders/k1.key, k2=...    files on every worker, each for its owner alone
    encryption.active      the id of the key that encrypts; the only one, where there is one
    encryption.policy      require (default) or allow: of records that are not encrypted
    encryption.onFailure   fail (default) or skip: of records that are refused
    encryption.mirrors, encryption.origins     names, with commas

What Spark sees are names of files: plans, the UI and event logs show options and expressions. Workers read
the keys, once per process. Imports neither Spark nor a library of ciphers before rows are there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tailrace.model import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.security.messages import Encryption, Opener, Sealer
    from tailrace.spark.options import Options

_log = logging.getLogger(__name__)

OPTIONS = (
    "encryption.keys",
    "encryption.active",
    "encryption.policy",
    "encryption.onFailure",
    "encryption.mirrors",
    "encryption.origins",
)
_ENVELOPE, _ORIGIN, _REPLAY = "tailrace-encryption", "tailrace-origin", "_replay_topic"
"""As `tailrace.security.messages` has them, whose import is left to rows that are decrypted."""
_POLICIES = {"require": "require", "allow": "allow"}
_FAILURES = {"fail": "fail", "skip": "skip"}
_NEEDED = ("key", "value", "offset", "headers")
_ADVICE = "Set encryption.onFailure to skip to read on without it"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkEncryption:
    """The settings as they are shipped to workers: keys by the names of their files."""

    keys: tuple[str, ...]
    active: str | None = None
    policy: str = "require"
    on_failure: str = "fail"
    mirrors: tuple[str, ...] = ()
    origins: tuple[str, ...] | None = None

    def encryption(self) -> Encryption:
        """With the keys, which this process reads once; ConfigError if it cannot."""
        return _loaded(self)


@lru_cache(maxsize=16)
def _loaded(settings: SparkEncryption) -> Encryption:
    from tailrace.security.messages import Encryption, parse_keys

    return Encryption(
        parse_keys(settings.keys, what="encryption.keys"),
        settings.active,
        policy="allow" if settings.policy == "allow" else "require",
        on_failure="skip" if settings.on_failure == "skip" else "fail",
        mirrors=settings.mirrors,
        origins=settings.origins,
    )


def encryption_settings(options: Options) -> SparkEncryption | None:
    """What the options say; None without keys. ConfigError names the option, and never repeats a key."""
    keys = key_files(options.text("encryption.keys") or "")
    if not keys:
        for name in OPTIONS:
            if name in options:
                raise ConfigError(f"option {name} needs encryption.keys, such as k1=/etc/orders/k1.key")
        return None
    if (options.text("encryption.onFailure") or "").lower() == "dead-letter":
        raise ConfigError(
            "option encryption.onFailure='dead-letter' is not for reads of Spark, which may run twice. Read"
            " without keys, decrypt with tailrace.spark.decrypt(..., on_failure='null'), and write the rest"
        )
    return SparkEncryption(
        keys=keys,
        active=options.text("encryption.active"),
        policy=options.choice("encryption.policy", "require", _POLICIES),
        on_failure=options.choice("encryption.onFailure", "fail", _FAILURES),
        mirrors=_names(options.text("encryption.mirrors")) or (),
        origins=_names(options.text("encryption.origins")),
    )


def key_files(text: str) -> tuple[str, ...]:
    """`k1=FILE,k2=FILE`, checked as far as the driver can: the files may be on the workers alone."""
    if not text.strip():
        return ()
    from tailrace.security.messages import parse_keys
    from tailrace.security.messages.key_ring import check_key_id, is_key_text

    keys = tuple(each.strip() for each in text.split(",") if each.strip())
    for key_id, path in parse_keys(keys, what="encryption.keys").items():
        check_key_id(key_id)
        if is_key_text(str(path)):
            raise ConfigError(
                f"encryption.keys has the key {key_id} itself, where plans and logs of Spark show it. Write"
                " it to a file with mode 0600, and name the file"
            )
    return keys


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(each.strip() for each in text.split(",") if each.strip())


# ---- batches of rows


class Decrypting:
    """Decrypts the rows of one task."""

    def __init__(self, schema: pa.Schema, settings: SparkEncryption) -> None:
        """`schema` is what the task hands out."""
        from tailrace.security.messages import Opener
        from tailrace.spark.codec.schema import KAFKA_SCHEMA

        self._schema = schema
        self._skips = settings.on_failure == "skip"
        self._opener = Opener(settings.encryption())
        self.read_as = schema
        """What has to be read of the records."""
        for name in _NEEDED:
            if name not in schema.names:
                self.read_as = self.read_as.append(KAFKA_SCHEMA.field(name))

    def open(self, rows: pa.RecordBatch, topic: str, partition: int) -> pa.RecordBatch:
        """The rows as the schema has them, without those that are refused and skipped."""
        import pyarrow as pa

        values: list[bytes | None] = []
        headers: list[list[dict[str, Any]]] = []
        kept: list[int] = []
        for at, row in enumerate(zip(*(rows.column(name).to_pylist() for name in _NEEDED), strict=True)):
            opened = self._open(topic, partition, *row)
            if opened is not None:
                values.append(opened[0])
                headers.append([{"key": name, "value": value} for name, value in opened[1]])
                kept.append(at)
        if len(kept) < rows.num_rows:
            skipped = rows.num_rows - len(kept)
            _log.warning("records refused and skipped: topic=%s count=%d", topic, skipped)
            rows = rows.take(pa.array(kept, pa.int64()))
        made = {"value": values, "headers": headers}
        columns = [
            pa.array(made[field.name], field.type) if field.name in made else rows.column(field.name)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _open(
        self, topic: str, partition: int, key: Any, value: Any, offset: int, headers: Any
    ) -> tuple[bytes | None, Iterable[tuple[str, bytes | None]]] | None:
        from tailrace.security.decryption import DecryptionFailed

        pairs = [(each["key"], each["value"]) for each in headers or ()]
        try:
            return self._opener.open(topic, key, value, pairs)
        except DecryptionFailed as error:
            if not self._skips:
                raise error.at(f"{topic}-{partition} offset {offset}", advice=_ADVICE) from None
            return None


class Encrypting:
    """Encrypts the rows of one task, with a data key of its own."""

    def __init__(self, settings: SparkEncryption) -> None:
        from tailrace.security.messages import Sealer

        self._sealer: Sealer = Sealer(settings.encryption())
        self._sealer.check_key()

    def seal(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as they are to be written; other columns than value and headers stay as they are."""
        import pyarrow as pa

        from tailrace.spark.codec.schema import HEADERS_TYPE

        count = rows.num_rows
        keys = _bytes_of(rows, "key") or [None] * count
        given = rows.column("headers").to_pylist() if "headers" in rows.schema.names else [None] * count
        values: list[bytes | None] = []
        headers: list[list[dict[str, Any]]] = []
        for key, value, own in zip(keys, _bytes_of(rows, "value") or (), given, strict=True):
            listed = [dict(each) for each in own or ()]
            self._sealer.check_names(topic, [each["key"] for each in listed])
            sealed, added = self._sealer.seal(topic, key, value)
            values.append(sealed)
            headers.append(
                [
                    *({"key": each["key"], "value": _bytes(each["value"])} for each in listed),
                    *({"key": name, "value": content} for name, content in added),
                ]
            )
        made = {"value": pa.array(values, pa.binary()), "headers": pa.array(headers, HEADERS_TYPE)}
        names = [*rows.schema.names, *(() if "headers" in rows.schema.names else ("headers",))]
        return pa.RecordBatch.from_arrays(
            [made[name] if name in made else rows.column(name) for name in names], names=names
        )


def _bytes_of(rows: pa.RecordBatch, name: str) -> Sequence[bytes | None] | None:
    if name not in rows.schema.names:
        return None
    return [_bytes(each) for each in rows.column(name).to_pylist()]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


# ---- replays


def name_origin(rows: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    """Rows of a topic on their way to another one: encrypted ones get a header that names the topic.

    Only those whose origin it is: readers accept others in a replay no more than in the topic itself.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows.column("headers")
    names = column.flatten().field("key")
    if not pc.any(pc.equal(names, _ENVELOPE)).as_py():
        return rows
    added = {"key": _REPLAY, "value": topic.encode()}
    headers = [_with_origin(each, added) for each in column.to_pylist()]
    at = rows.schema.get_field_index("headers")
    return rows.set_column(at, rows.schema.field(at), pa.array(headers, column.type))


def _with_origin(headers: list[dict[str, Any]] | None, added: dict[str, Any]) -> list[dict[str, Any]] | None:
    here = {each["key"]: each["value"] for each in headers or ()}
    if headers is None or _ENVELOPE not in here or here.get(_ORIGIN) != added["value"]:
        return headers
    return [*headers, added]


# ---- columns


def open_columns(opener: Opener, columns: Sequence[Iterable[Any]], *, is_null_on_failure: bool) -> list[Any]:
    """Decrypted values of the columns value, key, headers and topic; null for what is refused, if wanted."""
    from tailrace.security.decryption import DecryptionFailed

    opened: list[bytes | None] = []
    for value, key, headers, topic in zip(*columns, strict=True):
        pairs = [(each["key"], _plain(each["value"])) for each in (() if headers is None else headers)]
        try:
            found = opener.open(topic, _plain(_bytes(key)), _plain(_bytes(value)), pairs)[0]
        except DecryptionFailed as error:
            if not is_null_on_failure:
                raise error.at(f"a row of topic {topic}", advice="Set on_failure to null") from None
            found = None
        opened.append(found)
    return opened


def _plain(value: Any) -> bytes | None:
    """Bytes of our own: Spark hands over bytearrays, and missing values of several kinds."""
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
