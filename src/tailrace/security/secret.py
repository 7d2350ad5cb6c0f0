"""A text that must not be shown: passwords and keys, from the moment they are read.

A secret shows itself as `<secret>` wherever it is formatted, and refuses to be pickled. `reveal` is the one
way to its text, so that a search for that word finds every use.
"""

from __future__ import annotations

import hmac
from typing import Any, ClassVar, Final, NoReturn

SHOWN: Final = "<secret>"


class Secret:
    """A text that only `reveal` tells."""

    __slots__ = ("_text",)
    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return format(SHOWN, specification)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Secret:
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a secret cannot be pickled: hand over where it is read from instead")
