"""FindCoordinator (API 10), versions 0-3.

The broker that coordinates a group (key type 0) or a transactional producer (1).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class FindCoordinatorRequest(Message):
    key: str = ""
    key_type: Annotated[Int8, "1+"] = 0


class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, "1-3"] = None
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
