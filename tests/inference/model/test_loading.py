"""What PAGODA_MODEL may name, and that everything else is one clear sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model import loading, machine
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.echo import EchoBackend
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.loading import load_model
from pagoda_inference.protocol import ChatMessage
from tests.inference.model.model_folders import write_safetensors
from tests.inference.tiny_tokenizers import tokenizer


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder as a hub has them."""
    return write_safetensors(tmp_path_factory.mktemp("models") / "tiny-llama")


def load(model: Path | str, home: Path, **settings: Any) -> Any:
    return load_model(str(model), home=home, **{"pool_tokens": 256, "dtype": "float32", "device": "cpu", **settings})


def sentence(model: Path | str, home: Path, **settings: Any) -> str:
    with pytest.raises(ModelLoadError) as raised:
        load(model, home, **settings)
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_folder_is_loaded_and_serves(tiny_folder: Path, build_home: Path) -> None:
    backend, chat, model_id = load(tiny_folder, build_home)
    assert model_id == "tiny-llama"
    assert (backend.total_blocks, backend.block_size, backend.context_length) == (16, 16, 256)
    assert backend.bytes_per_block == 16 * 3 * 2 * 2 * 8 * 4  # tokens, layers, heads, key and value, size, float32
    assert backend.vocabulary_size == len(tokenizer("byte_level"))
    assert (backend.dtype, backend.device) == ("float32", "cpu")
    prompt = chat.encode_chat([ChatMessage("user", "Hello")])
    [token] = backend.run([Chunk(prompt, 0, [3, 1, 2], Sampler())])
    assert isinstance(token, int)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_halves_the_pool(tiny_folder: Path, build_home: Path, dtype: str) -> None:
    backend, _, _ = load(tiny_folder, build_home, dtype=dtype)
    assert backend.dtype == dtype
    assert backend.bytes_per_block == 16 * 3 * 2 * 2 * 8 * 2


def test_echo_needs_no_files(tmp_path: Path) -> None:
    backend, chat, model_id = load("echo", tmp_path, block_size=4, context_length=100)
    assert isinstance(backend, EchoBackend)
    assert (model_id, backend.total_blocks, backend.context_length) == ("echo", 64, 100)
    assert chat.decode(chat.encode("가")) == "가"


def test_the_pool_of_echo_may_be_given_in_gib(tmp_path: Path) -> None:
    backend, _, _ = load("echo", tmp_path, pool_tokens=None, pool_gib=0.001)
    assert backend.total_blocks == int(0.001 * 2**30) // backend.bytes_per_block


def test_a_wrong_path(tmp_path: Path) -> None:
    assert "no model at" in sentence(tmp_path / "missing", tmp_path)
    assert "no model" in sentence(tmp_path, tmp_path)  # an empty folder
    (tmp_path / "notes.txt").write_text("hello")
    assert "*.gguf" in sentence(tmp_path / "notes.txt", tmp_path)


def test_a_hub_id_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    text = sentence("nobody/nothing", tmp_path)
    assert "No model could be read at nobody/nothing" in text
    assert "check the id and the network" in text


def test_a_broken_gguf_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"not a gguf")
    assert "could not be converted" in sentence(tmp_path / "broken.gguf", tmp_path)
    assert [path.name for path in (tmp_path / "models").iterdir() if not path.name.endswith(".lock")] == []


def test_a_model_too_large_for_the_memory(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_memory", lambda device: 1000)
    assert "only 0.0 GiB of memory are available" in sentence(tiny_folder, tmp_path)


def test_a_pool_too_large_for_the_memory(tiny_folder: Path, build_home: Path) -> None:
    assert "make the pool smaller" in sentence(tiny_folder, build_home, pool_tokens=None, pool_gib=100_000)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dtype": "int3"}, "no dtype"),
        ({"device": "tpu"}, "no device"),
        ({"device": "cuda:99"}, "not available"),
        ({"block_size": 0}, "block size"),
        ({"context_length": 1000}, "model's own, 256"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str, tiny_folder: Path, build_home: Path) -> None:
    if settings.get("device") == "cuda:99" and torch.cuda.is_available():
        pytest.skip("this machine has GPUs")
    assert words in sentence(tiny_folder, build_home, **settings)


def test_importing_what_the_scheduler_needs_does_not_import_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, pagoda_inference.model.backend, pagoda_inference.model.echo, pagoda_inference.model.loading\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_model_is_the_one_of_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "prepare_default_model", lambda home: home / "models" / "Default")
    assert loading.find_model("", tmp_path) == (str(tmp_path / "models" / "Default"), "Default")
