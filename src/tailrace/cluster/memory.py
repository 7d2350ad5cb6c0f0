"""A store that lives as long as its process: for the memory engine, for embedded brokers and for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tailrace.cluster.store import ABSENT, Entry, Rows


class MemoryStore:
    """Keys in a dictionary."""

    def __init__(self) -> None:
        self._revision = 0
        self._entries: dict[str, Entry] = {}

    def __repr__(self) -> str:
        return f"<MemoryStore with {len(self._entries)} keys at revision {self._revision}>"

    async def read(self, prefix: str = "") -> Rows:
        found = {key: entry for key, entry in sorted(self._entries.items()) if key.startswith(prefix)}
        return Rows(revision=self._revision, entries=found)

    async def commit(
        self, *, checks: Mapping[str, int], puts: Mapping[str, str], deletes: Collection[str] = ()
    ) -> int | None:
        absent = Entry("", ABSENT)
        if any(self._entries.get(key, absent).version != version for key, version in checks.items()):
            return None
        self._revision += 1
        for key in deletes:
            self._entries.pop(key, None)
        for key, value in puts.items():
            self._entries[key] = Entry(value, self._revision)
        return self._revision

    async def close(self) -> None:
        """The keys stay: a broker that is started again over the same store finds them."""
