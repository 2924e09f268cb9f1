"""Which set of kernels a device gets, and what is imported for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from pagoda_kernels import cpu_kernels, gpu_kernels, kernels_for, layer_reference, reference
from pagoda_kernels.triton_kernels import triton_kernels

CUDA = torch.device("cuda")


def test_a_cuda_device_gets_triton_kernels_for_everything() -> None:
    kernels = gpu_kernels(CUDA)
    assert kernels.name == "triton"
    for function in ("write_kv", "copy_blocks", "gather_blocks", "scatter_blocks", "paged_attention"):
        assert getattr(kernels, function) is not getattr(reference, function)
        assert getattr(kernels, function).__module__.startswith("pagoda_kernels.triton_")
    assert kernels.layers is not None
    for function in ("rms_norm", "rotate", "gated_activation", "sample"):
        assert getattr(kernels.layers, function) is not getattr(layer_reference, function)
    assert kernels.read_blocks is not None


def test_each_kind_of_device_gets_its_own(build_home) -> None:
    assert kernels_for(CUDA, build_home).name == "triton"
    assert kernels_for(torch.device("cpu"), build_home).name == cpu_kernels(build_home).name
    assert kernels_for(torch.device("mps"), build_home).name == "torch"
    with pytest.raises(ValueError, match="not cpu"):
        triton_kernels(torch.device("cpu"))


def printed(script: str) -> subprocess.CompletedProcess[str]:
    """What ``script`` prints, in a process of its own."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)


def test_without_triton_a_cuda_device_runs_on_plain_torch_and_says_so() -> None:
    process = printed(
        "import sys, torch\n"
        "sys.modules['triton'] = None\n"
        "from pagoda_kernels import gpu_kernels\n"
        "print(gpu_kernels(torch.device('cuda')).name)"
    )
    assert process.stdout.strip() == "torch"
    assert "Triton cannot be imported" in process.stderr


def test_a_cpu_never_imports_triton(build_home) -> None:
    process = printed(
        "import sys, pathlib, torch, pagoda_kernels, pagoda_kernels.triton_kernels\n"
        f"pagoda_kernels.kernels_for(torch.device('cpu'), pathlib.Path({str(build_home)!r}))\n"
        "print('triton' in sys.modules)"
    )
    assert process.stdout.strip() == "False"
