"""What can go wrong between a native client and its broker.

An ERROR frame is a `BrokerError` with its code and text; `TryAgain` is one that may go away by itself. Where
there is no answer, the error is of the clients' family (tailrace.client.error), and also a `ConnectionError`
or `TimeoutError` as Python's own libraries raise them.
"""

from __future__ import annotations

from typing import ClassVar

from tailrace.client.error import CannotConnect, ClientError, ConnectionLost
from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.wire.native import Frame, read_error


class BrokerUnreachable(CannotConnect, ConnectionError):
    """No connection to the broker; the text names the address, the cause and the way out."""


class BrokerGone(ConnectionLost, ConnectionError):
    """The connection ended before the answer came. Whether the request was carried out is not known."""


class InvalidMessage(ClientError, ValueError):
    """What was to be sent cannot be sent; nothing was."""


class TryAgain(BrokerError):
    """The broker refused for now: the same request may succeed a moment later."""

    retriable: ClassVar[bool] = True


def error_of(frame: Frame) -> BrokerError:
    """The error that an ERROR frame tells."""
    reply = read_error(frame)
    kind = TryAgain if reply.retriable else BrokerError
    return kind(f"{reply.message} ({reply.code.name})", code=reply.code)


def number_of(frame: Frame, name: str, default: int | None = None) -> int:
    """A number among the properties of what the broker sent; ProtocolError if it is none."""
    text = frame.properties.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise ProtocolError(f'the broker sent {name} = "{text}" where a number belongs') from None


def too_large(size: int, *, limit: int) -> BrokerError:
    """The error for a message that does not fit into any frame the broker takes."""
    return BrokerError(
        f"a message of {size} bytes is larger than the {limit} that the broker takes. Send it in parts",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )
