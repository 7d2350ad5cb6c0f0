"""Heartbeat (API 12), versions 0-4.

A member shows that it is alive, and learns that its group rebalances.
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Message


class HeartbeatRequest(Message):
    group_id: str = ""
    generation_id: Int32 = 0
    member_id: str = ""
    group_instance_id: Annotated[str | None, "3+"] = None


class HeartbeatResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Int16 = 0
