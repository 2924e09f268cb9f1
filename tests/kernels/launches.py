"""What a function launches for tensors without memory, recorded in place of running it, and compiled for a GPU as
Triton would for its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import triton

from tests.kernels.ahead_of_time import Resources, compile_ahead

TYPES = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@dataclass
class Launch:
    kernel: triton.JITFunction
    grid: tuple[int, ...]
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__

    def compiled(self, architecture: int) -> Resources:
        """Tensors are aligned; 1 is a constant, and multiples of 16 are known to be some, where Triton looks."""
        arguments = dict(self.arguments)
        options = {name: arguments.pop(name) for name in ("num_warps", "num_stages") if name in arguments}
        constexprs = {parameter.name for parameter in self.kernel.params if parameter.is_constexpr}
        unspecialized = {parameter.name for parameter in self.kernel.params if parameter.do_not_specialize}
        signature: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                signature[name] = TYPES[value.dtype] + ":16"
            elif name in constexprs or value is None:
                constants[name] = value
            elif isinstance(value, float):
                signature[name] = "fp32"
            elif value == 1 and name not in unspecialized:
                constants[name] = value
            else:
                width = "i32" if value < 2**31 else "i64"
                signature[name] = width + (":16" if value % 16 == 0 and name not in unspecialized else "")
        return compile_ahead(self.kernel, architecture, signature, constants, **options)


def launches_of(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> list[Launch]:
    """Call ``function``; its kernels do not run."""
    launches: list[Launch] = []

    def record(kernel: triton.JITFunction, *values: Any, grid: tuple[int, ...], warmup: bool, **named: Any) -> None:
        options = {name: named.pop(name) for name in list(named) if name not in kernel.arg_names}
        bound = inspect.signature(kernel.fn).bind(*values, **named).arguments
        launches.append(Launch(kernel, grid, {**bound, **options}))

    with patch.object(triton.JITFunction, "run", record):
        function(*arguments, **keywords)
    return launches
