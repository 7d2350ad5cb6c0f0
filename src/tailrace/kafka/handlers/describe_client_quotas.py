"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546).

An entity is found if it has every component that is asked for, with the name, as the default, or with any
name. Where `strict` is set it has no others. A type that is asked for twice is refused, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailrace.broker.quotas import Entity
from tailrace.broker.quotas.entity import check_types
from tailrace.kafka.call import Call
from tailrace.kafka.resources import invalid_request, repeated
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

KEY = 48

_EXACT, _DEFAULT, _ANY = 0, 1, 2


def handle(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    quotas = call.access.quotas(Operation.DESCRIBE_CONFIGS)
    _check(request.components)
    found = [each for each in quotas if _matches(each, request.components, strict=request.strict)]
    return DescribeClientQuotasResponse(
        entries=[EntryData(entity=list(_entity(each)), values=_values(quotas[each])) for each in found]
    )


def _check(components: Sequence[ComponentData]) -> None:
    check_types([each.entity_type for each in components])
    if twice := repeated(each.entity_type for each in components):
        raise invalid_request(f"entity type {twice.pop()!r} is asked for twice")
    for each in components:
        if each.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise invalid_request(f"there is no match type {each.match_type}. There are 0, 1 and 2")
        if (each.match is None) is (each.match_type == _EXACT):
            raise invalid_request("match type 0 has a name to match, and the others have none")


def _matches(entity: Entity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    names = entity.names()
    if strict and len(names) > len(components):
        return False
    for each in components:
        if each.entity_type not in names:
            return False
        if each.match_type != _ANY and names[each.entity_type] != each.match:
            return False
    return True


def _entity(entity: Entity) -> Iterator[EntityData]:
    return (EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts)


def _values(values: object) -> list[ValueData]:
    assert isinstance(values, dict)
    return [ValueData(key=name, value=float(value)) for name, value in values.items()]
