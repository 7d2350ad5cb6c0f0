"""The native listener: native connections behind one acceptor, and clients that come by WebSocket."""

from __future__ import annotations

from tailrace.broker.gate import Gate
from tailrace.model.session import Session
from tailrace.native.config import NativeConfig
from tailrace.native.connection import Connection
from tailrace.native.service import NativeService
from tailrace.native.websocket import MessageSocket, WebSocketShell
from tailrace.net import AcceptorConfig, RequestBudget, RequestListener


class NativeListener(RequestListener[NativeService, Connection]):
    """Serves native clients on one address."""

    def __init__(
        self,
        gate: Gate,
        *,
        host: str = "127.0.0.1",
        port: int = 9999,
        config: NativeConfig | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        """`budget` is this listener's share of the node's; without one it is the only listener of a node."""
        config = config or NativeConfig()
        service = NativeService(gate, config, budget)
        super().__init__(
            service,
            AcceptorConfig(
                listener="native",
                port_flag="--native-port",
                host=host,
                port=port,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                idle_timeout_s=config.heartbeat_interval_ms / 1000,  # which has the sweeps come often enough
                close_grace_s=config.close_grace_s,
            ),
            lambda made, lost: Connection(service, on_made=made, on_lost=lost),
        )

    def shell(self, socket: MessageSocket, session: Session) -> WebSocketShell:
        """A shell for a WebSocket that another listener has accepted, for the session that it knows."""
        return WebSocketShell(self.service, socket, session)
