"""Where native kernels are built for tests: with the rest of what is generated, so that one build serves all runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def build_home() -> Path:
    return Path(os.environ.get("PAGODA_HOME", Path(__file__).parents[3] / "var"))
