"""The two ends of a connection, as people and clients write them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple


class ConnectionFacts(NamedTuple):
    """The two ends of a connection."""

    peer_host: str
    peer_port: int
    local_host: str  # the address that the client reached, also where the listener is bound to all of them
    local_port: int
    listener: str = "kafka"


def facts_of(transport: asyncio.BaseTransport, *, listener: str) -> ConnectionFacts:
    """What a transport knows of its ends; empty where it is gone already."""
    peer = transport.get_extra_info("peername") or ("", 0)
    local = transport.get_extra_info("sockname") or ("", 0)
    return ConnectionFacts(plain_address(peer[0]), peer[1], plain_address(local[0]), local[1], listener)


def plain_address(host: str) -> str:
    """An IPv4 address that came through an IPv6 socket, as IPv4; an IPv6 one without its scope."""
    host = host.partition("%")[0]
    return host.removeprefix("::ffff:") if host.startswith("::ffff:") and "." in host else host
