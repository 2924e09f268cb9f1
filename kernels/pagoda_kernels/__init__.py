"""Paged attention kernels: a plain-torch reference, a native implementation for CPUs, and one in Triton for GPUs."""

from pagoda_kernels.batch import PagedBatch
from pagoda_kernels.kernels import Kernels, cpu_kernels, gpu_kernels, kernels_for, torch_kernels

__all__ = ["Kernels", "PagedBatch", "cpu_kernels", "gpu_kernels", "kernels_for", "torch_kernels"]
