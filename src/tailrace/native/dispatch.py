"""From a frame's type to what serves it. PUBLISH and PUBLISH_BATCH are not here: `publishing` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.model import BrokerError, ErrorCode
from tailrace.native.handlers import (
    describing,
    greeting,
    joining,
    settling,
    subscription,
    topic,
    transaction,
)
from tailrace.wire.native import Frame, MessageType, type_name

if TYPE_CHECKING:
    from tailrace.native.protocol import NativeProtocol

Handler = Callable[["NativeProtocol", Frame], None]

_BROKERS_OWN = (MessageType.DATA, MessageType.ERROR, MessageType.NOTICE)


def refuse_type(protocol: NativeProtocol, frame: Frame) -> None:  # noqa: ARG001
    """Nobody knows this type."""
    raise BrokerError(
        f"{type_name(frame.type)} is not known here. Is the client newer than the broker?",
        code=ErrorCode.UNSUPPORTED_VERSION,
    )


def _refuse_own(protocol: NativeProtocol, frame: Frame) -> None:  # noqa: ARG001
    raise BrokerError(f"only a broker sends {type_name(frame.type)}", code=ErrorCode.INVALID_REQUEST)


HANDLERS: Final[dict[int, Handler]] = {
    int(MessageType.CREATE_TOPIC): topic.create,
    int(MessageType.CREATE_SUBSCRIPTION): subscription.create,
    int(MessageType.DELETE_SUBSCRIPTION): subscription.delete,
    int(MessageType.SUBSCRIBE): joining.subscribe,
    int(MessageType.UNSUBSCRIBE): joining.unsubscribe,
    int(MessageType.HEARTBEAT): greeting.heartbeat,
    int(MessageType.ACK): settling.ack,
    int(MessageType.NACK): settling.nack,
    int(MessageType.PULL): joining.pull,
    int(MessageType.REPLAY): subscription.replay,
    int(MessageType.CREDIT): joining.credit,
    int(MessageType.AUTH): greeting.auth,
    int(MessageType.EXTEND): settling.extend,
    int(MessageType.DESCRIBE): describing.describe,
    int(MessageType.REDRIVE): subscription.redrive,
    int(MessageType.TXN_BEGIN): transaction.begin,
    int(MessageType.TXN_COMMIT): transaction.commit,
    int(MessageType.TXN_ABORT): transaction.abort,
    **{int(own): _refuse_own for own in _BROKERS_OWN},
}
"""What serves a request; it replies itself, or raises what is to be answered."""
