"""Where native kernels are built, as in the tests of models."""

from tests.inference.model.conftest import build_home

__all__ = ["build_home"]
