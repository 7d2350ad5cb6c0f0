"""HEARTBEAT: a sign of life, and with a sequence an introduction. AUTH: a message of a login."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace import __version__
from tailrace.model import BrokerError, ErrorCode
from tailrace.native.config import INTERVALS_TO_DEATH
from tailrace.native.property import number_of, refusal, shown
from tailrace.wire.native import Frame, MessageType, write_frame

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

_HEARTBEAT = int(MessageType.HEARTBEAT)

_CLIENT_ID_LENGTH_MAX = 255
_HEARTBEAT_MS_MIN = 10
_HEARTBEAT_MS_MAX = 3_600_000


def heartbeat(protocol: NativeProtocol, frame: Frame) -> None:
    """Note who the client is and how often it is heard of; tell it the same of us if it asks."""
    properties = frame.properties
    if not properties and not frame.sequence:
        return  # the usual one
    client_id = properties.get("_client_id", protocol.client_id)
    if len(client_id) > _CLIENT_ID_LENGTH_MAX:
        raise refusal(f"_client_id has {len(client_id)} letters; {_CLIENT_ID_LENGTH_MAX} are allowed")
    interval_ms = number_of(
        properties,
        "_heartbeat_ms",
        least=_HEARTBEAT_MS_MIN,
        most=_HEARTBEAT_MS_MAX,
        default=protocol.peer_heartbeat_ms,
    )
    producer = properties.get("_producer")
    if producer not in (None, "new"):
        raise refusal(f'_producer = "{shown(producer or "")}": in a HEARTBEAT it can only be new')
    protocol.client_id, protocol.peer_heartbeat_ms = client_id, interval_ms
    if not frame.sequence:
        return
    if producer is None:
        protocol.outlet.send(_write(protocol, frame.sequence))
    else:
        protocol.run("producer id", frame.sequence, _with_producer(protocol, frame.sequence))


def auth(protocol: NativeProtocol, frame: Frame) -> None:
    """Go on with a login; the next request waits for it."""
    login = protocol.login
    if login is None:
        raise BrokerError(
            "this listener asks nobody who it is. Leave the credentials out",
            code=ErrorCode.SECURITY_DISABLED,
        )
    kept = Frame(frame.type, frame.sequence, frame.timestamp, frame.properties, bytes(frame.body))
    protocol.run("login", frame.sequence, login.take(kept), holds=True)


async def _with_producer(protocol: NativeProtocol, sequence: int) -> bytes:
    return _write(protocol, sequence, {"_producer": str(await protocol.access.next_producer_id())})


def _write(protocol: NativeProtocol, sequence: int, more: dict[str, str] | None = None) -> bytes:
    config = protocol.config
    is_known = protocol.login is None or not protocol.login.is_pending
    properties = {
        **({"_version": __version__} if is_known else {}),
        "_heartbeat_ms": str(config.heartbeat_interval_ms),
        "_dead_after_ms": str(protocol.peer_heartbeat_ms * INTERVALS_TO_DEATH),
        "_frame_bytes_max": str(config.frame_bytes_max),
        **(more or {}),
    }
    return write_frame(_HEARTBEAT, sequence=sequence, properties=properties)
