"""The numbers by which Kafka calls the SCRAM mechanisms (KIP-554)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.model import BrokerError, ErrorCode
from tailrace.security import SCRAM_SHA_256, SCRAM_SHA_512

NUMBERS: Final[Mapping[str, int]] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
_NAMES: Final = {number: name for name, number in NUMBERS.items()}


def mechanism_of(number: int) -> str:
    """The name; UNSUPPORTED_SASL_MECHANISM for a number that there is not."""
    found = _NAMES.get(number)
    if found is None:
        raise BrokerError(
            f"SCRAM mechanism {number} is unknown: 1 is SHA-256, 2 is SHA-512",
            code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        )
    return found
