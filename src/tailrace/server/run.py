"""A node as a process: event loop, signals, the ports file, the screen, and an end that is clean.

The first SIGINT, SIGTERM or SIGHUP stops cleanly: listeners close, everything becomes durable, the ports file
goes. The second ends the process at once; nothing acknowledged is lost by that either. Under `nohup` a SIGHUP
is ignored. A node that fails by itself ends with its error, which `tailrace` shows and turns into a non-zero
exit code.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tailrace.client.tls import beside as beside_broker
from tailrace.model import TailraceError
from tailrace.records import ACCELERATED
from tailrace.runtime import DirectoryLock, Supervisor, wait_at_most
from tailrace.server.config import ServerConfig
from tailrace.server.demo import Demo
from tailrace.server.descriptors import raise_limit
from tailrace.server.engines import ENGINES
from tailrace.server.engines.directory import cannot_use
from tailrace.server.logs import LineHandler, end_logs, set_up_logs
from tailrace.server.loop import loop_factory
from tailrace.server.node import Node, wait_failed_or
from tailrace.server.pipelines import PipelinePlan, PipelineProcess
from tailrace.server.ports import remove_ports, write_ports
from tailrace.server.program import program_name
from tailrace.server.screen import Facts, Screen, live_text
from tailrace.server.stats import Observer

logger = logging.getLogger(__name__)

_ALLOCATIONS_PER_COLLECTION = 20_000

CLOSE_DEADLINE_S = 60
_LOOK_EVERY_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFailed(TailraceError):
    """The node did not end in time."""


def run_server(
    config: ServerConfig,
    *,
    demo: bool = False,
    pipelines: PipelinePlan | None = None,
    screen: Screen | None = None,
) -> None:
    """Serve until a signal comes; raises what made the node fail."""
    began = time.monotonic() - process_age_s()
    screen = screen or Screen()
    raise_limit()
    with _logs(config, screen), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(config, screen, began=began, demo=demo, pipelines=pipelines))


def process_age_s() -> float:
    """How long this process has been there: whoever waits for it waited for its imports too."""
    try:
        fields = (
            Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):  # no Linux
        return 0.0


async def _serve(
    config: ServerConfig, screen: Screen, *, began: float, demo: bool, pipelines: PipelinePlan | None
) -> None:
    stop = asyncio.Event()
    node = Node(config, owns_loop=True)
    beside = Supervisor(
        lambda error: logger.error("a task beside the node failed: %s", error, exc_info=error)
    )
    with _signals(stop), _data_directory(config):
        node.on_standby = lambda: screen.show_standby(node.storage_facts.place)
        starting = asyncio.ensure_future(node.start())
        if not await _done_or_stopped(starting, stop):
            return
        _collect_seldom()
        try:
            write_ports(config.data_dir, node.ports)
            cert = node.ports.tls.get("kafka")
            demo_traffic = Demo(node.kafka_address, tls=beside_broker(cert)) if demo else None
            facts = _facts(node, demo_traffic, pipelines, ready_s=time.monotonic() - began)
            screen.show_ready(facts)
            logger.info(
                "serving Kafka on %s, native on %s, HTTP on %s, data in %s",
                node.kafka_address,
                " and ".join(filter(None, (node.native_address, node.native_socket))),
                node.http_address or "no port",
                node.storage_facts.place,
            )
            if demo_traffic is not None:
                beside.start("demo", demo_traffic.run())
            process = (
                PipelineProcess(pipelines, node.kafka_address, pin=cert) if pipelines is not None else None
            )
            if process is not None:
                beside.start("pipelines", process.run())
            if screen.live:
                beside.start("live line", _live_line(node, screen, stop, process))
            failure = await wait_failed_or(node, stop)
        finally:
            remove_ports(config.data_dir, pid=os.getpid())
            screen.clear_live()
            await beside.stop()
            await _close(node)
        logger.info("stopped")
    if failure is not None:
        raise failure
    screen.show_stopped(facts)


def _collect_seldom() -> None:
    """Requests leave no cycles behind, and the batches that a broker keeps are many: looking through them for
    garbage took a tenth of the time. What is there now stays, and the rest is looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION, 10, 10)


async def _done_or_stopped(starting: asyncio.Future[None], stop: asyncio.Event) -> bool:
    """Whether the node started; a signal during a long recovery ends it."""
    stopping = asyncio.ensure_future(stop.wait())
    both: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        return False
    starting.result()
    return True


async def _live_line(
    node: Node, screen: Screen, stop: asyncio.Event, pipelines: PipelineProcess | None
) -> None:
    observer = Observer(node.broker)
    while not await wait_at_most(stop, _LOOK_EVERY_S):
        stats = observer.look(time.monotonic())
        if stats is not None:
            screen.show_live(live_text(stats, observer.history, beside=pipelines.text if pipelines else ""))


async def _close(node: Node) -> None:
    try:
        await asyncio.wait_for(node.close(), CLOSE_DEADLINE_S)
    except TimeoutError as error:
        raise StopFailed(
            f"the node did not stop within {CLOSE_DEADLINE_S} s. What was acknowledged is safe: start again"
        ) from error


def _facts(node: Node, demo: Demo | None, pipelines: PipelinePlan | None, *, ready_s: float) -> Facts:
    config = node.config
    return Facts(
        storage=node.storage_facts,
        fsync=str(config.fsync),
        accelerated=ACCELERATED,
        kafka=node.kafka_address,
        native=node.native_address,
        native_socket=node.native_socket,
        http=node.http_address,
        kafka_protocol=config.listeners_of("kafka")[0].security_protocol,
        http_scheme="https" if any(each.tls for each in config.listeners_of("http")) else "http",
        ready_s=ready_s,
        demo=demo.summary if demo else "",
        pipelines=pipelines.summary if pipelines else "",
        clock_held=node.clock_held,
        first_topic=demo.topics[0] if demo else "TOPIC",
        program=program_name(),
    )


@contextmanager
def _data_directory(config: ServerConfig) -> Iterator[None]:
    """The directory of the ports file, locked unless the engine does that by itself."""
    try:
        config.data_dir.mkdir(parents=True, exist_ok=True)
        is_locked = ENGINES[config.engine].describe(config).locks_directory
        lock = None if is_locked else DirectoryLock(str(config.data_dir))
    except OSError as error:
        raise cannot_use(config.data_dir, error) from error
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def caught(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        logger.info("stopping on %s; once more ends it at once", signal.Signals(number).name)
        stop.set()

    obeyed = [*_SIGNALS] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [*_SIGNALS, signal.SIGHUP]
    for each in obeyed:
        loop.add_signal_handler(each, caught, each)
    try:
        yield
    finally:
        for each in obeyed:
            loop.remove_signal_handler(each)


@contextmanager
def _logs(config: ServerConfig, screen: Screen) -> Iterator[LineHandler]:
    handler = set_up_logs(level=config.log_level, form=config.log_format)
    handler.before = screen.clear_live
    try:
        yield handler
    finally:
        end_logs(handler)
