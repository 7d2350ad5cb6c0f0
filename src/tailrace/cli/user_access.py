"""The users of a broker, running or not (`data_directory`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from tailrace.cli.data_directory import Place, ask, run

if TYPE_CHECKING:
    from tailrace.cluster import Store
    from tailrace.security import Secret, Users

T = TypeVar("T")

_PATH: Final = "/api/v1/users"


@dataclass(frozen=True, slots=True)
class UserAccess:
    """Users, wherever they are. CommandFailed says why something could not be done."""

    place: Place

    def list(self) -> list[dict[str, Any]]:
        async def read(users: Users) -> list[dict[str, Any]]:
            return [
                {"name": name, "enabled": user.enabled, "mechanisms": sorted(user.verifiers)}
                for name, user in users.items()
            ] + [{"name": str(each), "enabled": False, "mechanisms": []} for each in users.disabled]

        return self._change(lambda address: _listed(address), read)

    def create(self, name: str, password: Secret) -> None:
        body = {"name": name, "password": password.reveal()}
        self._change(
            lambda address: ask(address, "POST", _PATH, body), lambda users: users.create(name, password)
        )

    def set_password(self, name: str, password: Secret) -> None:
        body = {"password": password.reveal()}
        self._change(
            lambda address: ask(address, "PATCH", _path(name), body),
            lambda users: users.set_password(name, password),
        )

    def set_enabled(self, name: str, *, enabled: bool) -> None:
        from tailrace.security import parse_principal

        self._change(
            lambda address: ask(address, "PATCH", _path(name), {"enabled": enabled}),
            lambda users: users.set_enabled(name, enabled=enabled),
            in_directory=parse_principal(name) is not None,
        )

    def delete(self, name: str) -> None:
        self._change(lambda address: ask(address, "DELETE", _path(name)), lambda users: users.delete(name))

    def _change(
        self,
        on_broker: Callable[[str], T],
        here: Callable[[Users], Coroutine[Any, Any, T]],
        *,
        in_directory: bool = False,
    ) -> T:
        """With `in_directory` it is about what the broker's directory has, wherever users are."""

        async def work(store: Store | None = None) -> T:
            async with self.place.users_in(store) as users:
                return await here(users)

        if self.place.users_dsn is not None and not in_directory:  # where brokers that run see every change
            return run(work())
        return self.place.change(on_broker, work)


def _listed(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(address, "GET", _PATH)["users"]
    return found


def _path(name: str) -> str:
    return f"{_PATH}/{quote(name, safe='')}"
