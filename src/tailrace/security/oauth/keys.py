"""The keys of an issuer, fetched and kept.

    no keys yet, or a kid that is not among them    fetch and wait, at most once a minute
    keys older than FRESH_S                         fetch beside, and go on with those that are there
    no fetch succeeded for KEPT_S                   the keys are not believed any more

So tokens are checked while the issuer is away, and a flood of unknown kids costs one fetch a minute. There is
one fetch at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from tailrace.model import escape
from tailrace.security.oauth.config import OauthConfig
from tailrace.security.oauth.fetch import CannotFetch, fetch
from tailrace.security.oauth.key_set import DOCUMENT_BYTES_MAX, KeySet, read_key_set

logger = logging.getLogger(__name__)

FRESH_S: Final = 3_600.0
KEPT_S: Final = 24 * 3_600.0
AGAIN_S: Final = 60.0
FETCH_S: Final = 5.0
_NEVER: Final = float("-inf")
_NO_KEYS: Final = KeySet(())

Load = Callable[[], Awaitable[bytes]]


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(
        self, config: OauthConfig, *, monotonic: Callable[[], float], load: Load | None = None
    ) -> None:
        self._config = config
        self._monotonic = monotonic
        self._load = load or (lambda: load_document(config))
        self._keys = _NO_KEYS
        self._loaded_at = _NEVER
        self._tried_at = _NEVER
        self._loading: asyncio.Task[None] | None = None
        self.generation = 0  # changes with the keys

    def __repr__(self) -> str:
        return f"<IssuerKeys of {self._config.issuer}, {len(self._keys.keys)}>"

    async def for_kid(self, kid: str | None) -> KeySet:
        """The keys that a token of this kid is checked by; empty if none can be believed."""
        keys = self._believed()
        if not keys.keys or not keys.has(kid):
            await self._load_once()
        elif self._monotonic() - self._loaded_at >= FRESH_S:
            self._start()
        return self._believed()

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    # ---- inside

    def _believed(self) -> KeySet:
        return self._keys if self._monotonic() - self._loaded_at < KEPT_S else _NO_KEYS

    async def _load_once(self) -> None:
        loading = self._start()
        if loading is not None:
            await asyncio.shield(loading)

    def _start(self) -> asyncio.Task[None] | None:
        """The fetch under way, or a new one if the last was long enough ago."""
        if self._loading is None and self._monotonic() - self._tried_at >= AGAIN_S:
            self._tried_at = self._monotonic()
            self._loading = asyncio.get_running_loop().create_task(self._replace(), name="oauth-keys")
        return self._loading

    async def _replace(self) -> None:
        try:
            found = read_key_set(await self._load())
        except (CannotFetch, ValueError) as error:
            logger.warning(
                "keys of an issuer not fetched: %s: %s", escape(self._config.issuer), escape(str(error))
            )
            return
        finally:
            self._loading = None
        if found.keys != self._keys.keys:
            self.generation += 1
        self._keys, self._loaded_at = found, self._monotonic()


async def load_document(config: OauthConfig) -> bytes:
    """The document with the keys; CannotFetch, or ValueError for a file that cannot be read."""
    parts = urlsplit(config.jwks)
    if parts.scheme == "file":
        return await asyncio.to_thread(read_document, config.jwks)
    status, body = await fetch(config.jwks, timeout_s=FETCH_S, bytes_max=DOCUMENT_BYTES_MAX, ca=config.ca)
    if status != 200:
        raise CannotFetch(f"{parts.hostname} answered with status {status}")
    return body


def read_document(url: str) -> bytes:
    """The document in a file, with one byte more than may be read."""
    path = unquote(urlsplit(url).path)
    try:
        with open(path, "rb") as file:
            return file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
