"""What these tests share: a broker of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tailrace


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    """A broker in memory with both listeners, where nothing is that a test did not create."""
    with tailrace.Broker(configs={"auto.create.topics.enable": False}) as broker:
        yield broker
