"""Both twins of the hot record functions, for tests that must hold for each."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from tailrace.records import batch, builder


@pytest.fixture(params=["pure", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    """The module of one twin; the compiled one is skipped where it is not built."""
    try:
        return importlib.import_module(f"tailrace.records._{request.param}")
    except ImportError as error:
        pytest.skip(f"the compiled twin is not built: {error}")


@pytest.fixture
def each_twin(twin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Makes Batch.records, build_batch and rebuild_batch work through that twin."""
    monkeypatch.setattr(batch, "decode_records", twin.decode_records)
    monkeypatch.setattr(builder, "encode_records", twin.encode_records)
    monkeypatch.setattr(builder, "encode_kept", twin.encode_kept)
    return twin
