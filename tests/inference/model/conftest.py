"""Native kernels, built with the rest of what is generated, so that one build serves all runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagoda_kernels import Kernels, cpu_kernels


@pytest.fixture(scope="session")
def build_home() -> Path:
    return Path(os.environ.get("PAGODA_HOME", Path(__file__).parents[3] / "var"))


@pytest.fixture(scope="session")
def kernels(build_home: Path) -> Kernels:
    kernels = cpu_kernels(build_home)
    if kernels.native is None:
        pytest.skip("no C++ compiler")
    return kernels
