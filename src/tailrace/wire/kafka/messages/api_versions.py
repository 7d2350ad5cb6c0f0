"""ApiVersions (API 18), versions 0-4.

What a client may ask for; the first request of most connections. The features are tagged fields (KIP-584).
"""

from __future__ import annotations

from typing import Annotated

from tailrace.wire.kafka.schema import Int16, Int32, Int64, Message


class ApiVersionsRequest(Message):
    client_software_name: Annotated[str, "3+"] = ""
    client_software_version: Annotated[str, "3+"] = ""


class ApiVersionsResponse(Message):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, "1+"] = 0
    supported_features: Annotated[list[SupportedFeatureKey], "3+ tag 0"] = []
    finalized_features_epoch: Annotated[Int64, "3+ tag 1"] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], "3+ tag 2"] = []
    zk_migration_ready: Annotated[bool, "3+ tag 3"] = False


class ApiVersion(Message):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Message):
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Message):
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0
