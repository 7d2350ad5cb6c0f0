"""SaslHandshake (API 17), versions 0-1.

Names the mechanism of the login that follows (KIP-43). From version 1 on its messages travel in
SaslAuthenticate requests (KIP-152), before that as bare frames.
"""

from __future__ import annotations

from tailrace.wire.kafka.schema import Int16, Message


class SaslHandshakeRequest(Message):
    mechanism: str = ""


class SaslHandshakeResponse(Message):
    error_code: Int16 = 0
    mechanisms: list[str] = []
