"""Keys that encrypt keys: where they come from, and how data keys are wrapped under them (ADR 0029)."""

from tailrace.security.keys.source import KeySource, create_key_file
from tailrace.security.keys.wrapping import KEY_BYTES, KeyEncryptionKey, UnwrapError

__all__ = ["KEY_BYTES", "KeyEncryptionKey", "KeySource", "UnwrapError", "create_key_file"]
