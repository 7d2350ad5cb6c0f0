"""FindCoordinator (API 10), versions 0-6.

The broker that coordinates a group (key type 0) or a transactional producer (1); from version 4 on for
several keys at once (KIP-699), from 6 on also for share groups (2).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int8, Int16, Int32, Message


class FindCoordinatorRequest(Message):
    key: Annotated[str, "0-3"] = ""
    key_type: Annotated[Int8, "1+"] = 0
    coordinator_keys: Annotated[list[str], "4+"] = []


class FindCoordinatorResponse(Message):
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    error_code: Annotated[Int16, "0-3"] = 0
    error_message: Annotated[str | None, "1-3"] = None
    node_id: Annotated[Int32, "0-3"] = 0
    host: Annotated[str, "0-3"] = ""
    port: Annotated[Int32, "0-3"] = 0
    coordinators: Annotated[list[Coordinator], "4+"] = []


class Coordinator(Message):
    key: str = ""
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
