"""Chooses between the compiled and the pure twin of the functions that touch every row, once, at import.

As in tailrace.records: the pure one is always there, and TAILRACE_PURE=1 in the environment asks for it.
"""

from __future__ import annotations

import os

try:
    if os.environ.get("TAILRACE_PURE") == "1":
        raise ImportError("TAILRACE_PURE=1 asks for the pure twin")
    from tailrace.spark.codec._compiled import hash_keys, read_columns, write_payloads

    ACCELERATED = True
except ImportError:
    from tailrace.spark.codec._pure import hash_keys, read_columns, write_payloads

    ACCELERATED = False

__all__ = ["ACCELERATED", "hash_keys", "read_columns", "write_payloads"]
