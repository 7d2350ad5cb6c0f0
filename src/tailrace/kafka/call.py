"""What a handler is given beside the request: what the client may use, and where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.broker.cluster_view import Node
from tailrace.broker.gate import Access
from tailrace.kafka.cache import ReplyCache
from tailrace.kafka.config import AUTO, split_address
from tailrace.net import ConnectionFacts

if TYPE_CHECKING:
    from tailrace.kafka.authentication import Authentication


class Call:
    """One request's surroundings."""

    __slots__ = ("_advertised", "access", "client_id", "connection", "login", "replies", "version")

    def __init__(
        self,
        access: Access,
        *,
        version: int,
        client_id: str | None,
        connection: ConnectionFacts,
        advertised: str = AUTO,
        replies: ReplyCache | None = None,
        login: Authentication | None = None,
    ) -> None:
        self.access = access
        self.version = version
        self.client_id = client_id
        self.login = login  # None: the listener asks nobody who it is
        self.connection = connection
        self.replies = ReplyCache() if replies is None else replies  # encoded ones, kept by the listener
        self._advertised = advertised

    def advertised(self, node: Node) -> tuple[str, int]:
        """Where this client finds a node: its own address, or what this listener is set to say of itself.

        "auto" is the address that the client is connected to: it reaches that one, whatever names and
        networks lie between.
        """
        if node.host:
            return node.host, node.port
        if self._advertised != AUTO:
            return split_address(self._advertised)
        return self.connection.local_host, self.connection.local_port
