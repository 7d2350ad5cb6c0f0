"""Both twins of the functions that touch every row, for tests that must hold for each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

from tailrace.spark.codec import decoding, encoding, partition


@pytest.fixture(params=["pure", "compiled"], scope="module")
def twin(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Makes decode, encode and partition_rows work through one twin; skipped where it is not built.

    Of module scope, so that generated examples may share it.
    """
    try:
        module = importlib.import_module(f"tailrace.spark.codec._{request.param}")
    except ImportError as error:
        pytest.skip(f"the compiled twin is not built: {error}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "read_columns", module.read_columns)
        patch.setattr(encoding, "write_payloads", module.write_payloads)
        patch.setattr(partition, "hash_keys", module.hash_keys)
        yield module
