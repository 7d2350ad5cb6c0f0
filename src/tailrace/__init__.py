"""Tailrace: a message broker in Python that speaks the Kafka wire protocol.

`Broker` and `AsyncBroker` are a whole broker inside a program; `tailrace up` runs one as a server. Importing
this package imports nothing else: what is named here is loaded when it is first used.

The packages, from the ground up: `model` (names and errors), `runtime` (clock, disk, tasks), `records` (the
record batch), `wire` (the protocol without I/O), `client` and `storage` (the log and its engines), `broker`,
`cluster` and `kafka` (the Kafka door), `server` (configuration, the node), `cli`. ARCHITECTURE.md follows a
byte through them.
"""

TYPE_CHECKING = False  # as typing has it, which would be the first thing that this package imports
if TYPE_CHECKING:
    from tailrace.server.embedded import AsyncBroker, Broker

__version__ = "0.1.0"
__all__ = ["AsyncBroker", "Broker", "__version__"]


def __getattr__(name: str) -> object:
    if name in ("AsyncBroker", "Broker"):
        from tailrace.server import embedded

        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
