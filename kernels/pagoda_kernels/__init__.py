"""Paged attention kernels: a plain-torch reference, and a native implementation for CPUs."""

from pagoda_kernels.batch import PagedBatch
from pagoda_kernels.kernels import Kernels, cpu_kernels, torch_kernels

__all__ = ["Kernels", "PagedBatch", "cpu_kernels", "torch_kernels"]
