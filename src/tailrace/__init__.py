"""Tailrace: a message broker in Python that speaks the Kafka wire protocol.

`Broker` and `AsyncBroker` are a whole broker inside a program; `tailrace up` runs one as a server. Importing
this package imports nothing else: what is named here is loaded when it is first used.

The packages, from the ground up: `model` (names and errors), `runtime` (clock, disk, tasks), `records` (the
record batch), `wire` (the protocols without I/O), `net` (sockets), `storage` (the log and its engines),
`client`, `broker` (topics, groups, subscriptions), `metrics` and `telemetry`; the listeners `kafka`, `native`
and `http`; `cluster`; `spark` (a client of brokers); `server` (configuration, the node), `cli`.
ARCHITECTURE.md follows a byte through them.
"""

TYPE_CHECKING = False  # as typing has it, which would be the first thing that this package imports
if TYPE_CHECKING:
    from tailrace.model import TailraceError
    from tailrace.server.embedded import AsyncBroker, Broker

__version__ = "0.1.0"
__all__ = ["AsyncBroker", "Broker", "TailraceError", "__version__"]


def __getattr__(name: str) -> object:
    if name in ("AsyncBroker", "Broker"):
        from tailrace.server import embedded

        return getattr(embedded, name)
    if name == "TailraceError":
        from tailrace.model import TailraceError

        return TailraceError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
