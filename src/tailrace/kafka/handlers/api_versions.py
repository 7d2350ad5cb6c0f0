"""ApiVersions: what may be asked of this broker, and in which versions.

v3  flexible, and the client says what it is; the answer's header never is flexible (KIP-511)
v4  as v3; features may begin at version 0

A version that is not served is answered in the format of v0, with error 35 and the range of this API, and the
connection goes on: that is how a newer client finds the version to speak.

One feature is finalized: transaction.version 2, which tells clients that Produce 12, EndTxn 5 and
TxnOffsetCommit 5 work together (KIP-890 part 2). The feature begins at version 0, which clients of v3 do not
take for a version: they are told that it is finalized, and not which versions are supported.

tailrace.2pc 1 is ours: InitProducerId 6 is served, with two-phase commit (KIP-939), though its version is not
advertised. A transaction with it has no timeout, and is not aborted by an InitProducerId that does not name
it.
"""

from __future__ import annotations

import re
from functools import cache

from tailrace.kafka.call import Call
from tailrace.kafka.dispatch import served_apis
from tailrace.kafka.transactions import EPOCH_PER_TRANSACTION
from tailrace.model import ErrorCode
from tailrace.wire.kafka import APIS, decode, encode
from tailrace.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

KEY = 18

_TRANSACTIONS = "transaction.version"
TWO_PHASE_COMMIT = "tailrace.2pc"
_TWO_PHASE_COMMIT_LEVEL = 1

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

_SUPPORTED = [
    SupportedFeatureKey(_TRANSACTIONS, 0, EPOCH_PER_TRANSACTION),
    SupportedFeatureKey(TWO_PHASE_COMMIT, _TWO_PHASE_COMMIT_LEVEL, _TWO_PHASE_COMMIT_LEVEL),
]
_FINALIZED = [
    FinalizedFeatureKey(_TRANSACTIONS, EPOCH_PER_TRANSACTION, EPOCH_PER_TRANSACTION),
    FinalizedFeatureKey(TWO_PHASE_COMMIT, _TWO_PHASE_COMMIT_LEVEL, _TWO_PHASE_COMMIT_LEVEL),
]


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
    keys = [ApiVersion(api.key, api.advertised_min, api.advertised_max) for api in served_apis()]
    response = ApiVersionsResponse(
        api_keys=keys,
        supported_features=_SUPPORTED if version >= 4 else [],
        finalized_features_epoch=0,
        finalized_features=_FINALIZED,
    )
    return encode(response, version)


@cache
def _refuse(version: int, code: ErrorCode) -> bytes:
    api = APIS[KEY]
    known = [ApiVersion(KEY, api.advertised_min, api.advertised_max)]
    return encode(ApiVersionsResponse(error_code=code, api_keys=known), version)
