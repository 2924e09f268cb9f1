"""What a benchmark ran on: the machine, and the versions of what took part."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "transformers", "triton", "grpcio", "msgspec", "pagoda-chat")
CPU_FLAGS = ("avx2", "avx_vnni", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16", "amx_int8")
"""Instructions that kernels, ours or others', are chosen by; named as in /proc/cpuinfo."""


def machine() -> dict[str, Any]:
    """Processor and which of CPU_FLAGS it has, cores this process may use, GPU (None without), memory in GiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    processor = _processor()
    flags = processor.get("flags", "").split()
    return {
        "cpu": processor.get("model name", platform.processor()),
        "cpu_flags": [flag for flag in CPU_FLAGS if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "gpu": _gpu_name(),
        "memory_gib": round(memory / 2**30, 1),
    }


def versions() -> dict[str, str]:
    """Of Python and of those PACKAGES that are installed; ``commit``, in a git checkout, ends in -dirty if changed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit(ROOT)
    return found | ({"commit": commit} if commit else {})


def _processor() -> dict[str, str]:
    """The first processor's lines in /proc/cpuinfo."""
    first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _gpu_name() -> str | None:
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _commit(folder: Path) -> str | None:
    """The commit that ``folder`` has checked out; None where it is no checkout of its own, or there is no git."""
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return asked.stdout.strip() or None
