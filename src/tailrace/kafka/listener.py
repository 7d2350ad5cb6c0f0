"""The Kafka listener: Kafka's connections behind one acceptor."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.gate import Gate
from tailrace.kafka.config import KafkaConfig
from tailrace.kafka.connection import Connection
from tailrace.kafka.service import KafkaService
from tailrace.model.address import Address
from tailrace.net import AcceptorConfig, RequestBudget, RequestListener
from tailrace.net.logins import Logins
from tailrace.net.tls import ServerTls


class KafkaListener(RequestListener[KafkaService, Connection]):
    """Serves Kafka clients on its addresses."""

    def __init__(
        self,
        gate: Gate,
        *,
        addresses: Sequence[Address] = (Address("127.0.0.1", 9092),),
        config: KafkaConfig | None = None,
        budget: RequestBudget | None = None,
        name: str = "kafka",
        logins: Logins | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        """`budget` is this listener's share of the node's; without one it is the only listener of a node."""
        config = config or KafkaConfig()
        service = KafkaService(gate, config, budget, name=name, logins=logins, tls=tls)
        super().__init__(
            service,
            AcceptorConfig(
                listener=name,
                port_flag="--kafka-port",
                addresses=addresses,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                idle_timeout_s=config.idle_timeout_s,
                close_grace_s=config.close_grace_s,
                tls=tls,
            ),
            lambda made, lost: Connection(service, on_made=made, on_lost=lost),
        )
