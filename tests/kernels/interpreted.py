"""Triton kernels run on this machine's processor: in a process of their own, where Triton interprets them.

Triton decides at the definition of a kernel whether it is interpreted or compiled, and interpreting one changes
triton.language for the whole process. So the process of the tests stays the compiling one, and what is to be
interpreted is called in a worker that has TRITON_INTERPRET set before it imports Triton:

    outputs = interpreted(paged_attention)(query, key_pool, value_pool, batch, scaling=0.3)

Tensors travel as shared memory: what a function writes into its arguments is seen by the caller.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import wraps
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_worker: ProcessPoolExecutor | None = None


def interpreted(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``function``, of a module's top level, called in the worker; its exceptions are raised here.

    A worker that dies (a kernel that reads outside of every allocation) is BrokenProcessPool for that call alone.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        global _worker
        if _worker is None:
            _worker = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_interpret)
        try:
            return _worker.submit(function, *arguments, **keywords).result()
        except BrokenProcessPool:
            _worker = None
            raise

    return call


def _interpret() -> None:
    assert "triton" not in sys.modules, "Triton was imported before it was told to interpret"
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    _multiply_bfloat16()
    _patch_once()


def _multiply_bfloat16() -> None:
    """Make tl.dot of bfloat16 right: Triton 3.9 interprets it as a product of the bit patterns, as integers."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    create_dot = InterpreterBuilder.create_dot

    def dot(self, a, b, *others):  # type: ignore[no-untyped-def]
        exact = [self.cast_impl(each, tl.float32) if each.dtype.scalar == tl.bfloat16 else each for each in (a, b)]
        return create_dot(self, *exact, *others)

    InterpreterBuilder.create_dot = dot


def _patch_once() -> None:
    """Spare every call within a kernel the milliseconds in which Triton 3.9 patches triton.language once more.

    The launch has patched it. Only triton.language.core is left to the first function of triton.language that is
    called, and stays patched.
    """
    from triton.runtime import interpreter
    from triton.runtime.errors import InterpreterError

    patched: set[str] = set()

    def call(self, *arguments, **keywords):  # type: ignore[no-untyped-def]
        module = self.fn.__module__
        if module.startswith("triton.") and module not in patched:
            interpreter._patch_lang(self.fn)
            patched.add(module)
        try:
            return self.rewrite()(*arguments, **keywords)
        except Exception as error:
            raise InterpreterError(repr(error)) from error

    interpreter.InterpretedFunction.__call__ = call
