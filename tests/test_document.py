"""How documents are compared with what really happens: what must be the same, and what may differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.document import Block, broken_links, difference, examples

SHOWN = Block(
    "json", '{"topic": "orders", "timestamp": 1, "lag": null, "offsets": [{"offset": 0}, {"offset": 1}]}'
)


@pytest.mark.parametrize(
    "printed",
    [
        '{"topic":"orders","timestamp":1,"lag":null,"offsets":[{"offset":0},{"offset":1}]}',
        '{"topic":"orders","timestamp":2,"lag":3,"offsets":[{"offset":0},{"offset":1}]}',
        '{"topic":"orders","timestamp":1,"lag":null,"offsets":[{"offset":0},{"offset":1},{"offset":2}]}',
    ],
    ids=["the same", "another time", "a list that is cut short"],
)
def test_what_is_alike_has_no_difference(printed: str) -> None:
    assert difference(SHOWN, printed) is None


@pytest.mark.parametrize(
    "printed",
    [
        '{"topic":"other","timestamp":1,"lag":null,"offsets":[{"offset":0},{"offset":1}]}',
        '{"topic":"orders","timestamp":"now","lag":null,"offsets":[{"offset":0},{"offset":1}]}',
        '{"topic":"orders","timestamp":1,"lag":null,"offsets":[{"offset":0}]}',
        '{"topic":"orders","timestamp":1,"lag":null,"offsets":[{"offset":0},{"offset":7}]}',
        '{"topic":"orders","timestamp":1,"offsets":[{"offset":0},{"offset":1}]}',
        '{"topic":"orders","timestamp":1,"lag":null,"offsets":[{"offset":0},{"offset":1}],"new":1}',
        '{"error":{"code":"INTERNAL","message":"","details":{}}}',
        "",
    ],
    ids=["value", "type", "too few", "number", "a name less", "a name more", "an error", "nothing"],
)
def test_what_differs_is_told(printed: str) -> None:
    assert difference(SHOWN, printed) is not None


def test_text_is_compared_without_times() -> None:
    shown = Block("text", "at 1794849150538: hello\n")
    assert difference(shown, "at 1800000000000: hello\n") is None
    assert difference(shown, "at 1794849150538: world\n") is not None


def test_an_example_is_shown_by_the_block_right_behind_it() -> None:
    first, second = examples("```sh\na\n```\n\n```json\n1\n```\n\n```sh\nb\n```\n\n```toml\nc\n```\n")
    assert first.shown == Block("json", "1\n")
    assert second.shown is None


def test_a_link_to_a_file_or_a_heading_that_is_not_there_is_broken(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Here it is\n")
    page = tmp_path / "page.md"
    page.write_text("[a](other.md#here-it-is) [b](other.md#not) [c](no.md) [d](http://elsewhere.example/x)\n")
    assert broken_links(page) == ["other.md#not", "no.md"]
