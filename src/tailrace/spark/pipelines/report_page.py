"""The page of a report: a lake at a glance, then every topic with its plots.

Keys, topics and reasons come from outside: everything that is text is escaped here, and a key that is no
text is shown as its bytes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import escape

from tailrace.model import escape as printable
from tailrace.model.text import size_of
from tailrace.page import Column, columns, document, facts, share_bar, table
from tailrace.spark.pipelines.report_summary import LakeSummary, TopicSummary, size_quantile

KEYS_ON_PAGE = 20
HEADERS_ON_PAGE = 10
BAD_ON_PAGE = 50
_KEY_CHARS_MAX = 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write_report(summary: LakeSummary, *, measured_at: datetime) -> str:
    """The whole page."""
    parts = [
        *(() if summary.is_complete else ('<p class="missed">Stopped before every topic was read.</p>',)),
        _overview(summary),
        *(_topic(topic, summary) for topic in summary.topics),
    ]
    return document(
        "tailrace pipeline run report",
        heading=f"The lake {summary.root}",
        measured_at=measured_at,
        body="\n".join(parts),
        row=as_row(summary),
    )


# ---- the lake


def _overview(summary: LakeSummary) -> str:
    topics = summary.topics
    shown = facts(
        {
            "records": f"{summary.rows:,}",
            "in_files": f"{size_of(sum(each.file_bytes for each in topics))}"
            f" in {_count(sum(each.files for each in topics), 'file')}",
            "table": f"{summary.format}, version {summary.version}",
            **({} if summary.bootstrap is None else {"lag_is_behind": summary.bootstrap}),
        }
    )
    if not topics:
        return shown + "\n<p>There are no topics in it.</p>"
    has_lag = summary.bootstrap is not None
    head = _head("topic", "records", "data", "files", "days", *(("lag",) if has_lag else ()))
    rows = (
        f'<th scope="row"><a href="#{_anchor(at)}">{escape(printable(each.topic))}</a></th>'
        + _cells(
            f"{each.rows:,}",
            size_of(each.record_bytes),
            f"{each.files:,}",
            f"{len(each.days):,}",
            *((_lag(each.lag),) if has_lag else ()),
        )
        for at, each in enumerate(topics)
    )
    return f"{shown}\n<h2>Topics</h2>\n{table(head, rows)}"


# ---- one topic


def _topic(topic: TopicSummary, summary: LakeSummary) -> str:
    anchor = _anchor(summary.topics.index(topic))
    parts = [
        f'<h2 id="{anchor}">{escape(printable(topic.topic))}</h2>',
        _hint(topic, summary),
        facts(_facts(topic)),
        _throughput(topic),
        _sizes(topic),
        _partitions(topic),
        _keys(topic),
        _headers(topic),
        _bad(topic),
    ]
    return "\n".join(part for part in parts if part)


def _facts(topic: TopicSummary) -> dict[str, object]:
    median, most = (
        size_quantile(topic.sizes, share, largest=topic.record_bytes_max) for share in (0.5, 0.99)
    )
    found: dict[str, object] = {
        "time": f"{write_time(topic.earliest_us)} to {write_time(topic.latest_us)}",
        "records": f"{topic.rows:,} of {size_of(topic.record_bytes)}",
        "size": "none"
        if median is None or most is None
        else f"half at most {size_of(median)}, 99 % at most {size_of(most)},"
        f" the largest {size_of(topic.record_bytes_max)}",
        "in_files": f"{size_of(topic.file_bytes)} in {_count(topic.files, 'file')}"
        f" over {_count(len(topic.days), 'day')}",
        "without_a_key": _share_text(topic.null_keys, topic.rows),
        "tombstones": _share_text(topic.tombstones, topic.rows),
        "with_headers": _share_text(topic.with_headers, topic.rows),
        "out_of_order": _share_text(topic.late, topic.rows)
        + (f", by up to {write_length(topic.late_us_max)}" if topic.late else ""),
        "different_keys": "too many to count" if topic.keys_distinct is None else f"{topic.keys_distinct:,}",
    }
    if topic.outside:
        found["without_a_sound_time"] = _share_text(topic.outside, topic.rows)
    if topic.lag is not None:
        found["lag"] = f"{topic.lag:,} records are in the topic and not in the lake"
    return found


def _hint(topic: TopicSummary, summary: LakeSummary) -> str:
    """What to do about many small files; a day of a partition has one at least."""
    needed = max(len(topic.days) * len(topic.partitions), 1)
    if topic.files_small <= 2 * needed:
        return ""
    command = f"tailrace pipeline run compact --lake {summary.root} --topic {topic.topic}"
    return (
        f"<p>{topic.files_small:,} of {topic.files:,} files are small, which makes reading slow."
        f" Try: <code>{escape(command)}</code></p>"
    )


def _throughput(topic: TopicSummary) -> str:
    window_s = topic.span.window_us / 1_000_000
    is_slow = max(topic.window_rows, default=0) < window_s  # then a number per second says little
    rows = [
        Column(
            value=count if is_slow else count / window_s,
            told=f"{write_time(at)}: {count:,} records, {size_of(size)}",
            tick=_tick(at, topic.span.window_us * topic.span.windows),
        )
        for at, count, size in zip(
            range(topic.span.start_us, 1 << 63, topic.span.window_us),
            topic.window_rows,
            topic.window_bytes,
            strict=False,
        )
    ]
    length = write_length(topic.span.window_us)
    title = f"Records per {length}" if is_slow else "Records per second"
    return columns(title, rows, write=write_number, unit=f"by their time, {length} a column")


def _sizes(topic: TopicSummary) -> str:
    used = [bucket for bucket, count in enumerate(topic.sizes) if count]
    if not used:
        return ""
    rows = [
        Column(
            value=topic.sizes[bucket],
            told=f"{_size_range(bucket)}: {topic.sizes[bucket]:,} records",
            tick=f"< {size_of(1 << bucket)}",
        )
        for bucket in range(used[0], used[-1] + 1)
    ]
    return columns("Records by size", rows, write=write_number, unit="of key, value and headers")


def _size_range(bucket: int) -> str:
    low = 0 if bucket == 0 else 1 << (bucket - 1)
    return f"{size_of(low)} to under {size_of(1 << bucket)}"


def _partitions(topic: TopicSummary) -> str:
    most = max((each.rows for each in topic.partitions), default=0)
    has_lag = any(each.lag is not None for each in topic.partitions)
    head = _head("partition", "", "records", "share", "data", "ends at", *(("lag",) if has_lag else ()))
    rows = (
        f'<th scope="row">{each.partition}</th>'
        + _bar_cell(each.rows, most, label=f"partition {each.partition}: {each.rows:,} records")
        + _cells(
            f"{each.rows:,}",
            _percent(each.rows, topic.rows),
            size_of(each.record_bytes),
            f"{each.end:,}",
            *((_lag(each.lag),) if has_lag else ()),
        )
        for each in topic.partitions
    )
    return f"<h3>Partitions{_skew(topic)}</h3>\n{table(head, rows)}"


def _skew(topic: TopicSummary) -> str:
    counts = [each.rows for each in topic.partitions]
    if len(counts) < 2 or not topic.rows:
        return ""
    times = max(counts) / (topic.rows / len(counts))
    return f' <span class="quiet">the fullest has {times:.2f} times the average</span>'


def _keys(topic: TopicSummary) -> str:
    if not topic.keys:
        return ""
    most = topic.keys[0][1]
    rows = (
        f'<th scope="row"><code>{escape(write_key(key))}</code></th>'
        + _bar_cell(count, most, label=f"{count:,} records")
        + _cells(f"{count:,}", _percent(count, topic.rows))
        for key, count in topic.keys[:KEYS_ON_PAGE]
    )
    return f"<h3>Top keys</h3>\n{table(_head('key', '', 'records', 'share'), rows)}"


def _headers(topic: TopicSummary) -> str:
    names = list(topic.header_names.items())[:HEADERS_ON_PAGE]
    if not names:
        return ""
    rows = (
        f'<th scope="row"><code>{escape(printable(name)[:_KEY_CHARS_MAX])}</code></th>'
        + _bar_cell(count, names[0][1], label=f"{count:,} headers")
        + _cells(f"{count:,}")
        for name, count in names
    )
    return f"<h3>Headers</h3>\n{table(_head('name', '', 'count'), rows)}"


def _bad(topic: TopicSummary) -> str:
    if not topic.bad:
        return ""
    rows = (
        f'<th scope="row">{each.partition}</th><td class="number">{each.first_offset:,}</td>'
        f'<td class="number">{each.last_offset:,}</td><td>{escape(printable(each.reason))}</td>'
        f"<td>{escape(each.saved or 'nothing')}</td>"
        for each in topic.bad[:BAD_ON_PAGE]
    )
    more = len(topic.bad) - BAD_ON_PAGE
    note = f"<p>And {more:,} more.</p>" if more > 0 else ""
    head = (
        f'<th scope="col">partition</th><th{_NUMBER} scope="col">from offset</th>'
        f'<th{_NUMBER} scope="col">to</th><th scope="col">reason</th><th scope="col">kept</th>'
    )
    return f'<h3 class="missed">Offsets that are not in the lake</h3>\n{table(head, rows)}{note}'


# ---- cells


_NUMBER = ' class="number"'


def _head(first: str, *others: str) -> str:
    """The first column is text, an empty one is a bar, others are numbers."""
    cells = [f'<th scope="col">{first}</th>']
    cells += [f'<th{_NUMBER} scope="col">{name}</th>' if name else '<td class="bar"></td>' for name in others]
    return "".join(cells)


def _cells(*texts: str) -> str:
    return "".join(f'<td class="number">{escape(text)}</td>' for text in texts)


def _bar_cell(value: int, most: int, *, label: str) -> str:
    return f'<td class="bar">{share_bar(value / most if most else 0.0, label=label)}</td>'


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _anchor(at: int) -> str:
    return f"topic-{at}"


def _lag(lag: int | None) -> str:
    return "" if lag is None else f"{lag:,}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _share_text(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.1%})" if part and whole else "none"


# ---- words and numbers


def write_key(key: bytes) -> str:
    """A key as text where it is text, else as bytes; the beginning of a long one."""
    try:
        text = printable(key.decode())
    except UnicodeDecodeError:
        text = "0x" + key[: _KEY_CHARS_MAX // 2 + 1].hex()
    if not text:
        return "(empty)"
    return text if len(text) <= _KEY_CHARS_MAX else text[: _KEY_CHARS_MAX - 1] + "…"


def write_number(value: float) -> str:
    """A figure on a scale, short."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            divided = value / (1e3 if unit == "k" else limit)
            return f"{divided:g}{unit}"
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def write_length(length_us: int) -> str:
    """How long, in the largest unit that fits."""
    seconds = length_us / 1_000_000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def write_time(time_us: int | None) -> str:
    """A moment in UTC; one beyond the years of a calendar as its number."""
    if time_us is None:
        return "never"
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us // 1000} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _tick(at_us: int, span_us: int) -> str:
    moment = write_time(at_us)
    if span_us <= 2 * 86_400_000_000:
        return moment[11:16] if span_us > 600_000_000 else moment[11:]
    return moment[:10]


# ---- for programs


def as_row(summary: LakeSummary) -> dict[str, object]:
    """The report as JSON has it."""
    return {
        "lake": summary.root,
        "format": summary.format,
        "version": summary.version,
        "complete": summary.is_complete,
        "topics": [_topic_row(topic) for topic in summary.topics],
    }


_PLAIN = (
    *("topic", "rows", "record_bytes", "record_bytes_max", "files", "files_small", "file_bytes"),
    *("earliest_us", "latest_us", "null_keys", "tombstones", "with_headers", "late", "late_us_max"),
    *("outside", "keys_distinct", "lag"),
)


def _topic_row(topic: TopicSummary) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(topic, name) for name in _PLAIN}
    row["days"] = list(topic.days)
    row["windows"] = {
        "start_us": topic.span.start_us,
        "length_us": topic.span.window_us,
        "rows": list(topic.window_rows),
        "bytes": list(topic.window_bytes),
    }
    row["sizes_below"] = {str(1 << at): count for at, count in enumerate(topic.sizes) if count}
    row["partitions"] = [
        {
            "partition": each.partition,
            "rows": each.rows,
            "record_bytes": each.record_bytes,
            "end": each.end,
            "lag": each.lag,
        }
        for each in topic.partitions
    ]
    row["keys"] = [{"key": write_key(key), "rows": count} for key, count in topic.keys]
    row["headers"] = dict(topic.header_names)
    row["bad"] = [
        {
            "partition": each.partition,
            "first_offset": each.first_offset,
            "last_offset": each.last_offset,
            "reason": each.reason,
        }
        for each in topic.bad
    ]
    return row
