"""Why an encrypted message is not handed out. Apart from `messages`, which imports a library of ciphers."""

from __future__ import annotations

import enum

from tailrace.model import TailraceError


class Failure(enum.StrEnum):
    """What is wrong with a record, as counters name it."""

    PLAIN = "plain"
    """It is not encrypted, and the policy requires that."""
    MALFORMED = "malformed"
    """Its headers are not those of an encrypted record."""
    UNKNOWN_KEY = "unknown-key"
    """It names a key that this client was not given."""
    ORIGIN = "origin"
    """It was written to another topic, and nothing says how it came here."""
    UNVERIFIED = "unverified"
    """Value, key, origin or header were changed, or the key of this id is another one."""


class DecryptionFailed(TailraceError):
    """A record is not what a holder of its key wrote to this topic; `failure` says what is wrong."""

    def __init__(self, message: str, *, failure: Failure) -> None:
        super().__init__(message)
        self.failure = failure

    def at(self, place: str, *, advice: str = "") -> DecryptionFailed:
        """The same with the record's place in front, and the way out behind."""
        text = f"{place} is not handed out: {self}"
        return DecryptionFailed(f"{text}. {advice}" if advice else text, failure=self.failure)
