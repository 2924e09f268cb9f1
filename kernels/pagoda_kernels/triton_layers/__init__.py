"""What a model's step needs besides attention, for GPUs, in Triton: KV written, blocks moved, layers, sampling."""

from pagoda_kernels.triton_layers.block_copy import copy_blocks
from pagoda_kernels.triton_layers.block_transfer import gather_blocks, read_blocks, scatter_blocks, write_blocks
from pagoda_kernels.triton_layers.gates import gated_activation
from pagoda_kernels.triton_layers.kv_write import write_kv
from pagoda_kernels.triton_layers.normalisation import rms_norm
from pagoda_kernels.triton_layers.rotary import rotate
from pagoda_kernels.triton_layers.sampling import sample

__all__ = [
    "copy_blocks",
    "gated_activation",
    "gather_blocks",
    "read_blocks",
    "rms_norm",
    "rotate",
    "sample",
    "scatter_blocks",
    "write_blocks",
    "write_kv",
]
