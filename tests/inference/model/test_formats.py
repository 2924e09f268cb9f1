"""The same model in every format gives the same logits; what is damaged or does not fit is one clear sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Chunk
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.loading import load_model
from pagoda_inference.protocol import ChatMessage
from tests.inference.model.model_folders import (
    tiny_llama,
    write_bin,
    write_gguf,
    write_mxfp4,
    write_safetensors,
    write_sharded,
)
from tests.inference.tiny_tokenizers import tokenizer


def load(model: Path, home: Path) -> Any:
    return load_model(str(model), home=home, pool_tokens=256, dtype="float32", device="cpu")


def sentence(model: Path, home: Path) -> str:
    with pytest.raises(ModelLoadError) as raised:
        load(model, home)
    text = str(raised.value)
    assert "\n" not in text
    return text


def gguf_folder(folder: Path) -> Path:
    folder.mkdir()
    return write_gguf(folder / "model.gguf").parent


def gguf_file(folder: Path) -> Path:
    return gguf_folder(folder) / "model.gguf"


@pytest.mark.parametrize("write", [write_safetensors, write_sharded, write_bin, gguf_folder, gguf_file])
def test_every_format_gives_the_same_model(write: Callable[[Path], Path], tmp_path: Path, build_home: Path) -> None:
    # GGUF files are converted under the home, native kernels built there.
    (tmp_path / "home").mkdir()
    (tmp_path / "home/build").symlink_to(build_home / "build")
    backend, chat, _ = load(write(tmp_path / "model"), tmp_path / "home")
    prompt = chat.encode_chat([ChatMessage("user", "Hello, 안녕")])
    assert (
        prompt
        == tokenizer("byte_level").apply_chat_template(
            [{"role": "user", "content": "Hello, 안녕"}], add_generation_prompt=True
        )["input_ids"]
    )
    ours = backend.logits([Chunk(prompt, 0, [3, 1, 2, 4, 5], Sampler())], [0])
    with torch.inference_mode():
        expected = tiny_llama()(torch.tensor([prompt]), use_cache=False).logits[0, -1:]
    assert float((ours - expected).abs().max() / expected.abs().max()) < 1e-4
    assert chat.eos_token_ids == {tokenizer("byte_level").eos_token_id}


def test_experts_in_four_bits_are_widened(tmp_path: Path, build_home: Path) -> None:
    from transformers import AutoModelForCausalLM

    backend, _, _ = load(write_mxfp4(tmp_path / "model"), build_home)
    tokens = [(7 * index) % 300 for index in range(40)]
    ours = backend.logits([Chunk(tokens, 0, [3, 1, 2], Sampler())], [0])
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32, attn_implementation="eager")
    with torch.inference_mode():
        expected = model.eval()(torch.tensor([tokens]), use_cache=False).logits[0, -1:]
    assert expected.abs().max() > 1e-3
    assert float((ours - expected).abs().max() / expected.abs().max()) < 1e-4


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    write_safetensors(folder / "safetensors")
    write_sharded(folder / "sharded")
    write_bin(folder / "bin")
    return folder


def cut(name: str, share: float) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = sorted(folder.glob(name))[-1]
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return damage


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: [path.unlink() for path in folder.glob(name)] and None


def configure(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return damage


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def without_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_a_bias(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.q_proj.bias"] = torch.ones(len(tensors["model.layers.1.self_attn.q_proj.weight"]))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def not_numbers(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"].fill_(torch.nan)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def longer_tokenizer(folder: Path) -> None:
    fast = tokenizer("byte_level")
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["added_tokens"].append(
        {**definition["added_tokens"][0], "id": len(fast), "content": "<tool>", "special": False}
    )
    (folder / "tokenizer.json").write_text(json.dumps(definition))


DAMAGES: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "safetensors, empty": ("safetensors", cut("model.safetensors", 0), "is no safetensors file or is cut off"),
    "safetensors, cut in the header": ("safetensors", cut("model.safetensors", 0.01), "is cut off: copy or download"),
    "safetensors, cut in the middle": ("safetensors", cut("model.safetensors", 0.5), "is not whole"),
    "safetensors, cut at the end": ("safetensors", cut("model.safetensors", 0.9999), "is not whole"),
    "safetensors, another file": ("safetensors", write("model.safetensors", "<html>" * 99), "is no safetensors file"),
    "safetensors, a tensor missing": ("safetensors", without_a_tensor, "there is no model.layers.1.mlp.up_proj.weight"),
    "safetensors, not numbers": ("safetensors", not_numbers, "are not numbers"),
    "shard cut": ("sharded", cut("model-*.safetensors", 0.7), "is not whole"),
    "shard missing": ("sharded", remove("model-00002*"), "model-00002-of-00007.safetensors is missing"),
    "index cut": ("sharded", cut("*.index.json", 0.5), "index.json is not whole"),
    "index missing": ("sharded", remove("*.index.json"), "has no weights by the names"),
    "bin cut": ("bin", cut("pytorch_model.bin", 0.6), "pytorch_model.bin is cut off"),
    "bin empty": ("bin", cut("pytorch_model.bin", 0), "is empty"),
    "config alone": ("safetensors", remove("*.safetensors"), "is no model: it needs a config.json with"),
    "weights alone": ("safetensors", remove("config.json"), "is no model: it needs a config.json with"),
    "config cut": ("safetensors", cut("config.json", 0.5), "No model could be read at"),
    "config, no object": ("safetensors", write("config.json", "[]"), "No model could be read at"),
    "config, no type": ("safetensors", write("config.json", "{}"), "No model could be read at"),
    "config, unknown type": ("safetensors", configure(model_type="tomorrow"), "No model could be read at"),
    "config, words for numbers": ("safetensors", configure(hidden_size="many"), "No model could be read at"),
    "config, heads that do not fit": ("safetensors", configure(num_key_value_heads=0), "can be made of its config"),
    "config, a layer too few": (
        "safetensors",
        configure(num_hidden_layers=2),
        "no use of model.layers.2.input_layernorm",
    ),
    "safetensors, a bias too many": (
        "safetensors",
        with_a_bias,
        "makes no use of model.layers.1.self_attn.q_proj.bias",
    ),
    "config of other weights": ("safetensors", configure(intermediate_size=50), "could not be loaded"),
    "code of its own": (
        "safetensors",
        configure(model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}),
        "No model could be read at",
    ),
    "tokenizer missing": ("safetensors", remove("tokenizer*"), "has no tokenizer"),
    "tokenizer cut": ("safetensors", cut("tokenizer.json", 0.5), "tokenizer.json is no tokenizer's"),
    "tokenizer, no object": ("safetensors", write("tokenizer.json", "7"), "tokenizer.json is no tokenizer's"),
    "tokenizer, more tokens": ("safetensors", longer_tokenizer, "embeddings: it is another model's tokenizer"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_that_cannot_be_served_is_refused_in_a_sentence(
    damage: str, originals: Path, tmp_path: Path, build_home: Path
) -> None:
    original, harm, words = DAMAGES[damage]
    folder = Path(shutil.copytree(originals / original, tmp_path / "model"))
    harm(folder)
    assert words in sentence(folder, build_home)


@pytest.mark.parametrize(
    "harm",
    [
        lambda content: content[:211],
        lambda content: content[: len(content) // 2],
        lambda content: content.replace(b"llama", b"lxama"),
        lambda content: content.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_ux.weight"),
        lambda content: content[:8] + b"\xff\xff" + content[10:],
        lambda content: b"<html>" + content,
    ],
    ids=["cut in the header", "cut in the weights", "unknown kind", "a tensor missing", "wrong counts", "another file"],
)
def test_a_damaged_gguf_is_refused_in_a_sentence_and_leaves_nothing_behind(
    harm: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(harm(path.read_bytes()))
    assert f"The GGUF file {path} could not be converted (" in sentence(path, tmp_path)
    assert [left.name for left in (tmp_path / "models").iterdir() if not left.name.endswith(".lock")] == []
