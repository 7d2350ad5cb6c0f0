"""Older names of fields. For one release answers have them beside the new ones, and requests take both.

    members: Annotated[int, older_name_of("member_count")]

/openapi.json marks such a field as deprecated. The table of names in docs/api-reference.md lists all of them.
"""

from __future__ import annotations

import msgspec


def older_name_of(name: str) -> msgspec.Meta:
    """What is said of a field whose name is `name` by now."""
    return msgspec.Meta(description=f"older name of {name}", extra_json_schema={"deprecated": True})
