"""One setting: each type is parsed as Kafka parses it, and what it does not accept is refused with advice."""

from __future__ import annotations

import pytest

from tailrace.broker.configs.key import ConfigKey, ConfigType, find_key, split_list, table_of
from tailrace.model import BrokerError, ConfigError, ErrorCode


def key(type: ConfigType, **rest: object) -> ConfigKey:
    fields: dict[str, object] = {"name": "a.key", "type": type, "default": "", "doc": "", **rest}
    return ConfigKey(**fields)  # type: ignore[arg-type]


def refusal(row: ConfigKey, text: str) -> str:
    with pytest.raises(BrokerError) as caught:
        row.parse(text)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    return str(caught.value)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("False", False), (" TRUE ", True)])
def test_booleans_are_words_in_any_case(text: str, value: bool) -> None:
    assert key(ConfigType.BOOLEAN).parse(text) is value


@pytest.mark.parametrize("text", ["", "yes", "1", "truee"])
def test_other_words_are_no_booleans(text: str) -> None:
    assert "neither true nor false" in refusal(key(ConfigType.BOOLEAN), text)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.INT, " -2147483648 ", -(2**31)),
        (ConfigType.LONG, "9223372036854775807", 2**63 - 1),
        (ConfigType.LONG, "+5", 5),
    ],
)
def test_numbers_may_fill_their_type(type: ConfigType, text: str, value: int) -> None:
    assert key(type).parse(text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (ConfigType.SHORT, "32768"),
        (ConfigType.INT, "2147483648"),
        (ConfigType.INT, "-2147483649"),
        (ConfigType.LONG, "9223372036854775808"),
    ],
)
def test_numbers_beyond_their_type_are_refused(type: ConfigType, text: str) -> None:
    assert "does not fit" in refusal(key(type), text)


@pytest.mark.parametrize("text", ["", "abc", "1.5", "1_000", "0x10", "1e3", "--1", "٣", "9" * 5000, "1 2"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    message = refusal(key(ConfigType.LONG), text)
    assert "is not a whole number" in message
    assert len(message) < 200


def test_numbers_keep_to_their_range() -> None:
    row = key(ConfigType.INT, at_least=-1, at_most=10)
    assert (row.parse("-1"), row.parse("10")) == (-1, 10)
    assert "below the least" in refusal(row, "-2")
    assert "above the most" in refusal(row, "11")


def test_doubles_keep_to_their_range() -> None:
    row = key(ConfigType.DOUBLE, at_least=0, at_most=1)
    assert row.parse("0.25") == 0.25
    assert "above the most" in refusal(row, "1.01")


@pytest.mark.parametrize("text", ["", "nan", "inf", "-inf", "half"])
def test_what_is_no_number_is_no_double(text: str) -> None:
    assert "is not a number" in refusal(key(ConfigType.DOUBLE), text)


def test_text_may_be_bound_to_choices() -> None:
    row = key(ConfigType.STRING, choices=("red", "green"), advice="Try red")
    assert row.parse(" red ") == "red"
    assert refusal(row, "blue") == "a.key = 'blue' is not one of: red, green. Try red"


def test_every_item_of_a_list_is_one_of_the_choices() -> None:
    row = key(ConfigType.LIST, choices=("red", "green"))
    assert row.parse("green, red,") == ("green", "red")
    assert "is not one of" in refusal(row, "green,blue")


@pytest.mark.parametrize("choices", [(), ("red", "green")])
def test_a_list_may_be_empty(choices: tuple[str, ...]) -> None:
    row = key(ConfigType.LIST, choices=choices)
    assert row.parse("") == row.parse(" , ") == ()


def test_a_check_of_its_own_speaks_for_itself() -> None:
    def check(text: str) -> None:
        if text != "well":
            raise ConfigError("it is not well")

    row = key(ConfigType.STRING, check=check)
    assert row.parse("well") == "well"
    assert refusal(row, "ill") == "it is not well"


def test_an_unknown_key_is_refused_with_what_was_probably_meant() -> None:
    table = table_of(key(ConfigType.INT, name="retention.ms"), key(ConfigType.INT, name="segment.bytes"))
    with pytest.raises(
        BrokerError, match=r"no topic setting 'retention\.msec'\. Did you mean retention\.ms\?"
    ):
        find_key(table, "retention.msec", kind="topic")


def test_a_key_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(BrokerError) as caught:
        find_key(table_of(key(ConfigType.INT, name="segment.bytes")), "zzz" * 1000, kind="topic")
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert "Did you mean" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_lists_are_split_at_commas() -> None:
    assert split_list(" a, b ,,c") == ("a", "b", "c")
    assert split_list("") == ()
