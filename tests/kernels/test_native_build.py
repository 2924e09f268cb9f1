"""The native library is built once, by whoever comes first; without a compiler everything runs on plain torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pagoda_kernels import cpu_kernels
from pagoda_kernels.native import build as native_build


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Counts compilations, which only write a file here."""
    calls: list[Path] = []

    def compile_(compiler: str, library: Path, flags: Sequence[str]) -> None:
        calls.append(library)
        library.write_bytes(b"library")

    monkeypatch.setattr(native_build, "_compile", compile_)
    return calls


def test_concurrent_builds_compile_once(tmp_path: Path, compilations: list[Path]) -> None:
    with ThreadPoolExecutor(4) as threads:
        libraries = set(threads.map(lambda _: native_build.build(tmp_path / "build"), range(4)))
    assert len(compilations) == len(libraries) == 1


def test_another_cpu_builds_anew(tmp_path: Path, compilations: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = native_build.build(tmp_path)
    monkeypatch.setattr(native_build, "_cpu", lambda: "model name: another")
    assert native_build.build(tmp_path) != first
    assert len(compilations) == 2


def test_other_flags_build_anew(tmp_path: Path, compilations: list[Path]) -> None:
    assert native_build.build(tmp_path, ["-mno-avx512bf16"]) != native_build.build(tmp_path)
    assert len(compilations) == 2


def test_without_a_compiler_the_kernels_are_plain_torch_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert cpu_kernels(tmp_path).name == "torch"
    assert "no C++ compiler" in caplog.text


def test_a_failing_compiler_is_told_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "bad-compiler"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho 'no such vector' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(native_build.BuildError, match="no such vector"):
        native_build.build(tmp_path / "build")
