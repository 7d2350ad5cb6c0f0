"""Which topics a query names: found in its text alone."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.sql_query import (
    Views,
    is_aggregate,
    near_hint,
    normal_text,
    plan_views,
    quoted,
    uses_data,
)

TOPICS = ("orders", "payments", "my-topic", "a.b", "Clicks", "stream")


@pytest.mark.parametrize(
    ("query", "streams", "tables"),
    [
        ("SELECT * FROM STREAM orders", ("orders",), ()),
        ("select * from stream(orders)", ("orders",), ()),
        ("SELECT * FROM STREAM `my-topic` AS m", ("my-topic",), ()),
        ("SELECT * FROM STREAM `a.b`", ("a.b",), ()),
        ("SELECT * FROM orders", (), ("orders",)),
        ("SELECT * FROM orders o, payments p", (), ("orders", "payments")),
        ("SELECT * FROM STREAM orders JOIN payments USING (key)", ("orders",), ("payments",)),
        ("SELECT * FROM STREAM orders a JOIN orders b USING (key)", ("orders",), ()),
        ("SELECT * FROM STREAM orders, STREAM payments", ("orders", "payments"), ()),
        ("WITH x AS (SELECT * FROM STREAM orders) SELECT * FROM x", ("orders",), ()),
        ("SELECT * FROM (SELECT * FROM STREAM orders) LEFT JOIN payments", ("orders",), ("payments",)),
        ("SELECT 'FROM STREAM nope' FROM orders -- FROM payments", (), ("orders",)),
        ('SELECT /* FROM payments */ "FROM STREAM x" FROM\norders', (), ("orders",)),
        ("SELECT 'it''s', 'a\\'FROM payments' FROM orders", (), ("orders",)),
        ("SELECT * FROM STREAM CLICKS", ("Clicks",), ()),
        ("SELECT * FROM unknown", (), ()),
        ("SELECT orders, payments FROM STREAM `my-topic`", ("my-topic",), ()),
        ("SELECT * FROM stream", (), ("stream",)),
        ("SELECT * FROM stream WHERE key = 1", (), ("stream",)),
        ("SELECT 1", (), ()),
        ("SELECT * FROM", (), ()),
        ("SELECT * FROM STREAM", (), ("stream",)),
        ("SELECT * FROM `orders", (), ("orders",)),
    ],
)
def test_topics_in_the_place_of_a_table_are_views(
    query: str, streams: tuple[str, ...], tables: tuple[str, ...]
) -> None:
    assert plan_views(query, TOPICS) == Views(streams=streams, tables=tables)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM STREAM order", r"there is no topic order: did you mean orders\?"),
        ("SELECT * FROM STREAM zzz", r"there is no topic zzz\. There are "),
        ("SELECT * FROM STREAM `zzz.y`", r"there is no topic zzz\.y"),
        ("SELECT * FROM STREAM my-topic", "needs back-quotes in SQL: write `my-topic`"),
        ("SELECT * FROM my-topic", "needs back-quotes"),
        ("SELECT * FROM a.b", "write `a.b`"),
        ("SELECT * FROM STREAM a.c", r"there is no topic a\.c"),
    ],
)
def test_a_stream_of_no_topic_is_refused_with_the_way_out(query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_views(query, TOPICS)


def test_a_hint_where_there_are_no_topics() -> None:
    assert near_hint("x", ()) == ". There are no topics yet"
    assert near_hint("x", ("my-topic",)) == ". There is `my-topic`"


@pytest.mark.parametrize(
    ("name", "sql"), [("a_1", "a_1"), ("a.b", "`a.b`"), ("1a", "`1a`"), ("a`b", "`a``b`")]
)
def test_names_are_quoted_where_they_must_be(name: str, sql: str) -> None:
    assert quoted(name) == sql


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT key, count(*) FROM STREAM orders GROUP BY key", True),
        ("SELECT count (1) FROM STREAM orders", True),
        ("SELECT DISTINCT key FROM STREAM orders", True),
        ("SELECT key FROM STREAM orders", False),
        ("SELECT count, `sum` FROM STREAM orders", False),
        ("SELECT 'GROUP BY' FROM STREAM orders", False),
    ],
)
def test_aggregations_are_told_by_their_words(query: str, found: bool) -> None:
    assert is_aggregate(query) is found


def test_a_stream_may_wait_for_its_topic() -> None:
    found = plan_views("SELECT * FROM STREAM later JOIN orders USING (key)", TOPICS, awaits=True)
    assert found == Views(streams=("later",), tables=("orders",))


@pytest.mark.parametrize(
    ("query", "uses"),
    [
        ("SELECT data.city FROM orders", True),
        ("SELECT o.`data` FROM orders o", True),
        ("SELECT key FROM orders WHERE DATA.x = 1", True),
        ("SELECT * FROM orders", True),
        ("SELECT o.*, 1 FROM orders o", True),
        ("SELECT DISTINCT * FROM orders", True),
        ("SELECT key, * FROM orders", True),
        ("SELECT count(*) FROM orders", False),
        ("SELECT partition * 2 FROM orders", False),
        ("SELECT 'data' FROM orders -- data.x", False),
    ],
)
def test_a_query_that_uses_data_is_known_by_its_words(query: str, uses: bool) -> None:
    assert uses_data(query) == uses


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SELECT  a FROM t", "SELECT a\nFROM t -- all\n;", True),
        ("SELECT a+b FROM t", "SELECT a /* x */ + b FROM t", True),
        ("SELECT 'a b'", "SELECT 'a  b'", False),
        ("SELECT `a b` FROM t", "SELECT `a  b` FROM t", False),
        ("SELECT a FROM t", "SELECT A FROM t", False),
    ],
)
def test_white_space_and_comments_are_not_in_the_normal_text(one: str, other: str, same: bool) -> None:
    assert (normal_text(one) == normal_text(other)) == same
