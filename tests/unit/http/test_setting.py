"""The node's settings by REST: all of them, what was set, and what each means."""

from __future__ import annotations

import httpx
from tests.unit.http.conftest import Run, Serve, check_error

from tailrace.broker.configs import BROKER_CONFIGS, ConfigEntry, ConfigSource, ConfigType
from tailrace.http.error import Code
from tailrace.http.rest.setting import view


def test_every_setting_is_shown_with_its_meaning(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        settings = (await client.get("/api/v1/configs")).json()["configs"]
        assert [each["name"] for each in settings] == sorted(BROKER_CONFIGS)
        assert all(each["doc"] and each["type"] for each in settings)
        (found,) = [each for each in settings if each["name"] == "num.partitions"]
        assert found == {
            "name": "num.partitions",
            "value": "4",
            "default": "4",
            "source": "default",
            "type": "int",
            "read_only": True,
            "doc": BROKER_CONFIGS["num.partitions"].doc,
        }

    run(scenario())


def test_what_was_set_differs_from_its_default(run: Run, serve: Serve) -> None:
    _, client = serve(broker={"num.partitions": "7"})

    async def scenario() -> None:
        settings = (await client.get("/api/v1/configs")).json()["configs"]
        (found,) = [each for each in settings if each["name"] == "num.partitions"]
        assert (found["value"], found["default"], found["source"]) == ("7", "4", "node")

    run(scenario())


def test_a_secret_is_not_shown() -> None:
    entry = ConfigEntry(
        name="log.dirs",
        value="hidden",
        source=ConfigSource.STATIC_BROKER,
        type=ConfigType.STRING,
        read_only=True,
        sensitive=True,
        doc="",
        synonyms=(),
    )
    assert view(entry).value is None


def test_settings_take_no_parameters_and_cannot_be_sent(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        check_error(await client.get("/api/v1/settings?all=1"), Code.INVALID_REQUEST, "all")
        answer = await client.put("/api/v1/settings", json={})
        check_error(answer, Code.INVALID_REQUEST, "GET", status=405)

    run(scenario())
