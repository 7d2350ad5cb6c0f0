"""Messages to bytes and back. Codecs are compiled from the schema on first use, per class and version.

`decode` takes what a stranger sent: it raises ProtocolError for anything that is not a message. Bytes behind
a request are let pass, as Kafka does: librdkafka asks for all topics with three too many (Metadata 9 and up).
`encode` takes what we made: a value that does not fit its field is our mistake, and a ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tailrace.wire.kafka.api import APIS, Api
from tailrace.wire.kafka.decoding import decoder_source
from tailrace.wire.kafka.encoding import encoder_source
from tailrace.wire.kafka.schema import Message

M = TypeVar("M", bound=Message)
Encoder: TypeAlias = Callable[[M], bytes]
Decoder: TypeAlias = Callable[[bytes | memoryview], M]

_encoders: dict[tuple[type[Message], int], Encoder[Any]] = {}
_decoders: dict[tuple[type[Message], int], Decoder[Any]] = {}


def encode(message: Message, version: int) -> bytes:
    """The bytes of a request or response, without frame and header."""
    function = _encoders.get((type(message), version)) or encoder(type(message), version)
    try:
        return function(message)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} version {version}: {error}") from error


def decode(message_type: type[M], version: int, data: bytes | memoryview) -> M:
    """The message in a frame, behind its header. ProtocolError for anything else."""
    function: Decoder[M] = _decoders.get((message_type, version)) or decoder(message_type, version)
    return function(data)


def encoder(message_type: type[M], version: int) -> Encoder[M]:
    """The compiled encoder of one version. ValueError for a version that is not known."""
    key = message_type, version
    if key not in _encoders:
        flexible = _api(message_type, version).flexible(version)
        _encoders[key] = encoder_source(message_type, version, flexible=flexible).function("encode")
    return _encoders[key]


def decoder(message_type: type[M], version: int) -> Decoder[M]:
    """The compiled decoder of one version. ValueError for a version that is not known."""
    key = message_type, version
    if key not in _decoders:
        flexible = _api(message_type, version).flexible(version)
        _decoders[key] = decoder_source(message_type, version, flexible=flexible).function("decode")
    return _decoders[key]


def _api(message_type: type[Message], version: int) -> Api:
    name = message_type.__name__.removesuffix("Request").removesuffix("Response")
    for api in APIS.values():
        if api.name == name and api.knows(version):
            return api
    raise ValueError(f"{message_type.__name__} has no version {version} here")
