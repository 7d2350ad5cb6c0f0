"""The API tokens of a broker, running or not (`data_directory`)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from tailrace.cli.data_directory import Place, ask
from tailrace.cli.exit import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tailrace.cluster import Store
    from tailrace.model.scope import Scope
    from tailrace.security import ApiToken, Tokens

T = TypeVar("T")

_PATH: Final = "/api/v1/tokens"


@dataclass(frozen=True, slots=True)
class TokenAccess:
    """Tokens, wherever they are. CommandFailed says why something could not be done."""

    place: Place

    def list(self, owner: str) -> list[dict[str, Any]]:
        async def here(tokens: Tokens) -> list[dict[str, Any]]:
            return [_row(each) for each in (tokens.of(owner) if owner else tokens.values())]

        return self._change(lambda address: _listed(address, owner), here)

    def create(self, owner: str, *, scope: Scope, lifetime_ms: int, name: str) -> dict[str, Any]:
        async def here(tokens: Tokens) -> dict[str, Any]:
            if not owner:
                raise CommandFailed(
                    "a token belongs to a user. Name it with --owner NAME", exit_code=ExitCode.USAGE
                )
            made, text = await tokens.create(owner, scope=scope, lifetime_ms=lifetime_ms, label=name)
            return {"token": text.reveal(), **_row(made)}

        body = {"owner": owner, "scope": scope.texts(), "expires": f"{lifetime_ms}ms", "name": name}
        found: dict[str, Any] = self._change(lambda address: ask(address, "POST", _PATH, body), here)
        return found

    def revoke(self, token_id: str) -> None:
        path = f"{_PATH}/{quote(token_id, safe='')}"
        self._change(lambda address: ask(address, "DELETE", path), lambda tokens: tokens.revoke(token_id))

    def rotate_key(self, *, drop: bool) -> int:
        def on_broker(address: str) -> int:
            return int(ask(address, "POST", f"{_PATH}/rotate-key", {"drop": drop})["tokens"])

        return self._change(on_broker, lambda tokens: tokens.rotate_key(drop=drop))

    def _change(self, on_broker: Callable[[str], T], here: Callable[[Tokens], Coroutine[Any, Any, T]]) -> T:
        async def work(store: Store) -> T:
            from tailrace.cluster import MetadataTokens
            from tailrace.runtime import SystemClock
            from tailrace.security import Tokens

            async with self.place.users_in(store) as users:
                tokens = Tokens(users, MetadataTokens(store), now_ms=SystemClock().now_ms)
                try:
                    await tokens.load()
                    return await here(tokens)
                finally:
                    await tokens.close()

        return self.place.change(on_broker, work)


def _listed(address: str, owner: str) -> list[dict[str, Any]]:
    query = f"?owner={quote(owner, safe='')}" if owner else ""
    found: list[dict[str, Any]] = ask(address, "GET", _PATH + query)["tokens"]
    return found


def _row(token: ApiToken) -> dict[str, Any]:
    return {
        "id": token.id,
        "owner": token.owner,
        "name": token.label,
        "scope": token.scope.texts(),
        "created_ms": token.created_ms,
        "expires_ms": token.expires_ms,
        "used_ms": token.used_ms,
    }
