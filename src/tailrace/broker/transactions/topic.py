"""The internal topic of the transaction coordinator: its name and its settings."""

from __future__ import annotations

TRANSACTIONS_TOPIC = "__transaction_state"

TRANSACTIONS_CONFIGS = {"flush.messages": "1"}
"""Beside those of every internal topic: always synced, whatever the node's `fsync` is. A power cut would
otherwise take the decision about a transaction whose answer a client has seen."""
