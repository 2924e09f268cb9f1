"""What a Triton kernel takes of a GPU, found by compiling it for that GPU: no GPU is needed.

    resources = compile_ahead(rms_norm_kernel, 90, {"inputs": "*bf16:16", ..., "size": "i32:16"}, {"BLOCK": 1024})
    assert resources.spilled_bytes == 0

A kernel's module is imported without TRITON_INTERPRET for this. Results are kept in Triton's own cache of compiled
kernels, so that a kernel that has not changed is only assembled again.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.compiler import ASTSource

ARCHITECTURES = (80, 90, 100)
"""A100, H100 and H200, B200."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Per thread registers, and bytes of spilled registers (stores and loads together); per program, shared memory."""

    registers: int
    spilled_bytes: int
    shared_bytes: int


def compile_ahead(
    kernel: triton.JITFunction,
    architecture: int,
    signature: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    num_warps: int = 4,
    num_stages: int = 3,
) -> Resources:
    """Compile ``kernel`` for sm_``architecture``.

    signature: of every argument that is no constant, the type ("*bf16", "i32", "fp32"), with ":16" behind it where the
    launch finds the pointer or the number divisible by 16. constants: constexpr arguments, and what the launch makes
    constant: a stride of 1, an optional pointer that is None. Raises KeyError for an argument in neither.
    """
    names = kernel.arg_names
    types = {name: "constexpr" if name in constants else signature[name].partition(":")[0] for name in names}
    divisible = [name for name in names if name not in constants and signature[name].endswith(":16")]
    source = ASTSource(
        fn=kernel,
        signature=types,
        constexprs={name: constants[name] for name in names if name in constants},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in divisible},
    )
    target = GPUTarget("cuda", architecture, 32)
    options = {"num_warps": num_warps, "num_stages": num_stages, "enable_fp_fusion": True}
    compiled = triton.compile(source, target=target, options=options)
    registers, spilled = _assemble(compiled.asm["ptx"], architecture)
    return Resources(registers, spilled, compiled.metadata.shared)


def _assemble(ptx: str, architecture: int) -> tuple[int, int]:
    """Registers and spilled bytes that the assembler reports for PTX of one kernel, assembled as Triton does it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [
            get_ptxas(architecture).path,
            "-v",
            "--regAllocOptLevel=2",
            f"--gpu-name={sm_arch_from_capability(architecture)}",
            str(source),
            "-o",
            str(source.with_suffix(".cubin")),
        ]
        report = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    registers = re.findall(r"Used (\d+) registers", report)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert len(registers) == 1, report
    return int(registers[0]), sum(int(stored) + int(loaded) for stored, loaded in spills)
