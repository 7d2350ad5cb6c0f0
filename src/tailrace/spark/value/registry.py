"""A schema registry, as its REST interface has it: Confluent's, which Karapace and Apicurio speak too.

    GET /subjects/<subject>/versions/latest      the newest schema of a topic's values
    GET /schemas/ids/<id>                        the schema with which a value was written
    GET /subjects/<subject>/versions/<version>   a schema that another one refers to (reference.py)

Values written with a registry have five bytes in front (Confluent's wire format):

    0 | id of the schema, 4 bytes, big endian | the encoded value

A schema of an id never changes, so a process asks for it once.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tailrace.model import ConfigError, TailraceError
from tailrace.spark.value.reference import Source, Version, read_references, write_out

TIMEOUT_S = 10.0
REPLY_BYTES_MAX = 4 << 20
HEADER_BYTES = 5
NO_FRAME = "it does not begin with the id of a schema"
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUBJECTS = "/subjects/"
_SCHEMES = ("http", "https")


class RegistryError(TailraceError):
    """The registry cannot be asked, or its answer makes no sense."""


class UnknownSchema(RegistryError):
    """The registry has no such schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as a registry has it, with all that it refers to."""

    kind: str  # AVRO, JSON or PROTOBUF
    text: str


def is_registry(text: str) -> bool:
    """Whether a text is the address of a registry."""
    return text.startswith(tuple(f"{scheme}://" for scheme in _SCHEMES))


def check_address(address: str) -> None:
    """ConfigError if this cannot be the address of a registry."""
    parts = urlsplit(address)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ConfigError(f"the schema registry {address!r} is no address. Use http://HOST:8081")


def without_password(address: str) -> str:
    """An address as it may be shown and kept."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def fetch_latest(address: str, topic: str) -> Registered:
    """The newest schema of a topic's values: subject TOPIC-value, unless the address names a subject."""
    base, found, subject = address.partition(_SUBJECTS)
    name = unquote(subject.strip("/")) if found else f"{topic}-value"
    try:
        reply = _get(base, f"{_SUBJECTS}{quote(name, safe='')}/versions/latest")
    except UnknownSchema as error:
        raise ConfigError(
            f"{error}. Register one, or name another subject: {without_password(base)}{_SUBJECTS}NAME"
        ) from error
    return _read(base, reply, f"subject {name}")


@lru_cache(maxsize=1024)
def fetch_schema(address: str, schema_id: int) -> Registered:
    """The schema of an id; UnknownSchema if there is none."""
    base = address.partition(_SUBJECTS)[0]
    return _read(base, _get(base, f"/schemas/ids/{schema_id}"), f"id {schema_id}")


def _read(base: str, reply: Any, what: str) -> Registered:
    source = _source_of(reply, what)
    kind = str(reply.get("schemaType") or "AVRO").upper()
    if not source.references:
        return Registered(kind=kind, text=source.text)
    text = write_out(kind, source, fetch=lambda version: _fetch_version(base, version), what=what)
    return Registered(kind=kind, text=text)


def _fetch_version(base: str, version: Version) -> Source:
    """A schema that another one refers to; the registry keeps it for as long as that one is there."""
    what = f"subject {version.subject}, version {version.version}"
    try:
        reply = _get(base, f"{_SUBJECTS}{quote(version.subject, safe='')}/versions/{version.version}")
    except UnknownSchema as error:
        raise ConfigError(f"a schema refers to {what}, and {error}") from error
    return _source_of(reply, what)


def _source_of(reply: Any, what: str) -> Source:
    if not isinstance(reply, dict) or not isinstance(reply.get("schema"), str):
        raise RegistryError(f"the schema registry's answer for {what} has no schema")
    return Source(text=reply["schema"], references=read_references(reply.get("references") or [], what=what))


def _get(base: str, path: str) -> Any:
    # Not above: every Python that Spark starts for a source imports this module, and most ask no registry.
    import urllib.error
    import urllib.request

    parts = urlsplit(base)
    url = without_password(base).rstrip("/") + path
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        request.add_header("Authorization", "Basic " + base64.b64encode(secret).decode())
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            content = reply.read(REPLY_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise UnknownSchema(f"the schema registry has nothing at {url}") from error
            raise RegistryError(f"the schema registry answers {error.code} to {url}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise RegistryError(f"the schema registry cannot be asked: {url}: {reason}") from error
    if len(content) > REPLY_BYTES_MAX:
        raise RegistryError(f"the schema registry's answer to {url} is over {REPLY_BYTES_MAX} bytes")
    try:
        return json.loads(content)
    except ValueError as error:
        raise RegistryError(f"the schema registry's answer to {url} is not JSON") from error
