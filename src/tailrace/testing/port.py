"""Ports for servers that are told their port, among them those that come back on it after a crash.

The system gives ports above 32767 to connections, and to servers that take any port. A port from there
that is free now may be a connection's own port a moment later, also while the server that had it restarts. A
client that dials such a port while nothing listens may even be connected to itself. The ports given here are
below.
"""

from __future__ import annotations

import itertools
import os
import socket

_FIRST = 20_000
_COUNT = 12_000
_STRIDE = 97  # processes with neighbouring ids begin at ports that are not neighbours

_numbers = itertools.count(os.getpid() * _STRIDE)


def free_port() -> int:
    """Returns a port of 127.0.0.1 that nothing uses, each time a new one; raises OSError if all are."""
    for number in itertools.islice(_numbers, _COUNT):
        port = _FIRST + number % _COUNT
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers set it
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise OSError(f"every port from {_FIRST} to {_FIRST + _COUNT - 1} is in use")
