"""What a connected client consists of, and the settings that all of it shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.client.credentials import AnyCredentials
from tailrace.client.native.catalog import Catalog
from tailrace.client.native.delayed import DelayedPublisher
from tailrace.client.native.link import Link
from tailrace.client.native.opening import Opening
from tailrace.client.native.publisher import Publisher
from tailrace.client.native.reconnect import Reconnect
from tailrace.client.native.settlement import Settlements
from tailrace.client.native.status import Status
from tailrace.client.native.subscriptions import Notice, Subscriptions
from tailrace.client.sealed import begin_opening, begin_sealing
from tailrace.client.tls import ClientTls
from tailrace.model import ConfigError
from tailrace.model.address import Address

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of a client; every limit is above 0."""

    address: Address
    client_id: str
    reconnect: Reconnect | None
    connect_timeout_s: float | None  # None: one attempt
    request_timeout_s: float
    publish_timeout_s: float
    heartbeat_interval_s: float
    in_flight_max: int
    in_flight_bytes_max: int
    on_status: Callable[[Status], None] | None = None
    on_notice: Callable[[Notice], None] | None = None
    credentials: AnyCredentials | None = None
    tls: ClientTls | None = None
    encryption: Encryption | None = None

    def __post_init__(self) -> None:
        for name in (
            "connect_timeout_s",
            "request_timeout_s",
            "publish_timeout_s",
            "heartbeat_interval_s",
            "in_flight_max",
            "in_flight_bytes_max",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} = {value} must be above 0")


class Parts:
    """A client from connect to disconnect."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self.sealer = begin_sealing(config.encryption)
        self.link = Link(
            config.address,
            client_id=config.client_id,
            policy=config.reconnect,
            connect_timeout_s=config.connect_timeout_s,
            request_timeout_s=config.request_timeout_s,
            heartbeat_interval_s=config.heartbeat_interval_s,
            on_status=config.on_status,
            credentials=config.credentials,
            tls=config.tls,
        )
        self.catalog = Catalog(self.link)
        self.settlements = Settlements(timeout_s=config.request_timeout_s)
        opener = begin_opening(config.encryption)
        self.opening = None if opener is None else Opening(opener, self.settlements)
        self.subscriptions = Subscriptions(self.link, self.settlements, on_notice=config.on_notice)
        self.publisher = Publisher(
            self.link,
            messages_max=config.in_flight_max,
            bytes_max=config.in_flight_bytes_max,
            timeout_s=config.publish_timeout_s,
        )
        self.delayed = DelayedPublisher(self.link)
        # Memberships first: what was acknowledged too late for the old connection needs them.
        self.link.listeners = (self.subscriptions, self.settlements, self.publisher, self.catalog)
        self.link.on_delivery = self.subscriptions.delivered
        self.link.on_notice = self.subscriptions.noticed
        self.link.on_writable = self.publisher.writable

    async def close(self) -> None:
        """Leave all subscriptions, wait for what is unanswered if it can be answered, and close."""
        timeout_s = self.config.request_timeout_s
        try:
            await self.subscriptions.leave_all()
            if self.link.status is Status.CONNECTED:
                # An answer that never comes, as the connection is lost now, must not hold us either.
                await asyncio.gather(self.settlements.drain(timeout_s), self.publisher.drain(timeout_s))
        finally:
            await self.link.close()
            await self.publisher.close()
            await self.catalog.close()
