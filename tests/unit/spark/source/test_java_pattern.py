"""Java's regular expressions as Python's: what each matches, as java.util.regex.Pattern has it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ConfigError
from tailrace.spark.source.java_pattern import compile_java

CASES = [
    # as Python has them
    ("orders-.*", "orders-eu", "orders"),
    ("orders|payments", "payments", "orderspayments"),
    (r"a\.b_\d+", "a.b_12", "axb_12"),
    ("(?:a|b){2,3}+", "aba", "abab"),
    ("[^a-c]", "d", "b"),
    ("[a-]x", "-x", "bx"),
    ("[]a]", "]", "b"),
    (r"(?!.*-internal).*", "orders", "orders-internal"),
    # as it does not
    (r"\Qa.b\E.*", "a.bc", "axbc"),
    (r"\p{Lower}+", "orders", "Orders"),
    (r"\p{L}\pN", "a1", "11"),
    (r"\P{Alpha}", "1", "a"),
    (r"\p{IsAlphabetic}\p{javaUpperCase}", "aB", "ab"),
    (r"[\p{Alnum}.]+", "a.1", "a_1"),
    ("[a-z&&[^q]]+", "abc", "aqc"),
    ("[a-c[x-z]]+", "ax", "am"),
    (r"[\w&&[^\d]]+", "ab_", "ab1"),
    (r"[^\p{Upper}]+", "ab-1", "aB"),
    ("(?<env>dev|prod)-orders-\\k<env>", "dev-orders-dev", "dev-orders-prod"),
    ("a(?i)b", "aB", "AB"),
    ("x(a(?i)b|c)d", "xCd", "xCD"),
    ("(?i)orders", "ORDERS", "payments"),
    ("(?iu:o)rders", "Orders", "ORDERS"),
    (r"\Aorders\z", "orders", "orders1"),
    (r"\x6frders\u002d\x{61}\055", "orders-a-", "orders-a"),
    (r"\hx|\055", "-", "x"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("pattern", "name", "other"), CASES, ids=[case[0] for case in CASES])
def test_a_pattern_matches_what_it_matches_in_java(pattern: str, name: str, other: str) -> None:
    compiled = compile_java("subscribePattern", pattern)
    assert compiled.fullmatch(name)
    assert not compiled.fullmatch(other)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[a", "[z-a]", "*", r"\p{Klingon}", r"\p", r"\y", "\\", r"\x{110000000}", "(?i)[a&&[^b]]"],
)
def test_what_is_no_pattern_is_refused_by_option_and_value(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"option subscribePattern=.* is not a regular expression"):
        compile_java("subscribePattern", pattern)


@given(st.text(alphabet="ab0-.[]()|&^\\pQEkdxu{}<>?i:*+", max_size=12))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        compile_java("subscribePattern", text)
