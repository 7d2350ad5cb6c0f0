"""Chooses between the compiled and the pure twin of the hot record functions, once, at import.

The pure one is always there. TAILRACE_PURE=1 in the environment asks for it where both exist, which is how
the tests and the benchmark see the two side by side.
"""

from __future__ import annotations

import os

from tailrace.records import _pure

try:
    if os.environ.get("TAILRACE_PURE") == "1":
        raise ImportError("TAILRACE_PURE=1 asks for the pure twin")
    from tailrace.records import _compiled
    from tailrace.records._compiled import (
        decode_records,
        encode_kept,
        encode_records,
        read_varint,
        read_varlong,
        write_varint,
    )

    ACCELERATED = True
except ImportError:
    from tailrace.records._pure import (
        decode_records,
        encode_kept,
        encode_records,
        read_varint,
        read_varlong,
        write_varint,
    )

    ACCELERATED = False

if ACCELERATED and _compiled.CHECKS_SPANS:
    check_spans = _compiled.check_spans
else:
    check_spans = _pure.check_spans

__all__ = [
    "ACCELERATED",
    "check_spans",
    "decode_records",
    "encode_kept",
    "encode_records",
    "read_varint",
    "read_varlong",
    "write_varint",
]
