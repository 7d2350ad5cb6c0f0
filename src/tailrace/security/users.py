"""The users of a node: in memory for look-ups, in a `UserStore` for good.

A change is stored first and seen by everybody then; watchers are told the name of the user. Changes come one
after the other, and each is done to its end, also where its caller stopped waiting. A StorageError in the
middle of a change ends the broker: it is not known whether the change was stored.

Where others change the same store, `refresh` takes their changes over. While the store is away, the users
that are known stay; `suspend` ends that, and then no user may log in until `resume`.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.security.disabled import Disabled, DisabledStore, parse_principal
from tailrace.security.failure import UnknownUser
from tailrace.security.hashing import Hashing
from tailrace.security.password import check_password, check_user_name
from tailrace.security.secret import Secret
from tailrace.security.user import MemoryUsers, User, UserStore
from tailrace.security.verifier import (
    ITERATIONS,
    SALT_BYTES,
    Verifier,
    hash_bytes,
    make_verifiers,
)

USERS_MAX: Final = 100_000
_FAKE_KEY_BYTES: Final = 32

Changed = Callable[[str], None]
Plan = Callable[[User | None], User | None]


def _ignore(error: BaseException) -> None:
    """Whoever made the change has the error too."""


class Users(Mapping[str, User]):
    """Users by name, in the order of their names."""

    def __init__(
        self,
        store: UserStore | None = None,
        *,
        disabled: DisabledStore | None = None,
        hashing: Hashing | None = None,
        on_failure: Callable[[BaseException], None] = _ignore,
    ) -> None:
        self.hashing = hashing or Hashing()
        self._store = store or MemoryUsers()
        self._on_failure = on_failure
        self.disabled = Disabled(disabled, on_failure=on_failure)  # principals that are not users
        self._users: dict[str, User] = {}
        self._fake_key = secrets.token_bytes(_FAKE_KEY_BYTES)  # until the stored one is read
        self._changing = asyncio.Lock()
        self._changes: set[asyncio.Task[None]] = set()
        self._watchers: list[Changed] = []
        self._suspended: BrokerError | None = None

    def __repr__(self) -> str:
        return f"<Users: {len(self)}>"

    def __getitem__(self, name: str) -> User:
        return self._users[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._users))

    def __len__(self) -> int:
        return len(self._users)

    async def load(self) -> None:
        """Take over what is stored."""
        stored = await self._store.load()
        self._users = dict(stored.users)
        self._fake_key = stored.fake_key or self._fake_key
        await self.disabled.load()

    async def close(self) -> None:
        """Return when the changes under way have come to their end."""
        await asyncio.gather(*self._changes, return_exceptions=True)
        self.hashing.close()

    # ---- looking up

    def may_log_in(self, name: str) -> bool:
        """Whether a user exists and is not disabled, as far as that may still be believed."""
        found = self._users.get(name)
        return found is not None and found.enabled and self._suspended is None

    def verifier(self, name: str, mechanism: str) -> Verifier:
        """What proves the password of a user; of one that may not log in, a verifier that nothing proves.

        While users are suspended, the error that says so.

        The one of an unknown user is always the same, also after a restart: it must not give away that the
        user is not known.
        """
        if self._suspended is not None:
            raise self._suspended.with_traceback(None)
        found = self._users.get(name)
        stored = None if found is None else found.verifiers.get(mechanism)
        if found is not None and stored is not None:
            return stored if found.enabled else self._unprovable(name, mechanism, like=stored)
        return self._unprovable(name, mechanism)

    def watch(self, callback: Changed) -> None:
        """Have `callback` called with the name of every user that was changed or removed."""
        self._watchers.append(callback)

    def unwatch(self, callback: Changed) -> None:
        self._watchers.remove(callback)

    # ---- what others change

    async def refresh(self) -> None:
        """Take over what others have changed in the store since, and tell the watchers."""
        async with self._changing:
            await self._take_changes()

    def suspend(self, reason: BrokerError) -> None:
        """Let no user log in until `resume`, and have their connections ended. Logins get the reason."""
        if self._suspended is None:
            self._suspended = reason
            self._tell(list(self._users))

    def resume(self) -> None:
        if self._suspended is not None:
            self._suspended = None
            self._tell(list(self._users))

    # ---- changing

    async def create(self, name: str, password: Secret) -> None:
        """A new user; DUPLICATE_RESOURCE if there is one of this name."""
        check_user_name(name)
        check_password(password, user=name)
        made = await self.hashing.run(lambda: make_verifiers(password))

        def plan(found: User | None) -> User:
            if found is not None:
                raise BrokerError(
                    f"user {name!r} exists already. To change its password: tailrace user passwd {name}",
                    code=ErrorCode.DUPLICATE_RESOURCE,
                )
            return User(name=name, verifiers=made)

        await self._change(name, plan)

    async def set_password(self, name: str, password: Secret) -> None:
        """Another password, for every mechanism."""
        self.known(name)
        check_password(password, user=name)
        made = await self.hashing.run(lambda: make_verifiers(password))
        await self._change(name, lambda found: replace(_existing(name, found), verifiers=made))

    async def set_enabled(self, name: str, *, enabled: bool) -> None:
        """Whether a user may log in, or a principal such as `User:CN=alice` may come.

        The connections of one that may not are ended.
        """
        if (principal := parse_principal(name)) is not None:
            await self.disabled.set_enabled(principal, enabled=enabled)
            return
        await self._change(name, lambda found: replace(_existing(name, found), enabled=enabled))

    async def put_verifier(self, name: str, verifier: Verifier) -> None:
        """Let the user log in by a verifier that was made elsewhere; makes the user if there is none."""
        check_user_name(name)

        def plan(found: User | None) -> User:
            if found is None:
                return User(name=name, verifiers={verifier.mechanism: verifier})
            return replace(found, verifiers={**found.verifiers, verifier.mechanism: verifier})

        await self._change(name, plan)

    async def remove_verifier(self, name: str, mechanism: str) -> None:
        """Take a mechanism from the user, and the user with the last one; RESOURCE_NOT_FOUND."""

        def plan(found: User | None) -> User | None:
            existing = _existing(name, found)
            left = {each: value for each, value in existing.verifiers.items() if each != mechanism}
            if len(left) == len(existing.verifiers):
                raise BrokerError(
                    f"user {name!r} has no credentials for {mechanism}", code=ErrorCode.RESOURCE_NOT_FOUND
                )
            return replace(existing, verifiers=left) if left else None

        await self._change(name, plan)

    async def delete(self, name: str) -> None:
        """Forget the user, and end its connections."""

        def plan(found: User | None) -> None:
            _existing(name, found)

        await self._change(name, plan)

    def known(self, name: str) -> User:
        """The user; RESOURCE_NOT_FOUND."""
        return _existing(name, self._users.get(name))

    # ---- inside

    async def _change(self, name: str, plan: Plan) -> None:
        task = asyncio.get_running_loop().create_task(self._perform(name, plan), name="user-change")
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _perform(self, name: str, plan: Plan) -> None:
        async with self._changing:
            await self._take_changes()
            made = plan(self._users.get(name))
            if made is not None and name not in self._users and len(self._users) >= USERS_MAX:
                raise BrokerError(
                    f"there are {len(self._users)} users, and no more may be created. Delete those that are "
                    "not used",
                    code=ErrorCode.POLICY_VIOLATION,
                )
            try:
                if made is None:
                    await self._store.remove(name)
                else:
                    await self._store.save(made, fake_key=self._fake_key)
            except StorageError as error:
                self._on_failure(error)
                raise
            if made is None:
                self._users.pop(name, None)
            else:
                self._users[name] = made
        self._tell([name])

    async def _take_changes(self) -> None:
        """What `refresh` does, under the lock."""
        changed = await self._store.changes()
        for name, user in changed.items():
            if user is None:
                self._users.pop(name, None)
            else:
                self._users[name] = user
        self._tell(changed)

    def _tell(self, names: Iterable[str]) -> None:
        for name in names:
            for watcher in list(self._watchers):
                watcher(name)

    def _unprovable(self, name: str, mechanism: str, *, like: Verifier | None = None) -> Verifier:
        size = hash_bytes(mechanism)
        return Verifier(
            mechanism=mechanism,
            salt=self._fake("salt", name, mechanism)[:SALT_BYTES] if like is None else like.salt,
            iterations=ITERATIONS if like is None else like.iterations,
            stored_key=self._fake("stored", name, mechanism)[:size],
            server_key=self._fake("server", name, mechanism)[:size],
        )

    def _fake(self, what: str, name: str, mechanism: str) -> bytes:
        return hmac.digest(self._fake_key, "\0".join((what, mechanism, name)).encode(), "sha512")


def _existing(name: str, found: User | None) -> User:
    if found is None:
        raise UnknownUser(name)
    return found
