"""How a data directory is encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.security.keys import KeyEncryptionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Encryption:
    """The key-encryption keys: the first one wraps, the others may still have wrapped what is there."""

    keys: tuple[KeyEncryptionKey, ...]
    enabled: bool = True  # False: what is written from now on is plain, and what was encrypted stays readable
