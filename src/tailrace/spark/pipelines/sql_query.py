"""Which topics a query names, found in its text; Spark parses it all the same.

    SELECT ... FROM STREAM orders JOIN `my-topic` ON ...

A topic after STREAM is a stream, and then everywhere in the query; one that is named without is what it holds
now. Only names in the place of a table count: after FROM and JOIN and the commas that follow. Strings and
comments are passed over. A name with a dot or a dash needs back-quotes in SQL, and who forgets them is told.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tailrace.model import ConfigError

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z))
    |`(?P<quoted>(?:[^`]|``)*)(?:`|\Z)
    |(?P<word>[^\W\d]\w*|\d\w*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_NO_NAME = frozenset(
    {"select", "values", "lateral", "unnest", "explode", "table", "on", "using", "where"}
    | {"group", "order", "having", "union"}
)
_AGGREGATES = frozenset(
    {"any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "bool_and", "bool_or"}
    | {"collect_list", "collect_set", "corr", "count", "count_if", "every", "first", "kurtosis", "last"}
    | {"listagg", "max", "max_by", "mean", "median", "min", "min_by", "mode", "percentile", "some"}
    | {"stddev", "stddev_pop", "stddev_samp", "string_agg", "sum", "var_pop", "var_samp", "variance"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A piece of a query; `value` is a name without its back-quotes, a word as it stands, or a sign."""

    kind: str
    value: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.value.lower() in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The topics that a query reads."""

    streams: Sequence[str]
    tables: Sequence[str]


def plan_views(query: str, topics: Collection[str], *, awaits: bool = False) -> Views:
    """The views a query needs, among the topics there are; ConfigError for a stream of no topic.

    With `awaits` such a stream is a view as well: its topic may be created later.
    """
    streams: dict[str, None] = {}
    tables: dict[str, None] = {}
    for name, is_stream in _named(list(tokens_of(query)), topics):
        found = _match(name, topics)
        if found is not None:
            (streams if is_stream else tables)[found] = None
        elif is_stream and awaits:
            streams[name] = None
        elif is_stream:
            raise ConfigError(f"sql: there is no topic {name}{near_hint(name, topics)}")
    return Views(streams=tuple(streams), tables=tuple(name for name in tables if name not in streams))


def is_aggregate(query: str) -> bool:
    """Whether a query puts rows together, as far as its words tell."""
    tokens = list(tokens_of(query))
    for at, token in enumerate(tokens):
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        if token.is_word("distinct") or (token.is_word("group") and following and following.is_word("by")):
            return True
        if token.is_word(*_AGGREGATES) and following is not None and following.value == "(":
            return True
    return False


def uses_data(query: str) -> bool:
    """Whether a query may read the column `data`: by its name, or by a star in the place of columns."""
    before: Token | None = None
    for token in tokens_of(query):
        if token.kind in ("word", "quoted") and token.value.lower() == "data":
            return True
        if token.kind == "sign" and token.value == "*" and before is not None and _opens_columns(before):
            return True
        before = token
    return False


def _opens_columns(token: Token) -> bool:
    """Whether a star behind this stands for columns, and not for a product or for count(*)."""
    return token.is_word("select", "distinct", "all") or (token.kind == "sign" and token.value in ",.")


def normal_text(query: str) -> str:
    """The query without comments, and with one space wherever there is white space or may be some."""
    tokens = list(tokens_of(query))
    while tokens and tokens[-1].kind == "sign" and tokens[-1].value == ";":
        tokens.pop()
    return " ".join(query[token.start : token.end] for token in tokens)


def has_session_window(query: str) -> bool:
    """Whether a query puts rows together by sessions."""
    tokens = list(tokens_of(query))
    return any(
        token.is_word("session_window") and following.value == "("
        for token, following in itertools.pairwise(tokens)
    )


def near_hint(name: str, topics: Collection[str], *, ask: str = ": did you mean") -> str:
    """Topics whose names are near one that is not there."""
    near = difflib.get_close_matches(name, topics, n=3)
    if near:
        return f"{ask} {', '.join(quoted(each) for each in near)}?"
    shown = ", ".join(quoted(each) for each in sorted(topics)[:10])
    return f". There {'is' if len(topics) == 1 else 'are'} {shown}" if topics else ". There are no topics yet"


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return name if re.fullmatch(r"[^\W\d]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def tokens_of(query: str) -> Iterator[Token]:
    """The query in pieces, without white space and comments."""
    for found in _TOKEN.finditer(query):
        kind = found.lastgroup or "sign"
        if kind != "skip":
            value = found[kind].replace("``", "`") if kind == "quoted" else found[kind]
            yield Token(kind=kind, value=value, start=found.start(), end=found.end())


def _named(tokens: Sequence[Token], topics: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Every name in the place of a table, and whether it is a stream."""
    in_tables = False
    for at, token in enumerate(tokens):
        if token.is_word("from", "join"):
            in_tables = True
        elif token.kind == "word" and token.value.lower() in _NO_NAME:
            in_tables = False
        opens = token.is_word("from", "join") or (in_tables and token.value == ",")
        if opens:
            found = _table_at(tokens, at + 1, topics)
            if found is not None:
                yield found


def _table_at(tokens: Sequence[Token], at: int, topics: Collection[str]) -> tuple[str, bool] | None:
    is_stream = at < len(tokens) and tokens[at].is_word("stream") and _is_name(tokens[at + 1 : at + 3])
    if is_stream:
        at += 1
        if tokens[at].value == "(" and tokens[at].kind == "sign":
            at += 1
    if at >= len(tokens) or tokens[at].kind not in ("word", "quoted"):
        return None
    first = tokens[at]
    if first.is_word("select", "values") or (not is_stream and first.is_word(*_NO_NAME)):
        return None
    name = _run_on(tokens, at)
    if name != first.value and _match(name, topics) is not None:
        raise ConfigError(f"sql: the topic {name} needs back-quotes in SQL: write {quoted(name)}")
    return (name if is_stream else first.value), is_stream


def _is_name(following: Sequence[Token]) -> bool:
    """Whether STREAM before this is the word, and not itself the name of a table."""
    if not following:
        return False
    if len(following) > 1 and following[0].is_word("group", "order") and following[1].is_word("by"):
        return False
    if following[0].is_word("as", "on", "where", "join", "limit", "union", "having"):
        return False
    return following[0].kind in ("word", "quoted") or following[0].value == "("


def _run_on(tokens: Sequence[Token], at: int) -> str:
    """A name with what stands close behind it, as if dots and dashes belonged to it."""
    name = tokens[at].value
    if tokens[at].kind == "quoted":
        return name
    for before, token in zip(tokens[at:], tokens[at + 1 :], strict=False):
        if token.start != before.end or not (token.kind == "word" or token.value in (".", "-")):
            break
        name += token.value
    return name


def _match(name: str, topics: Collection[str]) -> str | None:
    """The topic of this name; views know no capitals, so one that differs in them alone will do."""
    if name in topics:
        return name
    same = [topic for topic in topics if topic.lower() == name.lower()]
    return same[0] if len(same) == 1 else None
