"""A broker inside a Python program: `tailrace.Broker` for threads, `tailrace.AsyncBroker` for asyncio.

Both are a whole node: any Kafka client connects to `bootstrap_servers`. In memory and on a free port by
default, with one partition per topic and topics that come by themselves. With `http_port` they serve HTTP
too, and `asgi()` mounts the same in an app that is served anyway. `Broker` runs its own loop in its own
thread and may be used from any thread; `AsyncBroker` lives in the caller's loop. Neither takes signals, sets
up logs or reads configuration files, several live in one process, and a closed one leaves nothing behind but
its data directory, if it was given one.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from tailrace.broker.visible_records import Portion
from tailrace.model import ConfigError, TailraceError
from tailrace.server.config import ServerConfig
from tailrace.server.listener import is_loopback
from tailrace.server.local import (
    EmbeddedRecord,
    Headers,
    LocalAccess,
    Produced,
    Span,
    check_bytes,
    check_timestamp,
    records_in,
)
from tailrace.server.local_transaction import AsyncLocalTransaction, GatheredRecord, LocalTransaction
from tailrace.server.node import Node
from tailrace.storage.api import Fsync

if TYPE_CHECKING:
    from tailrace.server.mounted import MountedApp, MountedService, Receive, Scope, Send

_T = TypeVar("_T")

_CLOSE_DEADLINE_S = 60.0
_PORT_MAX = 65_535
_NOT_STARTED = "the broker is not started. Use it in `with`, or call start()"
_ONE_PARTITION = {"num.partitions": "1"}


def embedded_config(
    *,
    data_dir: str | os.PathLike[str] | None,
    host: str,
    kafka_port: int,
    port: int | None,
    native_port: int,
    http_port: int | None,
    fsync: str,
    configs: Mapping[str, object],
    snapshot: str | os.PathLike[str] | None = None,
) -> ServerConfig:
    """The configuration of an embedded node; `configs` are broker and topic settings by Kafka's names."""
    if data_dir is not None and snapshot is not None:
        raise ConfigError("data_dir keeps everything, and snapshot is of a broker in memory. Leave one out")
    broker, topic_defaults = _sorted_settings(configs)
    if port is not None and kafka_port:
        raise ConfigError("kafka_port and port are two names of one thing. Leave port out")
    name, chosen = ("kafka_port", kafka_port) if port is None else ("port", port)
    _check_address(host, **{name: chosen}, native_port=native_port, http_port=http_port)
    return ServerConfig(
        host=host,
        kafka_port=chosen,
        native_port=native_port,
        http_port=http_port,
        engine="memory" if data_dir is None else "segment",
        # The program may change its working directory while the broker runs.
        data_dir=Path() if data_dir is None else Path(data_dir).absolute(),
        fsync=Fsync.parse(fsync),
        engine_settings={} if snapshot is None else {"snapshot.path": str(Path(snapshot).absolute())},
        broker={**_ONE_PARTITION, **broker},
        topic_defaults=topic_defaults,
    )


def _check_address(host: str, **ports: int | None) -> None:
    """The system would take a port modulo 65536, and a broker nobody finds is worse than none."""
    if not is_loopback(host):
        raise ConfigError(
            f"host = {host!r} would serve other machines without encryption, which an embedded broker does "
            "not do. Use a loopback address such as 127.0.0.1, or run a server: tailrace up"
        )
    for name, port in ports.items():
        if port is not None and not (isinstance(port, int) and 0 <= port <= _PORT_MAX):
            raise ConfigError(f"{name} = {port!r} must be a whole number from 0 to {_PORT_MAX}")


def _sorted_settings(configs: Mapping[str, object]) -> tuple[dict[str, str], dict[str, str]]:
    """Broker settings and topic settings, checked; Kafka has names for both, and they do not collide."""
    broker: dict[str, str] = {}
    topic_defaults: dict[str, str] = {}
    if configs:  # the table is for those who need it: most embedded brokers set nothing
        from tailrace.server.kind import Refused
        from tailrace.server.setting import settings

        for name, given in configs.items():
            setting = settings().get(f"broker.{name}") or settings().get(f"topic_defaults.{name}")
            if setting is None:
                raise ConfigError(f"{name} is neither a broker nor a topic setting. {_meant_by(name)}")
            try:
                text = str(setting.kind.read(given))
            except Refused as error:
                raise ConfigError(str(error)) from error
            except ValueError as error:
                raise ConfigError(f"{name} = {given!r} must be {error}") from error
            (broker if setting.key.startswith("broker.") else topic_defaults)[name] = text
    return broker, topic_defaults


def _meant_by(name: str) -> str:
    import difflib

    from tailrace.server.setting import settings

    known = [key.partition(".")[2] for key in settings() if key.startswith(("broker.", "topic_defaults."))]
    near = difflib.get_close_matches(name.replace("_", "."), known, n=1)
    return f"Did you mean {near[0]}?" if near else "Try: tailrace config show"


class AsyncBroker:
    """A broker in the running event loop: `async with tailrace.AsyncBroker() as broker: ...`.

    Its settings are those of `Broker`.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        kafka_port: int = 0,
        port: int | None = None,
        native_port: int = 0,
        http_port: int | None = None,
        fsync: str = "commit",
        configs: Mapping[str, object] | None = None,
    ) -> None:
        self._config = embedded_config(
            data_dir=data_dir,
            snapshot=snapshot,
            host=host,
            kafka_port=kafka_port,
            port=port,
            native_port=native_port,
            http_port=http_port,
            fsync=fsync,
            configs=configs or {},
        )
        self._owns_loop = False
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._mounted: MountedService | None = None
        self._local: LocalAccess | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.bootstrap_servers if self._node else 'not started'}>"

    async def __aenter__(self) -> AsyncBroker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Where any Kafka client connects."""
        return self._started().kafka_address

    @property
    def native_address(self) -> str:
        """Where a BrokerClient connects, as HOST:PORT."""
        return self._started().native_address

    @property
    def native_port(self) -> int:
        return self._started().native_port

    @property
    def http_address(self) -> str:
        """Where browsers and curl find it, as HOST:PORT; it was given an `http_port`, 0 for any free one."""
        address = self._started().http_address
        if address is None:
            raise TailraceError(
                "the broker has no HTTP port. Give it one: http_port=0 takes any that is free"
            )
        return address

    def asgi(self) -> MountedApp:
        """REST, live streams, metrics and console as an ASGI app: `Mount("/broker", broker.asgi())`.

        It may be mounted before the broker starts. Who may call it is for the app around it to decide: unlike
        the broker's own HTTP port, it lets pages of other sites in.
        """
        from tailrace.server.mounted import MountedApp

        return MountedApp(lambda: None if self._loop is None else (self._loop, self._serve_http))

    async def start(self) -> None:
        """Serve; a broker that was closed may be started again."""
        if self._node is not None:
            raise TailraceError("the broker is started already")
        node = Node(self._config, owns_loop=self._owns_loop)
        await node.start()
        self._node = node
        self._local = LocalAccess(node.broker.gate)
        self._loop = asyncio.get_running_loop()

    async def close(self) -> None:
        """Stop; everything acknowledged stays if there is a data directory. Closing twice is harmless."""
        node, self._node, self._local = self._node, None, None
        mounted, self._mounted, self._loop = self._mounted, None, None
        try:
            if mounted is not None:
                await mounted.close()
        finally:
            if node is not None:
                await node.close()

    async def wait_failed(self) -> Exception:
        """Return what ended this broker, once something did."""
        return await self._started().wait_failed()

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """Make a topic; BrokerError if there is one already."""
        await self._access().create_topic(name, partitions=partitions, configs=configs or {})

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Produced:
        """Append one record, in process; returns where it went, once it is acknowledged."""
        check_bytes("value", value)
        check_bytes("key", key)
        check_timestamp(timestamp)
        return await self._access().produce(
            topic, value, key=key, headers=headers, partition=partition, timestamp=timestamp
        )

    def transaction(self) -> AsyncLocalTransaction:
        """Records that are stored together: `async with broker.transaction() as tx: tx.produce(...)`.

        Leaving the block commits, an exception stores nothing. Readers see all of the records or none.
        """
        return AsyncLocalTransaction(self.produce_together)

    async def produce_together(self, records: Sequence[GatheredRecord]) -> list[Produced]:
        """Store the records of a transaction; what leaving its block calls."""
        return await self._access().produce_together(records)

    async def read(
        self, topic: str, partition: int | None = None, offset: int | None = None
    ) -> AsyncIterator[EmbeddedRecord]:
        """The records up to the last stable offset, one partition after the other, each in order.

        Without `partition` all of them, without `offset` from the first that is there.
        """
        local = self._access()
        async for record in local.read(topic, local.plan_read(topic, partition=partition, offset=offset)):
            yield record

    async def _serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a mounted app, in our loop."""
        from tailrace.server.mounted import MountedService, refuse_closed

        if self._node is None:  # it was closed on the way here
            await refuse_closed(scope, receive, send)
            return
        if self._mounted is None:
            self._mounted = MountedService(self._node.http_app())
        await self._mounted.serve(scope, receive, send)

    def _started(self) -> Node:
        if self._node is None:
            raise TailraceError(_NOT_STARTED)
        return self._node

    def _access(self) -> LocalAccess:
        if self._local is None:
            raise TailraceError(_NOT_STARTED)
        return self._local


class _InThread(AsyncBroker):
    """The asynchronous broker in a loop that is ours alone."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._owns_loop = True

    async def plan_read(self, topic: str, partition: int | None, offset: int | None) -> list[Span]:
        return self._access().plan_read(topic, partition=partition, offset=offset)

    async def read_portion(self, topic: str, span: Span, offset: int) -> Portion:
        return await self._access().read_portion(topic, span, offset)


class Broker:
    """A broker for programs without an event loop: `with tailrace.Broker() as broker: ...`.

    Without a `data_dir` it is in memory. A port of 0 is any free one; `port` is an older name of
    `kafka_port`.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        snapshot: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        kafka_port: int = 0,
        port: int | None = None,
        native_port: int = 0,
        http_port: int | None = None,
        fsync: str = "commit",
        configs: Mapping[str, object] | None = None,
    ) -> None:
        self._inner = _InThread(
            data_dir=data_dir,
            snapshot=snapshot,
            host=host,
            kafka_port=kafka_port,
            port=port,
            native_port=native_port,
            http_port=http_port,
            fsync=fsync,
            configs=configs,
        )
        self._thread: _LoopThread | None = None

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers if self._thread else 'not started'}>"

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """Where any Kafka client connects."""
        return self._inner.bootstrap_servers

    @property
    def native_address(self) -> str:
        """Where a BrokerClient connects, as HOST:PORT."""
        return self._inner.native_address

    @property
    def native_port(self) -> int:
        return self._inner.native_port

    @property
    def http_address(self) -> str:
        """Where browsers and curl find it, as HOST:PORT; it was given an `http_port`, 0 for any free one."""
        return self._inner.http_address

    def asgi(self) -> MountedApp:
        """REST, live streams, metrics and console as an ASGI app: `Mount("/broker", broker.asgi())`.

        It may be mounted before the broker starts, and is served in any loop. Who may call it is for the app
        around it to decide: unlike the broker's own HTTP port, it lets pages of other sites in.
        """
        return self._inner.asgi()

    def start(self) -> None:
        """Serve; a broker that was closed may be started again. Recovery takes as long as it takes."""
        if self._thread is not None:
            raise TailraceError("the broker is started already")
        thread = _LoopThread()
        try:
            thread.call(self._inner.start())
        except BaseException:
            thread.end()
            raise
        self._thread = thread
        _close_at_exit(self)

    def close(self) -> None:
        """Stop; everything acknowledged stays if there is a data directory. Closing twice is harmless.

        In a forked child there is nothing to close: the broker is its parent's.
        """
        thread, self._thread = self._thread, None
        _unclosed.discard(self)
        if thread is None or thread.is_left_behind:
            return
        try:
            thread.call(self._inner.close(), deadline_s=_CLOSE_DEADLINE_S)
        except TimeoutError as error:
            raise TailraceError(
                f"the broker did not stop within {_CLOSE_DEADLINE_S:g} s. What was acknowledged is safe"
            ) from error
        finally:
            thread.end()

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, object] | None = None
    ) -> None:
        """Make a topic; BrokerError if there is one already."""
        self._call(self._inner.create_topic(name, partitions, configs))

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Produced:
        """Append one record, in process; returns where it went, once it is acknowledged."""
        return self._call(self._inner.produce(topic, value, key, headers, partition, timestamp))

    def transaction(self) -> LocalTransaction:
        """Records that are stored together: `with broker.transaction() as tx: tx.produce(...)`.

        Leaving the block commits, an exception stores nothing. Readers see all of the records or none.
        """
        return LocalTransaction(self._inner.produce_together, self._call)

    def read(
        self, topic: str, partition: int | None = None, offset: int | None = None
    ) -> Iterator[EmbeddedRecord]:
        """The records up to the last stable offset, one partition after the other, each in order.

        Without `partition` all of them, without `offset` from the first that is there.
        """
        spans = self._call(self._inner.plan_read(topic, partition, offset))
        return self._read(topic, spans)

    def _read(self, topic: str, spans: list[Span]) -> Iterator[EmbeddedRecord]:
        for span in spans:
            at = span.start
            while at != span.end:
                portion = self._call(self._inner.read_portion(topic, span, at))
                yield from records_in(portion, topic=topic, span=span)
                if portion.next_offset == at:
                    break  # it begins behind the last stable offset
                at = portion.next_offset

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._thread is None:
            work.close()
            raise TailraceError(_NOT_STARTED)
        return self._thread.call(work)


_unclosed: set[Broker] = set()
"""Those that serve, also when nobody else knows them any more: their threads go on, and want an end."""


def _close_at_exit(broker: Broker) -> None:
    """Close it when the program ends, if nobody does before."""
    _watch_exit()
    _unclosed.add(broker)


@cache
def _watch_exit() -> None:
    """The interpreter ends executors before it calls `atexit`, and a broker without its disk threads could
    only fail: so this goes where they are ended, which calls the last one registered first."""
    import concurrent.futures.thread  # noqa: F401 - registers itself, and must have done so before us

    getattr(threading, "_register_atexit", atexit.register)(_close_forgotten)


def _close_forgotten() -> None:
    for broker in list(_unclosed):
        broker.close()


class _LoopThread:
    """A thread that runs an event loop until it is told to end."""

    def __init__(self) -> None:
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: asyncio.Event | None = None
        self._process_id = os.getpid()
        # A daemon: a program that forgets to close its broker still ends, and `_close_at_exit` closes it.
        self._thread = threading.Thread(target=self._run, name="tailrace-broker", daemon=True)
        self._thread.start()

    @property
    def is_left_behind(self) -> bool:
        """Whether we are in a forked child: the thread is in the parent, and nobody would ever answer."""
        return os.getpid() != self._process_id

    def call(self, work: Coroutine[Any, Any, _T], *, deadline_s: float | None = None) -> _T:
        """Run `work` in the loop and wait for it; from any thread but the loop's own."""
        if self.is_left_behind:
            work.close()
            raise TailraceError(
                f"the broker runs in process {self._process_id}, of which this is a fork. Connect a client "
                "to its bootstrap_servers instead"
            )
        if threading.current_thread() is self._thread:
            work.close()
            raise TailraceError("this would wait for itself. Use AsyncBroker inside an event loop")
        try:
            loop = self._loop.result()
        except BaseException:
            work.close()
            raise
        running = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return running.result(deadline_s)
        except BaseException:
            running.cancel()
            raise

    def end(self) -> None:
        if self._ended is not None:
            self._loop.result().call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        from tailrace.server.loop import loop_factory

        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._stay())
        except BaseException as error:
            if self._loop.done():
                raise
            self._loop.set_exception(error)  # there is no loop: whoever wanted one hears why

    async def _stay(self) -> None:
        self._ended = asyncio.Event()
        self._loop.set_result(asyncio.get_running_loop())
        await self._ended.wait()
