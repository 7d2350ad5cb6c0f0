"""Encryption of messages from the client that writes them to the client that reads them.

`encryption`  the settings that a client is handed; `key_ring`: the keys in it
`envelope`    the headers of an encrypted record, what its tag covers, how data keys are derived
`sealing`     a session of a writer: its data key and its counter
`opening`     a reader: its derived keys, what it refuses and counts
`origin`      which topic a record may have been written to

Why a record is refused is in `security.decryption`. Brokers know nothing of all this: an encrypted record is
a record. Key, other headers, order and repetition are not protected (ADR 0030). Nothing here waits, or does
I/O but for reading key files.
"""

from tailrace.security.messages.encryption import Encryption, OnFailure, Policy, parse_keys
from tailrace.security.messages.key_ring import KeyRing
from tailrace.security.messages.opening import Opener, ReadCounts
from tailrace.security.messages.sealing import Sealer

__all__ = [
    "Encryption",
    "KeyRing",
    "OnFailure",
    "Opener",
    "Policy",
    "ReadCounts",
    "Sealer",
    "parse_keys",
]
