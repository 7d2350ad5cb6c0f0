"""The limit on open files, shared out between partitions and connections."""

from __future__ import annotations

import resource

import pytest

from tailrace.server import descriptors


@pytest.mark.parametrize(("soft", "expected"), [(1024, 448), (20_000, 9936), (100, 1)])
def test_half_of_the_files_are_for_partitions(
    monkeypatch: pytest.MonkeyPatch, soft: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptors.partitions_max() == expected


def test_no_limit_is_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert descriptors.partitions_max() > 100_000


def test_the_soft_limit_is_raised_to_the_hard_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    descriptors.raise_limit()
    assert asked == [(4096, 4096)]


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, __: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    descriptors.raise_limit()
