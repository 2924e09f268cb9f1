"""What is asked of the machine."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

import pytest
import torch

from pagoda_inference.model.machine import return_freed_memory

glibc = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim")


def resident_mib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.skipif(not glibc, reason="needs glibc")
def test_freed_memory_goes_back_to_the_system() -> None:
    gc.collect()  # what other tests have left would leave room below
    return_freed_memory()
    tensors = [torch.ones(24 << 10) for _ in range(3000)]  # 96 KiB each: small enough that the C library keeps them
    most = resident_mib()
    last = tensors.pop()
    tensors.clear()  # below ``last``, so that nothing can be cut off the end
    kept = resident_mib()
    return_freed_memory()
    assert most - resident_mib() > 200
    assert most - kept < 100, "the C library returned it by itself, and this test shows nothing"
    assert float(last.sum()) == 24 << 10
