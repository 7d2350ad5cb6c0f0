"""/api/v1/quotas: how much users, client ids and addresses may ask of the broker."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tailrace.broker.quotas import Entity, make_entity
from tailrace.http.error import Code
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.model.operation import Operation as AclOperation


class QuotaView(msgspec.Struct, frozen=True):
    """The quotas of one entity."""

    entity: dict[str, str | None]  # by type: user, client-id, ip; null is the default of all that have none
    values: dict[
        str, float
    ]  # producer_byte_rate, consumer_byte_rate, request_percentage, connection_creation_rate


class QuotaList(msgspec.Struct, frozen=True):
    """All quotas."""

    quotas: list[QuotaView]


class QuotaChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be changed of an entity's quotas; null takes one away, and what is left out stays."""

    entity: dict[str, str | None]
    values: dict[str, float | None]


async def list_quotas(call: Call[NoQuery, NoBody]) -> QuotaList:
    quotas = call.access.quotas(AclOperation.DESCRIBE_CONFIGS)
    return QuotaList([_view(each, values) for each, values in quotas.items()])


async def change_quota(call: Call[NoQuery, QuotaChange]) -> QuotaView:
    quotas = call.access.quotas(AclOperation.ALTER_CONFIGS)
    entity = make_entity(call.body.entity)
    await quotas.alter([(entity, call.body.values)])
    return _view(entity, quotas.get(entity, {}))


def _view(entity: Entity, values: Mapping[str, float]) -> QuotaView:
    return QuotaView(entity=entity.names(), values=dict(values))


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/quotas",
        name="listQuotas",
        tag="quotas",
        summary="All quotas",
        doc="Needs DescribeConfigs on the cluster.",
        handler=list_quotas,
        answer=QuotaList,
        fails=(Code.AUTHORIZATION_FAILED,),
    ),
    Operation(
        method="PATCH",
        path="/api/v1/quotas",
        name="changeQuota",
        tag="quotas",
        summary="Set and remove quotas of a user, a client id, both, or an address",
        doc="Effective at once, also on open connections. Needs AlterConfigs on the cluster.",
        handler=change_quota,
        body=QuotaChange,
        answer=QuotaView,
        fails=(Code.AUTHORIZATION_FAILED,),
    ),
)
