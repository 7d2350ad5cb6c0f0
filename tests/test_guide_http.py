"""The guide of the HTTP API as a newcomer follows it: its commands and its program run, on other ports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.document import ROOT, Caller, broken_links, examples, running_node

GUIDE = ROOT / "docs" / "guide" / "http.md"
EXAMPLES = examples(GUIDE.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_guide_leads_from_a_topic_to_an_acknowledged_message(tmp_path: Path) -> None:
    start, *others = EXAMPLES
    assert start.text == "make install\n.venv/bin/tailrace up\n"
    with running_node(tmp_path) as ports:
        caller = Caller(tmp_path, ports)
        for example in others:
            caller.play(example)
        (ack,) = [each for each in others if "/ack" in each.text]
        assert caller.run(ack) == '{"acknowledged":0}', "it was done with before"


def test_links_lead_somewhere() -> None:
    assert broken_links(GUIDE) == []
