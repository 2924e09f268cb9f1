"""Devices that are simulated, by their data sheets.

A100: NVIDIA A100 Tensor Core GPU data sheet (2021): 40 GB at 1,555 GB/s, 80 GB at 2,039 GB/s (SXM), 312 TFLOP/s in
16-bit tensor cores, NVLink 600 GB/s in both directions together, PCIe 4.0 x16. H200: NVIDIA H200 data sheet (2024):
141 GB at 4.8 TB/s, 989 TFLOP/s dense, NVLink 900 GB/s, PCIe 5.0 x16.
"""

from __future__ import annotations

from dataclasses import dataclass

GB = 1e9
GIB = 2**30


@dataclass(frozen=True)
class Device:
    """Rates per second, of one direction where there are two. memory_bytes: what the device has."""

    name: str
    memory_bytes: float
    memory_bytes_per_s: float
    flops_per_s: float
    link_bytes_per_s: float
    host_bytes_per_s: float


A100_40GB = Device("A100-40GB", 40 * GB, 1555 * GB, 312e12, 300 * GB, 32 * GB)
A100_80GB = Device("A100-80GB", 80 * GB, 2039 * GB, 312e12, 300 * GB, 32 * GB)
H200 = Device("H200", 141 * GB, 4800 * GB, 989e12, 450 * GB, 64 * GB)
DEVICES = {device.name: device for device in (A100_40GB, A100_80GB, H200)}
