"""The kernels that this machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagoda_kernels import cpu_kernels
from pagoda_kernels.native.library import NativeLibrary


@pytest.fixture(scope="session")
def build_home() -> Path:
    return Path(os.environ.get("PAGODA_HOME", Path(__file__).parents[2] / "var"))


@pytest.fixture(scope="session")
def native(build_home: Path) -> NativeLibrary:
    library = cpu_kernels(build_home).native
    if library is None:
        pytest.skip("no C++ compiler")
    return library
