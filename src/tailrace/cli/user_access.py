"""Users, wherever `tailrace user` finds them (`place`): over HTTP, or in a data directory.

CommandFailed says why something could not be done.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tailrace.cli.place import Place, call_rest

if TYPE_CHECKING:
    from tailrace.cluster import Store
    from tailrace.security import Secret, Users

_PATH: Final = "/api/v1/users"

Work = Callable[["Users"], Coroutine[Any, Any, Any]]


class UserAccess:
    """The users of one place."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def list(self) -> list[dict[str, Any]]:
        async def read(users: Users) -> Any:
            found = [
                {"name": name, "enabled": user.enabled, "mechanisms": sorted(user.verifiers)}
                for name, user in users.items()
            ]
            return {"users": found}

        found: list[dict[str, Any]] = self._use("GET", _PATH, None, read)["users"]
        return found

    def create(self, name: str, password: Secret) -> None:
        body = {"name": name, "password": password.reveal()}
        self._use("POST", _PATH, body, lambda users: users.create(name, password))

    def set_password(self, name: str, password: Secret) -> None:
        body = {"password": password.reveal()}
        self._use("PATCH", _path(name), body, lambda users: users.set_password(name, password))

    def set_enabled(self, name: str, *, enabled: bool) -> None:
        body = {"enabled": enabled}
        self._use("PATCH", _path(name), body, lambda users: users.set_enabled(name, enabled=enabled))

    def delete(self, name: str) -> None:
        self._use("DELETE", _path(name), None, lambda users: users.delete(name))

    def _use(self, method: str, path: str, body: object, work: Work) -> Any:
        async def here(store: Store) -> Any:
            from tailrace.cluster import MetadataUsers
            from tailrace.security import Users

            users = Users(MetadataUsers(store))
            try:
                await users.load()
                return await work(users)
            finally:
                await users.close()

        return self._place.use(lambda address: call_rest(address, method, path, body), here)


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"
