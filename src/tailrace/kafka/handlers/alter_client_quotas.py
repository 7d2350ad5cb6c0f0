"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546).

Each entity is answered by itself. One that is named twice gets an error and is not changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tailrace.broker.quotas import Entity, Quotas, make_entity
from tailrace.kafka.call import Call
from tailrace.kafka.errors import ANSWERABLE, error_of
from tailrace.kafka.resources import invalid_request, repeated
from tailrace.model.operation import Operation
from tailrace.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntityData,
    AlteredEntryData,
    EntityData,
    EntryData,
    OpData,
)

KEY = 49


async def handle(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    try:
        quotas = call.access.quotas(Operation.ALTER_CONFIGS)
    except ANSWERABLE as error:
        return AlterClientQuotasResponse(entries=[_answer(each, error) for each in request.entries])
    times = Counter(_names(each.entity) for each in request.entries)
    return AlterClientQuotasResponse(
        entries=[
            await _alter(quotas, each, times=times[_names(each.entity)], validate_only=request.validate_only)
            for each in request.entries
        ]
    )


async def _alter(quotas: Quotas, entry: EntryData, *, times: int, validate_only: bool) -> AlteredEntryData:
    try:
        if times > 1:
            raise invalid_request("an entity is changed once in a request")
        change = _entity(entry.entity), _changes(entry.ops)
        await quotas.alter([change], validate_only=validate_only)
    except ANSWERABLE as error:
        return _answer(entry, error)
    return _answer(entry)


def _names(entity: Sequence[EntityData]) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entity)


def _entity(entity: Sequence[EntityData]) -> Entity:
    if twice := repeated(each.entity_type for each in entity):
        raise invalid_request(f"entity type {twice.pop()[:20]!r} is named twice")
    return make_entity({each.entity_type: each.entity_name for each in entity})


def _changes(ops: Sequence[OpData]) -> dict[str, float | None]:
    if twice := repeated(each.key for each in ops):
        raise invalid_request(f"quota {twice.pop()[:40]!r} is named twice")
    return {each.key: None if each.remove else each.value for each in ops}


def _answer(entry: EntryData, error: Exception | None = None) -> AlteredEntryData:
    answer = AlteredEntryData(
        entity=[
            AlteredEntityData(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ]
    )
    if error is not None:
        answer.error_code, answer.error_message = error_of(error)
    return answer
