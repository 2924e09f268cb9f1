"""``pagoda-inference serve`` as a process of its own with a real model: its last words are its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.inference.model.model_folders import write_safetensors

PROGRAM = (sys.executable, "-c", "from pagoda_inference.command import main; main()")


@pytest.fixture
def socket() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pagoda-") as folder:
        yield f"unix:{folder}/engine.sock"


def serving(model: Path, socket: str) -> subprocess.Popen[str]:
    settings = ("--dtype", "float32", "--device", "cpu", "--pool-tokens", "256")
    return subprocess.Popen(
        [*PROGRAM, "serve", "--model", str(model), "--address", socket, *settings], stderr=subprocess.PIPE, text=True
    )


def test_a_stop_ends_with_its_log(tmp_path: Path, build_home: Path, socket: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAGODA_HOME", str(build_home))
    process = serving(write_safetensors(tmp_path / "model"), socket)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "ready":
            process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    assert [line["event"] for line in lines if line["event"] in ("ready", "stopping")] == ["ready", "stopping"]


def test_an_error_ends_with_its_sentence(
    tmp_path: Path, build_home: Path, socket: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PAGODA_HOME", str(build_home))
    model = write_safetensors(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    process = serving(model, socket)
    _, written = process.communicate()
    assert process.returncode == 2
    *log, sentence = written.splitlines()
    assert all(json.loads(line) for line in log)
    assert sentence.startswith("pagoda-inference: ")
    assert "makes no use of model.layers.2." in sentence
