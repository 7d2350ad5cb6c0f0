"""The native listener: native connections behind one acceptor, and clients that come by WebSocket."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.gate import Gate
from tailrace.model.address import Address
from tailrace.model.session import Session
from tailrace.native.config import NativeConfig
from tailrace.native.connection import Connection
from tailrace.native.service import NativeService
from tailrace.native.stream import StreamConnection
from tailrace.native.websocket import WebSocketConnection
from tailrace.native.websocket_transport import MessageSocket
from tailrace.net import AcceptorConfig, RequestBudget, RequestListener
from tailrace.net.logins import Logins
from tailrace.net.tls import ServerTls


class NativeListener(RequestListener[NativeService, Connection]):
    """Serves native clients on its addresses, and those that another listener hands over."""

    def __init__(
        self,
        gate: Gate,
        *,
        addresses: Sequence[Address] = (Address("127.0.0.1", 9999),),
        config: NativeConfig | None = None,
        budget: RequestBudget | None = None,
        name: str = "native",
        logins: Logins | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """`budget` is this listener's share of the node's; without one it is the only listener of a node."""
        config = config or NativeConfig()
        service = NativeService(gate, config, budget, name=name, logins=logins, tls=tls)
        super().__init__(
            service,
            AcceptorConfig(
                listener=name,
                port_flag="--native-port",
                socket_key="native.socket",
                addresses=addresses,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                idle_timeout_s=config.heartbeat_interval_ms / 1000,  # which has the sweeps come often enough
                close_grace_s=config.close_grace_s,
                tls=tls,
            ),
            lambda made, lost: StreamConnection(service, on_made=made, on_lost=lost),
        )

    def adopt(self, socket: MessageSocket, session: Session) -> WebSocketConnection:
        """The connection of a WebSocket that another listener has accepted, for the session that it knows."""
        acceptor = self._acceptor
        return WebSocketConnection(
            self.service, socket, session, on_made=acceptor.adopt, on_lost=acceptor.release
        )
