"""ApiVersions: what may be asked of this broker, and in which versions.

v3  flexible, and the client says what it is; the answer's header never is flexible (KIP-511)
v4  as v3; features may begin at version 0

A version that is not served is answered in the format of v0, with error 35 and the range of this API, and the
connection goes on: that is how a newer client finds the version to speak. There are no features to finalise.
"""

from __future__ import annotations

import re
from functools import cache

from tailrace.kafka.call import Call
from tailrace.kafka.dispatch import served_apis
from tailrace.model import ErrorCode
from tailrace.wire.kafka import APIS, decode, encode
from tailrace.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

KEY = 18

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def answer(call: Call, body: memoryview) -> bytes:
    """The body of the response, which is the same for everybody."""
    version = call.version
    if not APIS[KEY].serves(version):
        return _refuse(0, ErrorCode.UNSUPPORTED_VERSION)
    request = decode(ApiVersionsRequest, version, body)
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return _refuse(version, ErrorCode.INVALID_REQUEST)
    return _all(version)


@cache
def _all(version: int) -> bytes:
    keys = [ApiVersion(api.key, api.advertised_min, api.max_version) for api in served_apis()]
    return encode(ApiVersionsResponse(api_keys=keys), version)


@cache
def _refuse(version: int, code: ErrorCode) -> bytes:
    api = APIS[KEY]
    known = [ApiVersion(KEY, api.advertised_min, api.max_version)]
    return encode(ApiVersionsResponse(error_code=code, api_keys=known), version)
