"""The broker's event-loop lag as a client feels it, measured in a process of its own.

Every 50 ms a tiny request (ApiVersions) goes over a connection that does nothing else, and the time to its
answer is taken: the loop has to come round to read and to answer, and hardly anything else has to happen. The
next request is due 50 ms after the last was due, so a stall is met by one request and not by a crowd; if an
answer takes longer than that, the requests that were due meanwhile are left out.

It is told `{"host", "port"}` as a line of JSON, says `ready`, and answers every line that follows with the
percentiles since the last one. It ends with its standard input.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import time

from tailrace.bench.wire import LoadError, percentiles
from tailrace.bench.wire.topic import connect, read_exactly

EVERY_S = 0.05
_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions 0, correlation id 1, no client id
_SIZE = struct.Struct(">i")
_CORRELATION_AND_ERROR = struct.Struct(">ih")
_REPLY_BYTES_MAX = 1 << 16
_NS = 1_000_000_000


def round_trip_ns(sock: socket.socket) -> int:
    """One request and its whole answer."""
    began_ns = time.monotonic_ns()
    sock.sendall(_REQUEST)
    (size,) = _SIZE.unpack(read_exactly(sock, _SIZE.size))
    if not _CORRELATION_AND_ERROR.size <= size <= _REPLY_BYTES_MAX:
        raise LoadError(f"an answer of {size} bytes to the probe")
    reply = read_exactly(sock, size)
    took_ns = time.monotonic_ns() - began_ns
    if _CORRELATION_AND_ERROR.unpack_from(reply) != (1, 0):
        raise LoadError("the probe was refused")
    return took_ns


def window_row(values_ns: list[int]) -> dict[str, object]:
    """What a window is told as."""
    found = percentiles(values_ns)
    if found is None:
        return {"count": 0}
    return {"count": len(values_ns), "p50_ms": found.p50_ms, "p99_ms": found.p99_ms, "max_ms": found.max_ms}


def next_due_ns(due_ns: int, now_ns: int, every_ns: int) -> int:
    """The first time of the timetable that is still to come."""
    return due_ns + every_ns * max((now_ns - due_ns) // every_ns + 1, 1)


def serve(sock: socket.socket) -> None:
    """Probe, and answer lines in between, until standard input ends."""
    seen: list[int] = []
    every_ns = int(EVERY_S * _NS)
    due_ns = time.monotonic_ns()
    while True:
        wait_s = max(due_ns - time.monotonic_ns(), 0) / _NS
        if select.select([sys.stdin], [], [], wait_s)[0]:
            if not os.read(sys.stdin.fileno(), 4096):
                return
            print(json.dumps(window_row(seen)), flush=True)
            seen.clear()
        elif time.monotonic_ns() >= due_ns:
            seen.append(round_trip_ns(sock))
            due_ns = next_due_ns(due_ns, time.monotonic_ns(), every_ns)


def main() -> None:
    where = json.loads(os.read(sys.stdin.fileno(), 4096))
    try:
        with connect(where["host"], where["port"]) as sock:
            print("ready", flush=True)
            serve(sock)
    except LoadError as error:
        print(json.dumps({"error": f"the probe: {error}"}), flush=True)


if __name__ == "__main__":
    main()
