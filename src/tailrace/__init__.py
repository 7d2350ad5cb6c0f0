"""Tailrace: a message broker in Python that speaks the Kafka wire protocol.

The packages, from the ground up: `model` (names and errors), `runtime` (clock, disk, tasks), `records` (the
record batch), `storage` (the log and its engines). ARCHITECTURE.md follows a byte through them.
"""

__version__ = "0.1.0"
