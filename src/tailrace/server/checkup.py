"""What `tailrace doctor` looks at: this machine, its disk, the ports, and a broker if one runs.

Each check looks at one thing and says what it found, and the way out where there is one. A problem stops a
broker from serving; a warning makes it slower or smaller than it could be. Nothing is left behind.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from tailrace.broker.health import Finding, judge_descriptors, judge_free_space
from tailrace.model import ConfigError, TailraceError, day_of
from tailrace.model.address import Address
from tailrace.net import find_occupant
from tailrace.net.tls import ServerTls
from tailrace.server.config import ServerConfig
from tailrace.server.engines import ENGINES
from tailrace.server.engines.segment import directory_config
from tailrace.server.listener import PROTOCOLS
from tailrace.server.node import reachable
from tailrace.server.ports import Ports, read_ports
from tailrace.server.stats import percentile

SYNCS = 40
_SYNC_BYTES = 4096
_SLOW_SYNC_MS = 10.0
_FAST_SYNC_MS = 0.02  # no disk that keeps its word is faster
_CONNECT_S = 3.0
_DAYS_LEFT_MIN = 21


def examine(config: ServerConfig, *, bootstrap: str | None = None) -> Iterator[Finding]:
    """Every finding, as it is made; `bootstrap` names a broker elsewhere."""
    yield check_interpreter()
    yield check_compiled()
    yield check_uvloop()
    yield check_descriptors()
    yield from ENGINES[config.engine].examine(config)
    yield from check_ports(config)
    yield from check_certificates(config)
    address = bootstrap or find_broker(config)
    if address is None:
        yield Finding(check="broker", status="ok", found="none runs here", advice="Start one: tailrace up")
    else:
        yield from check_broker(address, cert=None if bootstrap else _certificate(config))


# ---- the machine


def check_interpreter() -> Finding:
    number = ".".join(map(str, sys.version_info[:3]))
    return Finding(check="python", status="ok", found=f"{sys.implementation.name} {number}")


def check_compiled() -> Finding:
    from tailrace.records import ACCELERATED

    if ACCELERATED:
        return Finding(check="compiled module", status="ok", found="in use")
    return Finding(
        check="compiled module",
        status="warning",
        found="not in use: records are coded in Python",
        advice="Install a C compiler and reinstall; unset TAILRACE_PURE if it is set",
    )


def check_uvloop() -> Finding:
    try:
        import uvloop
    except ImportError:
        return Finding(
            check="uvloop",
            status="warning",
            found="not installed: the plain event loop serves",
            advice="pip install uvloop",
        )
    return Finding(check="uvloop", status="ok", found=version(uvloop.__name__))


def check_descriptors() -> Finding:
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit
        for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return judge_descriptors(soft=soft, hard=hard)


# ---- the disk


def check_directory(config: ServerConfig) -> Iterator[Finding]:
    """Writable, with room, and how long a sync takes; in the directory, or where it would be made."""
    wanted = config.data_dir
    place = _existing(wanted)
    not_yet = "" if place == wanted else f" (not there yet, {place} is)"
    try:
        latencies_ms = measure_syncs(place)
    except OSError as error:
        yield Finding(
            check="data directory",
            status="problem",
            found=f"cannot write to {place}: {error.strerror}",
            advice="Choose a directory that you may write to with --data-dir",
        )
        return
    yield Finding(check="data directory", status="ok", found=f"{wanted} can be written{not_yet}")
    yield judge_syncs(latencies_ms)
    free, least = shutil.disk_usage(place).free, directory_config(config).free_bytes_min
    yield judge_free_space(free, least_bytes=least)
    yield check_clock(wanted)


def check_clock(directory: Path) -> Finding:
    """Whether a start would believe this machine's time of day."""
    from tailrace.storage.segment.last_seen import is_plausible, read_seen

    try:
        seen_ms = read_seen((directory / "CLOCK").read_bytes())
    except OSError:
        seen_ms = None
    now_ms = time.time_ns() // 1_000_000
    if is_plausible(now_ms, seen_ms=seen_ms):
        return Finding(check="clock", status="ok", found=day_of(now_ms))
    return Finding(
        check="clock",
        status="warning",
        found=f"it shows {day_of(now_ms)}; a broker last ran here at {day_of(seen_ms or 0)}",
        advice="Nothing will expire by it. Set the clock right; if it is: "
        f"tailrace storage confirm-clock {directory}",
    )


def measure_syncs(directory: Path, *, count: int = SYNCS) -> list[float]:
    """How long it takes to append a page and have it on the disk, in milliseconds, so many times."""
    page = b"\0" * _SYNC_BYTES
    sync = getattr(os, "fdatasync", os.fsync)
    latencies_ms = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".tailrace-doctor-") as file:
        for _ in range(count):
            began = time.perf_counter()
            os.write(file.fileno(), page)
            sync(file.fileno())
            latencies_ms.append((time.perf_counter() - began) * 1000)
    return latencies_ms


def judge_syncs(latencies_ms: list[float]) -> Finding:
    """What the latency of syncs means for `fsync = commit`."""
    middle, high = percentile(latencies_ms, 0.5) or 0.0, percentile(latencies_ms, 0.99) or 0.0
    found = f"p50 {middle:.2f} ms, p99 {high:.2f} ms"
    if middle > _SLOW_SYNC_MS:
        return Finding(
            check="fsync latency",
            status="warning",
            found=found,
            advice="A producer that waits for each record waits this long. Use a faster disk, or accept "
            "what a power cut may lose with --fsync interval:200",
        )
    if middle < _FAST_SYNC_MS:
        return Finding(
            check="fsync latency",
            status="warning",
            found=found,
            advice="No disk is this fast: a power cut may lose what was acknowledged (memory file system, or "
            "a disk that does not obey)",
        )
    return Finding(check="fsync latency", status="ok", found=found)


# ---- the ports


def check_ports(config: ServerConfig) -> Iterator[Finding]:
    """Whether each listener can have its port, or has it."""
    running = live_ports(config.data_dir)
    first = {
        "kafka": ("Kafka", running and running.kafka, "--kafka-port"),
        "native": ("native", running and running.native, "--native-port"),
        "http": ("HTTP", running and running.http, "--http-port"),
    }
    for each in [each for protocol in first for each in config.listeners_of(protocol)]:
        listener, served, flag = first[each.protocol]
        port = each.address.port
        if each != config.listeners_of(each.protocol)[0]:
            listener, served = f"{listener} {each.name}", port  # only the ports of the first are written down
        if port == 0:
            yield Finding(check=f"{listener} port", status="ok", found="any free one will be taken")
        elif running is not None and served == port:
            found = f"{port} is served by the broker of pid {running.pid}"
            yield Finding(check=f"{listener} port", status="ok", found=found)
        else:
            yield _check_port(listener, port, host=reachable(each.address.host), flag=flag)


def _check_port(listener: str, port: int, *, host: str, flag: str) -> Finding:
    if not accepts(host, port):
        return Finding(check=f"{listener} port", status="ok", found=f"{port} is free")
    occupant = find_occupant(port)
    owner = f"pid {occupant[0]} ({occupant[1]})" if occupant else "another process"
    return Finding(
        check=f"{listener} port",
        status="warning",
        found=f"{port} is in use by {owner}",
        advice=f"If that is not your broker, try: tailrace up {flag} 0",
    )


def live_ports(data_dir: Path) -> Ports | None:
    """The ports of a broker that serves this directory now; a file that a dead one left does not count."""
    ports = read_ports(data_dir)
    if ports is None:
        return None
    try:
        os.kill(ports.pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:  # somebody else's, and alive
        pass
    return ports


def find_broker(config: ServerConfig) -> str | None:
    """A broker that ought to be there: the one of this data directory, or whoever has the port."""
    first = config.listeners_of("kafka")[0].address
    host = reachable(first.host)
    running = live_ports(config.data_dir)
    port = running.kafka if running is not None else first.port
    if not port or not accepts(host, port):
        return None
    return str(Address(host, port))


def accepts(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


# ---- certificates


def check_certificates(config: ServerConfig) -> Iterator[Finding]:
    """Whether the files of each listener's TLS will do, and for how long."""
    listed = [each for protocol in PROTOCOLS for each in config.listeners_of(protocol) if each.tls]
    for each in listed:
        name = f"certificate of listener {each.name}"
        assert each.tls is not None
        try:
            days = (ServerTls(each.tls).expires_at - time.time()) / 86_400
        except ConfigError as error:
            yield Finding(check=name, status="problem", found=str(error))
            continue
        yield judge_expiry(name, days)


def judge_expiry(name: str, days: float) -> Finding:
    """What the days that are left of a certificate mean."""
    found = f"expires in {days:.0f} days" if days > 0 else f"expired {-days:.0f} days ago: clients refuse it"
    if days > _DAYS_LEFT_MIN:
        return Finding(check=name, status="ok", found=found)
    return Finding(
        check=name,
        status="warning" if days > 0 else "problem",
        found=found,
        advice="Put new files in the place of the old ones. A broker takes them while it runs",
    )


# ---- a broker


def check_broker(address: str, *, cert: Path | None = None) -> Iterator[Finding]:
    """As a client sees it: whether it answers, where it sends clients, and whether they get there.

    `cert` is the certificate of a broker with TLS that is configured here.
    """
    try:
        cluster_id, nodes = asyncio.run(_ask(address, cert))
    except ConfigError:
        raise
    except (TailraceError, OSError) as error:
        yield Finding(
            check="broker",
            status="problem",
            found=f"{address} does not answer as a Kafka broker: {error}",
            advice="See who has the port, or name a broker with --bootstrap",
        )
        return
    yield Finding(check="broker", status="ok", found=f"{address} answers, cluster {cluster_id}")
    for node_id, host, port in nodes:
        yield _check_advertised(node_id, host=host, port=port)


def _check_advertised(node_id: int, *, host: str, port: int) -> Finding:
    name = f"advertised address of node {node_id}"
    if accepts(host, port):
        return Finding(check=name, status="ok", found=f"{host}:{port}, reachable from here")
    return Finding(
        check=name,
        status="problem",
        found=f"{host}:{port}, not reachable from here",
        advice="Clients are sent there. Set server.advertised to an address that they can reach, or to auto",
    )


def _certificate(config: ServerConfig) -> Path | None:
    listener = config.listeners_of("kafka")[0]
    return None if listener.tls is None else listener.tls.cert


async def _ask(address: str, cert: Path | None) -> tuple[str, list[tuple[int, str, int]]]:
    from tailrace.client.credentials import from_environment
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.tls import beside

    async with KafkaClient(
        address,
        client_id="tailrace-doctor",
        request_timeout_s=_CONNECT_S,
        credentials=from_environment(),
        tls=beside(cert),
    ) as client:
        await client.metadata([])
        nodes = sorted((node_id, *node) for node_id, node in client.cluster.nodes.items())
        return client.cluster.cluster_id or "unknown", nodes


def _existing(path: Path) -> Path:
    """The directory itself, or the nearest above it that exists, as far as we may look."""
    while not os.path.exists(path) and path != path.parent:  # a Path would fail where it may not look
        path = path.parent
    return path
