"""ApiVersions through its bytes: what is advertised, and how clients that ask wrongly are answered."""

from __future__ import annotations

import pytest
from tests.unit.kafka.handlers.stage import CONNECTION, Stage, play, versions

from tailrace.kafka.call import Call
from tailrace.kafka.handlers import api_versions
from tailrace.model import ErrorCode, ProtocolError
from tailrace.wire.kafka import APIS, decode, encode
from tailrace.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

POLITE = ApiVersionsRequest(client_software_name="kafka-client", client_software_version="4.0.1")


def ask(stage: Stage, version: int, body: bytes) -> bytes:
    call = Call(stage.access, version=version, client_id=None, connection=CONNECTION)
    return api_versions.answer(call, memoryview(body))


@pytest.mark.parametrize("version", versions(18))
def test_every_api_with_a_handler_is_advertised(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        answer = decode(ApiVersionsResponse, version, ask(stage, version, encode(POLITE, version)))
        found = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        assert answer.error_code == 0
        assert found == {api.key: (api.advertised_min, api.advertised_max) for api in APIS.values()}
        assert found[22] == (0, 5)  # version 6 has two-phase commit, which a feature announces
        assert found[0] == (0, 12)  # from 0, else old librdkafka stops compressing
        features = [("transaction.version", 2, 2), ("tailrace.2pc", 1, 1)] if version >= 3 else []
        assert [
            (each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features
        ] == features
        assert answer.finalized_features_epoch == (0 if version >= 3 else -1)
        # A feature that begins at 0 breaks clients of version 3 (KIP-584).
        supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
        assert supported == ([("transaction.version", 0, 2), ("tailrace.2pc", 1, 1)] if version >= 4 else [])

    play(scenario)


@pytest.mark.parametrize("version", [5, 127, -1])
def test_an_unknown_version_is_answered_in_the_oldest_format(version: int) -> None:
    async def scenario(stage: Stage) -> None:
        answer = decode(ApiVersionsResponse, 0, ask(stage, version, b""))
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 4)]

    play(scenario)


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a/b", "é"])
def test_a_client_must_say_what_it_is(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        for request in (
            ApiVersionsRequest(client_software_name=name, client_software_version="1"),
            ApiVersionsRequest(client_software_name="x", client_software_version=name),
        ):
            answer = decode(ApiVersionsResponse, 3, ask(stage, 3, encode(request, 3)))
            assert answer.error_code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_garbage_is_a_breach_of_the_protocol() -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(ProtocolError):
            ask(stage, 3, b"\xff\xff\xff\xff\xff\xff")
        with pytest.raises(ProtocolError):
            ask(stage, 4, b"\x02")

    play(scenario)
