"""The notation and what is compiled from it, on small messages of our own: tags, null, versions, defaults."""

# ruff: noqa: RUF012 - msgspec makes a new list for every message

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
import pytest

from tailrace.model import ProtocolError
from tailrace.wire.kafka import ZERO_UUID, Message, decode, encode, encoder
from tailrace.wire.kafka.codec import decoder
from tailrace.wire.kafka.decoding import decoder_source
from tailrace.wire.kafka.encoding import encoder_source
from tailrace.wire.kafka.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.wire.kafka.messages.join_group import JoinGroupResponse
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.wire.kafka.schema import Int8, Int32, Int64, Range, UInt16, UInt32, read_fields


class Inner(Message):
    a: Int32 = 0
    b: Annotated[Int8, "2+"] = -1


class Everything(Message):
    small: Int8 = 0
    ports: list[UInt16] = []
    wide: UInt32 = 0
    big: Annotated[Int64, "1-2"] = -1
    ratio: float = 0.0
    on: bool = False
    ids: list[UUID] = []
    blob: Annotated[bytes | None, "null 1+"] = None
    maybe: Annotated[Inner | None, "1+ null 2+"] = None
    always: Inner = msgspec.field(default_factory=Inner)
    later: Annotated[Inner, "3+"] = msgspec.field(default_factory=Inner)
    names: Annotated[list[str] | None, "0+ null 2"] = None
    text: Annotated[str, "2+ tag 5"] = "none"
    some: Annotated[list[Inner] | None, "2+ tag 1"] = None


FULL = Everything(
    small=-128,
    ports=[0, 65535],
    wide=2**32 - 1,
    big=-(2**63),
    ratio=1.5,
    on=True,
    ids=[UUID(int=5), ZERO_UUID],
    blob=b"xyz",
    maybe=Inner(1, 2),
    always=Inner(3, 4),
    names=["a", "ü"],
    text="t",
    some=[Inner(5, 6)],
)


def both(message_type: type[Message], version: int, flexible: bool) -> tuple[Any, Any]:
    return (
        encoder_source(message_type, version, flexible=flexible).function("encode"),
        decoder_source(message_type, version, flexible=flexible).function("decode"),
    )


def test_notes_are_read() -> None:
    fields = {field.name: field for field in read_fields(Everything)}
    assert fields["big"].versions == Range(1, 2)
    assert fields["small"].versions == Range(0, 0x7FFF) and fields["small"].null is None
    assert fields["blob"].versions == Range(0, 0x7FFF) and fields["blob"].null == Range(1, 0x7FFF)
    assert fields["names"].null == Range(2, 2) and fields["names"].array
    assert (fields["text"].tag, fields["text"].default) == (5, "none")
    assert (fields["maybe"].struct, fields["ports"].kind) == (Inner, "uint16")


def test_a_note_that_says_nothing_is_a_bug() -> None:
    class Odd(Message):
        a: Annotated[Int32, "since 3"] = 0

    with pytest.raises(AssertionError):
        read_fields(Odd)


def test_every_kind_comes_back_in_a_flexible_version() -> None:
    write, read = both(Everything, 2, flexible=True)
    assert read(write(FULL)) == FULL
    assert read(write(Everything())) == Everything()


def test_every_kind_comes_back_in_a_classic_version_without_what_it_lacks() -> None:
    write, read = both(Everything, 1, flexible=False)
    lacking = read(write(FULL))
    assert (lacking.text, lacking.some) == ("none", None)
    assert (lacking.always, lacking.maybe, lacking.big) == (Inner(3, -1), Inner(1, -1), FULL.big)
    assert lacking.names == FULL.names


def test_null_struct_is_one_byte_and_other_markers_are_refused() -> None:
    class Holder(Message):
        inner: Inner | None = None

    write, read = both(Holder, 1, flexible=False)
    assert write(Holder()) == b"\xff"
    assert write(Holder(Inner(7))) == b"\x01\0\0\0\x07"
    assert read(b"\xff") == Holder()
    for marker in (b"\0", b"\x02", b"\xfe"):
        with pytest.raises(ProtocolError):
            read(marker + bytes(4))


def test_tags_are_written_sorted_and_only_if_they_differ_from_their_default() -> None:
    write, _ = both(Everything, 2, flexible=True)
    plain = write(Everything())
    assert plain[-1:] == b"\0"
    tagged = write(Everything(text="t", some=[]))
    assert tagged == plain[:-1] + b"\x02" + b"\x01\x01\x01" + b"\x05\x02\x02t"


def test_an_unknown_tag_is_skipped_between_known_ones() -> None:
    write, read = both(Everything, 2, flexible=True)
    plain = write(Everything())[:-1]
    assert read(plain + b"\x03" + b"\x01\x01\x01" + b"\x03\x02??" + b"\x05\x02\x02t") == Everything(
        text="t", some=[]
    )


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x05\x03\x02t?",  # longer than its value
        b"\x01\x05\x01\x02t",  # shorter than its value
        b"\x01\x05\x7f\x02t",  # past the end of the message
        b"\x01\x05",  # without a size
        b"\x7f\x05\x02\x02t",  # fewer than were promised
        b"\x01\x63\x7f",  # unknown, and past the end
        b"\x01\x05\x01\x00",  # null where it may not be
    ],
)
def test_a_bad_tag_is_refused(tags: bytes) -> None:
    write, read = both(Everything, 2, flexible=True)
    with pytest.raises(ProtocolError):
        read(write(Everything())[:-1] + tags)


def test_unknown_tags_are_skipped_in_every_struct_of_a_real_message() -> None:
    plain = encode(HeartbeatResponse(throttle_time_ms=1, error_code=2), 4)
    assert decode(HeartbeatResponse, 4, plain[:-1] + b"\x01\x09\x03abc") == HeartbeatResponse(1, 2)


def test_real_tagged_fields_travel() -> None:
    message = ApiVersionsResponse(
        supported_features=[SupportedFeatureKey(name="kraft.version", max_version=1)],
        finalized_features_epoch=3,
        zk_migration_ready=True,
    )
    assert decode(ApiVersionsResponse, 3, encode(message, 3)) == message
    assert decode(ApiVersionsResponse, 2, encode(message, 2)) == ApiVersionsResponse()


def test_null_travels_as_empty_where_a_version_has_no_null() -> None:
    assert encode(MetadataRequest(topics=None), 0) == b"\0\0\0\0"
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert decode(JoinGroupResponse, 6, encode(JoinGroupResponse(), 6)).protocol_name == ""
    assert decode(JoinGroupResponse, 7, encode(JoinGroupResponse(), 7)).protocol_name is None


def test_a_decoded_default_list_is_nobody_elses() -> None:
    data = encode(MetadataResponse(), 0)
    decode(MetadataResponse, 0, data).brokers.append(None)  # type: ignore[arg-type]
    assert decode(MetadataResponse, 0, data).brokers == []
    assert MetadataResponse().brokers == []


@pytest.mark.parametrize("version", [-1, 5, 100])
def test_a_version_that_does_not_exist_is_our_own_mistake(version: int) -> None:
    with pytest.raises(ValueError, match="no version"):
        encoder(HeartbeatRequest, version)
    with pytest.raises(ValueError, match="no version"):
        decoder(HeartbeatRequest, version)


@pytest.mark.parametrize(
    "message", [HeartbeatRequest(generation_id=2**31), HeartbeatRequest(member_id="x" * 32768)]
)
def test_a_value_that_does_not_fit_is_our_own_mistake(message: HeartbeatRequest) -> None:
    with pytest.raises(ValueError, match="HeartbeatRequest version 3"):
        encode(message, 3)


def test_codecs_are_compiled_once() -> None:
    assert encoder(HeartbeatRequest, 4) is encoder(HeartbeatRequest, 4)
    assert decoder(HeartbeatRequest, 4) is decoder(HeartbeatRequest, 4)
