"""The console's files as they are served: the page under every address, assets by build, sizes, caching."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from starlette.routing import Mount, Router

from tailrace.http.app import Unserved
from tailrace.http.console_files import LATER, LOGIN_ALONE, PAGES, Console

_FIRST_LOAD_BYTES_MAX = 100 * 1024


@pytest.fixture(scope="module")
def console() -> Console:
    return Console()


class AppClient:
    """Asks an app, without a socket in between."""

    def __init__(self, app: Router) -> None:
        self._app = app

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.ask("GET", path, headers)

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(ask())


@pytest.fixture
def client(console: Console) -> AppClient:
    return AppClient(Router(console.routes(), redirect_slashes=False))


def _asset(console: Console, name: str) -> str:
    return f"/assets/{console.build}/{name}"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        *(f"/{name}" for name in PAGES),
        "/topics/orders",
        "/topics/orders/messages?partition=0&offset=5",
        "/groups/team%2Fa",
        "/subscriptions/jobs",
    ],
)
def test_every_address_of_the_console_is_the_page(client: AppClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert '<div id="app"></div>' in answer.text


@pytest.mark.parametrize(
    "path", ["/nothing", "/assets", "/topicsx", "/index.html", "/metrics", "/console.css"]
)
def test_other_addresses_are_not_the_page(client: AppClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_the_page_has_no_open_places_and_loads_from_its_own_build_only(
    client: AppClient, console: Console
) -> None:
    text = client.get("/").text
    assert "{{" not in text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', text)
    assets = [each for each in addresses if each != "/openapi.json"]
    assert assets and all(each.startswith(f"/assets/{console.build}/") for each in assets)
    for each in assets:
        assert client.get(each).status_code == 200, each


def test_the_page_runs_no_script_of_its_own(client: AppClient) -> None:
    """The content policy allows scripts from files alone."""
    text = client.get("/").text
    for opened, inner in re.findall(r"<script([^>]*)>(.*?)</script>", text, re.S):
        assert "src=" in opened and inner.strip() == ""
    assert not re.search(r"\son[a-z]+=", text)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("app.js", "text/javascript; charset=utf-8"),
        ("console.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/htm-preact.js", "text/javascript; charset=utf-8"),
    ],
)
def test_an_asset_is_kept_for_ever(client: AppClient, console: Console, name: str, kind: str) -> None:
    answer = client.get(_asset(console, name))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    assert "immutable" in answer.headers["cache-control"]


def test_a_browser_that_takes_gzip_gets_it(client: AppClient, console: Console) -> None:
    path = _asset(console, "app.js")
    packed = client.get(path, headers={"accept-encoding": "br, gzip;q=0.8"})
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


@pytest.mark.parametrize("accepted", ["gzip;q=0", "gzip; q=0.000", "br", "", "gzipped"])
def test_who_does_not_take_gzip_gets_plain_bytes(client: AppClient, console: Console, accepted: str) -> None:
    answer = client.get(_asset(console, "app.js"), headers={"accept-encoding": accepted})
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("shape", ["{}", "W/{}", '"other", {}', "*"])
def test_what_the_browser_has_is_not_sent_again(client: AppClient, shape: str) -> None:
    etag = client.get("/").headers["etag"]
    answer = client.get("/", headers={"if-none-match": shape.format(etag)})
    assert answer.status_code == 304
    assert answer.content == b""
    assert answer.headers["etag"] == etag


@pytest.mark.parametrize("has", ['"another"', "", "nonsense", 'W/"another", "third"'])
def test_what_the_browser_has_not_is_sent(client: AppClient, has: str) -> None:
    assert client.get("/", headers={"if-none-match": has}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/assets/0000000000000000/app.js",  # of another build
        "/assets/{build}/nothing.js",
        "/assets/{build}/",
        "/assets/{build}/index.html",
        "/assets/{build}/vendor/LICENSES.md",
        "/assets/{build}/../console_files.py",
        "/assets/{build}/..%2f..%2fconsole_files.py",
        "/assets/{build}/%2e%2e/%2e%2e/service.py",
        "/assets/{build}//etc/passwd",
    ],
)
def test_what_is_not_an_asset_of_this_build_is_not_found(
    client: AppClient, console: Console, path: str
) -> None:
    assert client.get(path.format(build=console.build)).status_code == 404


def test_the_first_load_is_small(console: Console) -> None:
    """Everything that is loaded at once, compressed: a console opens over a slow line too."""
    assets = [each.packed for name, each in console.assets.items() if name not in LATER | LOGIN_ALONE]
    total = sum(map(len, assets)) + len(console.page("").packed)
    assert total < _FIRST_LOAD_BYTES_MAX, f"{total} bytes"


def test_compressed_files_are_the_files(console: Console) -> None:
    for name, each in console.assets.items():
        assert gzip.decompress(each.packed) == each.plain, name


def test_every_module_is_loaded_ahead_and_every_import_exists(console: Console) -> None:
    page = console.page("").plain.decode()
    for name, each in console.assets.items():
        if not name.endswith(".js") or name in ("theme.js", "login.js", "vendor/uplot.js"):
            continue
        is_ahead = f'rel="modulepreload" href="/assets/{console.build}/{name}"' in page
        assert is_ahead == (name not in LATER)
        for wanted in re.findall(r'^import .*?from "\./([^"]+)";$', each.plain.decode(), re.M | re.S):
            assert wanted in console.assets, f"{name} imports {wanted}"
            assert wanted not in LATER, f"{name} imports {wanted} at once"


def test_modules_that_are_loaded_later_are_asked_for_by_name(console: Console) -> None:
    asked = re.findall(r'import\("\./([^"]+)"\)', console.assets["app.js"].plain.decode())
    assert set(asked) == LATER


def test_no_file_names_another_host(console: Console) -> None:
    for name, each in console.assets.items():
        text = each.plain.decode()
        hosts = set(re.findall(r"https?://([a-z0-9.-]+)", text)) - {"www.w3.org", "github.com"}
        assert not hosts, name  # namespaces and a comment of uPlot are no requests


def test_a_mounted_console_links_below_its_mount(console: Console) -> None:
    app = Router([Mount("/broker", app=Router(console.routes()))])
    client = AppClient(app)
    text = client.get("/broker/topics/orders").text
    assert 'data-root="/broker"' in text
    assert f'src="/broker/assets/{console.build}/app.js"' in text
    assert client.get(f"/broker/assets/{console.build}/app.js").status_code == 200


def test_a_mount_cannot_break_out_of_the_page(console: Console) -> None:
    text = console.page('/"><script>alert(1)</script>').plain.decode()
    assert "<script>alert" not in text


def test_a_change_of_any_file_is_another_build(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("{{assets}}")
    (tmp_path / "login.html").write_text("{{assets}}")
    (tmp_path / "app.js").write_text("1")
    before = Console(tmp_path).build
    (tmp_path / "app.js").write_text("2")
    assert Console(tmp_path).build != before


def test_a_probe_may_ask_for_the_head_alone(client: AppClient) -> None:
    assert client.ask("HEAD", "/").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_page_can_only_be_read(client: AppClient, method: str) -> None:
    with pytest.raises(Unserved, match="takes GET, HEAD") as refused:  # which the app around answers
        client.ask(method, "/topics")
    assert refused.value.status == 405
