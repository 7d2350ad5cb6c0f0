"""Quotas: how much users, client ids and addresses may ask of the broker (KIP-13, KIP-124, KIP-219, KIP-612).

`entity`     for whom a quota is: a user, a client id, both, or an address; a name or the default
`quota`      what is bounded, and by which values
`bucket`     a pure token bucket
`meter`      what the requests of one client are charged to; `metering` finds it by Kafka's precedence
`quotas`     the quotas of a node: changed by requests, kept in a `QuotaStore`, effective at once

A listener asks for the meter of a request, charges it, and stops reading the connection for as long as the
meter says. Where no quota is set there is no metering, and a request costs one comparison with None.
"""

from tailrace.broker.quotas.entity import CLIENT_ID, IP, USER, Entity, make_entity
from tailrace.broker.quotas.metering import ConnectionRates, Metering
from tailrace.broker.quotas.quota import CONNECTIONS, FETCH, PRODUCE, REQUEST
from tailrace.broker.quotas.quotas import MemoryQuotas, Quotas, QuotaStore

__all__ = [
    "CLIENT_ID",
    "CONNECTIONS",
    "FETCH",
    "IP",
    "PRODUCE",
    "REQUEST",
    "USER",
    "ConnectionRates",
    "Entity",
    "MemoryQuotas",
    "Metering",
    "QuotaStore",
    "Quotas",
    "make_entity",
]
