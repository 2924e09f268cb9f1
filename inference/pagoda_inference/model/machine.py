"""What this machine has: device, number format, cores, memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from pagoda_inference.model.errors import ModelLoadError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """auto: the first GPU where there is one. Raises ModelLoadError for a device that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ModelLoadError(f"There is no device {name!r}: use auto, cpu, cuda or cuda:N.") from None
    if device.type not in ("cpu", "cuda") or (device.type == "cuda" and not torch.cuda.is_available()):
        raise ModelLoadError(f"The device {name!r} is not available here: use auto or cpu.")
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """auto: bfloat16 where the device multiplies it in hardware, else float32. Raises ModelLoadError."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" or _cpu_flags() & {"avx512_bf16", "amx_bf16"} else torch.float32
    if name not in _DTYPES:
        raise ModelLoadError(f"There is no dtype {name!r}: use auto, {', '.join(_DTYPES)}, or on a CPU int8 or q4.")
    return _DTYPES[name]


def physical_cores() -> int:
    """Cores that this process may use, hardware threads of one core counted once: matrix work gains nothing of two."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text().strip() if siblings.exists() else str(cpu))
    return max(1, len(cores))


def available_memory(device: torch.device) -> int:
    """Bytes that this process may still take: of the GPU, or of main memory and its control group."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            available = min(available, int(limit) - int((group / "memory.current").read_text()))
    except (OSError, ValueError):
        pass  # no control group, or an older kind
    return max(0, available)


def return_freed_memory() -> None:
    """Give the system back what the C library keeps of freed memory for its next use. Nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split(":", 1)[1].split()) for line in lines if line.startswith("flags")), set())
