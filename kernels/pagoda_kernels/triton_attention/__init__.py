"""Paged attention for GPUs, in Triton: decodes split along their contexts, and prefill chunks."""

from pagoda_kernels.triton_attention.launch import paged_attention

__all__ = ["paged_attention"]
