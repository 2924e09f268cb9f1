"""A model of the hub without a network: one attempt, then the cache, or one sentence."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.loading import load_model
from tests.inference.model.model_folders import write_safetensors

REVISION = "0" * 40


class DeadHub:
    """Takes requests and hangs up on each. asked: the paths of those for a model's files."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._hang_up, daemon=True)
        self._thread.start()

    def _hang_up(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                path = lines.readline().decode().split(" ")[1]
                if "/resolve/" in path:
                    self.asked.append(path)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def dead_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[DeadHub]:
    hub = DeadHub()
    constants = "huggingface_hub.constants"
    monkeypatch.setattr(f"{constants}.ENDPOINT", hub.address)
    monkeypatch.setattr(
        f"{constants}.HUGGINGFACE_CO_URL_TEMPLATE", hub.address + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(f"{constants}.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(f"{constants}.HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield hub
    hub.close()


def load(model: str, home: Path) -> Any:
    return load_model(model, home=home, pool_tokens=256, dtype="float32", device="cpu")


def test_a_model_that_is_not_cached_is_one_attempt_and_one_sentence(dead_hub: DeadHub, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError) as raised:
        load("nobody/nothing", tmp_path)
    text = str(raised.value)
    assert text.startswith("No model could be read at nobody/nothing (the hub does not answer: ")
    assert text.endswith("check the id and the network, or download it and name the folder.")
    assert dead_hub.asked == ["/nobody/nothing/resolve/main/config.json"]


def test_a_cached_model_is_served_without_further_attempts(dead_hub: DeadHub, tmp_path: Path, build_home: Path) -> None:
    stored = tmp_path / "cache/models--somebody--tiny"
    write_safetensors(stored / "snapshots" / REVISION)
    (stored / "refs").mkdir()
    (stored / "refs/main").write_text(REVISION)
    backend, _, model_id = load("somebody/tiny", build_home)
    assert (model_id, backend.total_blocks) == ("somebody/tiny", 16)
    assert dead_hub.asked == ["/somebody/tiny/resolve/main/config.json"]


def test_where_the_process_is_offline_already_nobody_is_asked(
    dead_hub: DeadHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="No model could be read at nobody/nothing"):
        load("nobody/nothing", tmp_path)
    assert not dead_hub.asked
