"""Data of the formats of version 0.2, opened with the present code: the tests of 0.1 with this directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.golden import test_data_0_1
from tests.golden.opening import DATA_0_2

globals().update({name: value for name, value in vars(test_data_0_1).items() if not name.startswith("__")})


@pytest.fixture(scope="module", name="directory")
def golden_directory() -> Path:
    return DATA_0_2
