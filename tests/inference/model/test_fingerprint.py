"""Weights are told apart by what they are, not by the folder's name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pagoda_inference.model.fingerprint import folder_fingerprint

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "one" / "chat"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"layers": 2}')
    (folder / "model-1.safetensors").write_bytes(os.urandom(3 * MIB + 17))
    (folder / "model-2.safetensors").write_bytes(os.urandom(1000))
    return folder


def test_a_copy_in_another_place_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "other-name")

    assert folder_fingerprint(tmp_path / "other-name") == folder_fingerprint(folder)


def test_another_model_put_under_the_same_name_is_noticed(folder: Path) -> None:
    before = folder_fingerprint(folder)
    size = (folder / "model-1.safetensors").stat().st_size
    (folder / "model-1.safetensors").write_bytes(os.urandom(size))

    assert folder_fingerprint(folder) != before


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_change_within_a_third_of_the_weights_is_noticed(folder: Path, part: int) -> None:
    before = folder_fingerprint(folder)
    with (folder / "model-1.safetensors").open("r+b") as file:
        file.seek(part * MIB)
        file.write(os.urandom(MIB))

    assert folder_fingerprint(folder) != before


def test_the_configuration_and_every_file_count(folder: Path) -> None:
    seen = {folder_fingerprint(folder)}
    (folder / "config.json").write_text('{"layers": 3}')
    seen.add(folder_fingerprint(folder))
    (folder / "model-2.safetensors").write_bytes(b"small")
    seen.add(folder_fingerprint(folder))
    (folder / "model-2.safetensors").unlink()
    seen.add(folder_fingerprint(folder))

    assert len(seen) == 4


def test_notes_beside_the_weights_do_not_count(folder: Path) -> None:
    before = folder_fingerprint(folder)
    (folder / "README.md").write_text("a model")

    assert folder_fingerprint(folder) == before
