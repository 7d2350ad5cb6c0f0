"""What is said of a key or a value that is no bytes, with the call that makes bytes of it."""

from __future__ import annotations

_DATA = (dict, list, tuple, bool, int, float)


def wrong_payload(name: str, value: object, *, takes_text: bool) -> TypeError:
    """The error for a payload of a type that has no one encoding. Numbers too: bytes(5) is five zeros."""
    wanted = "bytes, text or None" if takes_text else "bytes or None"
    encode = "" if takes_text else ".encode()"
    if isinstance(value, str):
        way_out = f"Try: {name}{encode}"
    elif isinstance(value, _DATA):
        way_out = f"Try: json.dumps({name}){encode}"
    else:
        way_out = "Encode it first"
    return TypeError(f"{name} must be {wanted}, not {type(value).__name__}. {way_out}")
