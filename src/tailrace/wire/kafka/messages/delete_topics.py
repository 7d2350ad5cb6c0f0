"""DeleteTopics (API 20), versions 1-6.

Topics to delete: by name up to version 5, then by name or topic id.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from tailrace.wire.kafka.schema import ZERO_UUID, Int16, Int32, Message


class DeleteTopicsRequest(Message):
    topics: Annotated[list[DeleteTopicState], "6+"] = []
    topic_names: Annotated[list[str], "0-5"] = []
    timeout_ms: Int32 = 0


class DeleteTopicState(Message):
    name: str | None = None
    topic_id: UUID = ZERO_UUID


class DeleteTopicsResponse(Message):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []


class DeletableTopicResult(Message):
    name: Annotated[str | None, "null 6+"] = None
    topic_id: Annotated[UUID, "6+"] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, "5+"] = None
