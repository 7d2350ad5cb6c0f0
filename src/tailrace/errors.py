"""The exceptions that programs catch, in one place. All of them are TailraceErrors.

    TailraceError              everything that Tailrace raises on purpose
      BrokerError              a broker's answer; `code` is an ErrorCode
        UnknownTopic           the cluster says that there is no such topic or partition
        OffsetOutOfRange       the offset was removed, or does not exist yet
        TryAgain               the same request may succeed a moment later
      ClientError              the client could not do it, and no broker's answer says why
        CannotConnect          no connection: BrokerUnreachable (native), ConnectTimedOut
        ConnectionLost         the connection ended before the answer came: BrokerGone (native)
        TimedOut               no answer, or no good one, within the deadline
        ClientClosed           the client was closed before, or while, this was done
        InvalidMessage         what was to be sent cannot be sent
        TransactionFailed      the open transaction cannot commit: abort it, and begin again
        OutcomeUnknown         whether the transaction has committed is not known
        ProducerFailed         this producer can have no more transactions: close it
        BufferFull, NoOffset, UnsupportedApi
      DecryptionFailed         a record is not what a holder of its key wrote to this topic
      ConfigError              a setting is wrong; the text names it and the fix
      ProtocolError            the peer broke the rules of the protocol
      SerializationError       a key or value does not fit its serializer
      StorageError             the data directory cannot be used

A wrong type of an argument is a TypeError, as everywhere in Python.
"""

from __future__ import annotations

from tailrace.client.error import (
    BufferFull,
    CannotConnect,
    ClientClosed,
    ClientError,
    ConnectionLost,
    ConnectTimedOut,
    NoOffset,
    OutcomeUnknown,
    ProducerFailed,
    TimedOut,
    TransactionFailed,
    UnknownTopic,
    UnsupportedApi,
)
from tailrace.client.native.error import BrokerGone, BrokerUnreachable, InvalidMessage, TryAgain
from tailrace.client.serialization import SerializationError
from tailrace.model import (
    BrokerError,
    ConfigError,
    ErrorCode,
    OffsetOutOfRange,
    ProtocolError,
    StorageError,
    TailraceError,
)
from tailrace.security.decryption import DecryptionFailed

__all__ = [
    "BrokerError",
    "BrokerGone",
    "BrokerUnreachable",
    "BufferFull",
    "CannotConnect",
    "ClientClosed",
    "ClientError",
    "ConfigError",
    "ConnectTimedOut",
    "ConnectionLost",
    "DecryptionFailed",
    "ErrorCode",
    "InvalidMessage",
    "NoOffset",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "ProducerFailed",
    "ProtocolError",
    "SerializationError",
    "StorageError",
    "TailraceError",
    "TimedOut",
    "TransactionFailed",
    "TryAgain",
    "UnknownTopic",
    "UnsupportedApi",
]
