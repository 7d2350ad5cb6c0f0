"""The console's files: the page under every address that the console has, and what it loads.

    /, /topics/orders/messages?offset=5, ...    the page: asked for each time, 304 if it is the same
    /assets/<build>/app.js                      kept by browsers for ever

`<build>` is a digest of all files together. Modules import each other by relative paths, so they stay within
one build: a browser never mixes files of two versions, and nothing has to be rewritten. Everything is read
and compressed once, when the app is made; a request touches no disk.

An app that is mounted somewhere tells the page its prefix (`data-root`), and all links start with it. That
page is written anew each time, since who mounts may do so under any number of prefixes; it is small.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tailrace.http.app import OneMethod, error_response
from tailrace.http.error import Code, HttpError

_DIRECTORY: Final = Path(__file__).parent / "console"
_PAGE: Final = "index.html"
_LOGIN_PAGE: Final = "login.html"
_BUILD_DIGITS: Final = 16
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "no-cache"

# A file of another kind is not served: licenses and notes may lie beside the code.
_MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The console's pages. `/metrics` is Prometheus's, so the page with the charts has another name.
PAGES: Final = (
    "topics",
    "groups",
    "subscriptions",
    "transactions",
    "pipelines",
    "charts",
    "cluster",
)

LATER: Final = frozenset({"pipelines.js", "transactions.js"})
"""Modules of pages that a browser loads when they are opened, and not with the first page."""


LOGIN_ALONE: Final = frozenset({"login.css", "login.js"})
"""What the login page loads and no other page does."""
OF_LOGIN: Final = LOGIN_ALONE | {"console.css", "icon.svg", "theme.js"}
"""All that the login page loads: served to browsers that have not logged in, and nothing else is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleFile:
    """A file as it is sent, plain and compressed."""

    plain: bytes
    packed: bytes
    etag: str
    media_type: str

    @classmethod
    def of(cls, data: bytes, media_type: str) -> ConsoleFile:
        return cls(
            plain=data,
            packed=gzip.compress(data, compresslevel=9, mtime=0),
            etag=f'"{hashlib.sha256(data).hexdigest()[:32]}"',
            media_type=media_type,
        )


class Console:
    """All files of one build."""

    def __init__(self, directory: Path = _DIRECTORY) -> None:
        found = dict(_read_files(directory))
        self.build = _digest(found)
        self._template = found.pop(_PAGE).decode()
        self._login_template = found.pop(_LOGIN_PAGE).decode()
        self.assets = {
            name: ConsoleFile.of(data, _MEDIA_TYPES[Path(name).suffix]) for name, data in found.items()
        }
        self._page = self._write_page("")

    def __repr__(self) -> str:
        return f"<Console {self.build}, {len(self.assets)} files>"

    def page(self, root: str) -> ConsoleFile:
        """The page of an app that is mounted at `root`; "" is nowhere in particular."""
        return self._page if root == "" else self._write_page(root)

    def missing_page(self, request: Request) -> Response:
        """The page under an address that it does not have, which it says itself."""
        headers = {"cache-control": _ASK_AGAIN}
        file = self.page(request.scope.get("root_path", ""))
        return Response(file.plain, status_code=404, media_type=file.media_type, headers=headers)

    def login_page(self, *, comes_from_elsewhere: bool) -> Response:
        """The login page, for an address that a person wants to see.

        One that `comes_from_elsewhere` followed a link of another site, with which a browser does not send
        the cookie; the page then asks once more by itself.
        """
        values = {"assets": f"/assets/{self.build}", "retry": "yes" if comes_from_elsewhere else "no"}
        headers = {"cache-control": "no-store"}
        text = _filled(self._login_template, values)
        return Response(text, status_code=401, media_type=_MEDIA_TYPES[".html"], headers=headers)

    def is_of_login(self, path: str) -> bool:
        """Whether a path is a file of the login page."""
        prefix = f"/assets/{self.build}/"
        return path.startswith(prefix) and path.removeprefix(prefix) in OF_LOGIN

    def routes(self) -> list[BaseRoute]:
        """The console as routes of the app; they come after those of the API."""
        paths = ["/", *(f"/{name}" for name in PAGES), *(f"/{name}/{{rest:path}}" for name in PAGES)]
        pages = [OneMethod(path, self._serve_page, methods=["GET"], name="console") for path in paths]
        assets = OneMethod("/assets/{build}/{name:path}", self._serve_asset, methods=["GET"], name="assets")
        return [assets, *pages]

    async def _serve_page(self, request: Request) -> Response:
        return _answer(self.page(request.scope.get("root_path", "")), request, keeping=_ASK_AGAIN)

    async def _serve_asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        file = self.assets.get(name) if request.path_params["build"] == self.build else None
        if file is None:  # also of another build: a page of before the upgrade must not get half of this one
            return error_response(
                HttpError(Code.INVALID_REQUEST, "there is no such file. Load the page again", status=404)
            )
        return _answer(file, request, keeping=_FOR_EVER)

    def _write_page(self, root: str) -> ConsoleFile:
        root = html.escape(root, quote=True)
        assets = f"{root}/assets/{self.build}"
        # Without these the browser would learn of each module from the one that imports it, one by one.
        preloads = "\n  ".join(
            f'<link rel="modulepreload" href="{assets}/{name}">' for name in _modules(self.assets)
        )
        text = _filled(self._template, {"root": root, "assets": assets, "preloads": preloads})
        return ConsoleFile.of(text.encode(), _MEDIA_TYPES[".html"])


def _read_files(directory: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in _MEDIA_TYPES:
            yield path.relative_to(directory).as_posix(), path.read_bytes()


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(b"%d %s %d " % (len(name), name.encode(), len(data)))
        digest.update(data)
    return digest.hexdigest()[:_BUILD_DIGITS]


def _filled(template: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def _modules(names: Iterable[str]) -> list[str]:
    """What app.js imports at once, in the end; the scripts that the page names itself are not among it."""
    others = {"theme.js", "vendor/uplot.js", *LATER, *LOGIN_ALONE}
    return sorted(name for name in names if name.endswith(".js") and name not in others)


def _answer(file: ConsoleFile, request: Request, *, keeping: str) -> Response:
    headers = {"cache-control": keeping, "etag": file.etag, "vary": "accept-encoding"}
    if _has_it(request.headers.get("if-none-match", ""), file.etag):
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        headers["content-encoding"] = "gzip"
        return Response(file.packed, media_type=file.media_type, headers=headers)
    return Response(file.plain, media_type=file.media_type, headers=headers)


def _has_it(if_none_match: str, etag: str) -> bool:
    """RFC 9110 section 13.1.2: a list, compared weakly."""
    given = (each.strip().removeprefix("W/") for each in if_none_match.split(","))
    return any(each in ("*", etag) for each in given)


_NOT_AT_ALL: Final = re.compile(r";\s*q=0(\.0*)?\s*$")


def _takes_gzip(accept_encoding: str) -> bool:
    for each in accept_encoding.lower().split(","):
        if each.partition(";")[0].strip() in ("gzip", "*") and not _NOT_AT_ALL.search(each):
            return True
    return False
