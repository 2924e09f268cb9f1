"""Compiling the native kernels once per machine: seconds, under a lock, into a folder of the caller's."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

_SOURCES = Path(__file__).parent
# -march=native gives the machine's vectors. No -ffast-math: it would reorder sums and lose NaN and infinity.
_FLAGS = ["-O3", "-march=native", "-fopenmp", "-fPIC", "-std=c++17", "-fno-math-errno", "-fno-trapping-math"]
_LONGEST_BUILD_S = 300


class BuildError(Exception):
    """The native kernels cannot be built here: no compiler, or it failed. The text says which."""


def build(folder: Path, flags: Sequence[str] = ()) -> Path:
    """The shared library, compiled into ``folder`` where it is not there yet. Safe against concurrent builds.

    Its name is a hash of sources, compiler, flags and CPU, so that a change of any of them builds anew.
    flags: further ones for the compiler, such as -mno-avx512bf16 for the code of another processor.
    Raises BuildError.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    if compiler is None:
        raise BuildError("there is no C++ compiler (g++ or clang++)")
    library = folder / f"pagoda_kernels-{_identity(compiler, flags)}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".pagoda_kernels.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(compiler, library, flags)
    return library


def _identity(compiler: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.glob("*.h")) + sorted(_SOURCES.glob("*.cpp")):
        digest.update(source.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    for part in (version, *_FLAGS, *flags, platform.machine(), _cpu(), torch.__version__):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]


def _cpu() -> str:
    """Model and features of the CPU: a home that moves to another machine must not bring its vectors along."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines if line.startswith(("model name", "flags", "Features")))


def _compile(compiler: str, library: Path, flags: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".build-") as scratch:
        compiled, linked = Path(scratch, "kernels.o"), Path(scratch, "kernels.so")
        commands = [
            [compiler, *_FLAGS, *flags, "-c", str(_SOURCES / "kernels.cpp"), "-o", str(compiled)],
            [compiler, "-shared", str(compiled), *_openmp(), "-o", str(linked)],
        ]
        for command in commands:
            try:
                outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_BUILD_S)
            except subprocess.TimeoutExpired:
                raise BuildError(f"{compiler} took longer than {_LONGEST_BUILD_S} s") from None
            if outcome.returncode:
                raise BuildError(f"{' '.join(command)} failed: {outcome.stderr.strip()[-2000:]}")
        os.replace(linked, library)


def _openmp() -> list[str]:
    """Link torch's own OpenMP: with a second runtime the two thread pools would fight for the cores."""
    bundled = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return [str(bundled[0])] if bundled else ["-fopenmp"]
