"""Whether a model folder's files are there and whole, before anything is loaded from them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import msgspec

from pagoda_inference.model.errors import ModelLoadError

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "*.tiktoken")
"""Any of them is what a tokenizer is made from."""
_LONGEST_HEADER = 100_000_000
"""Bytes; the safetensors format allows no more."""


class _Vocabulary(msgspec.Struct):
    vocab: dict[str, int] | list[Any] = msgspec.field(default_factory=dict)
    """Ids by piece, or the pieces in the order of their ids."""


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Tokenizer(msgspec.Struct):
    """What we need to know of a tokenizer.json."""

    model: _Vocabulary
    added_tokens: list[_AddedToken] = []


def check(folder: Path, embeddings: int) -> None:
    """Whether weights and tokenizer can be read, and the tokens are those of a model with ``embeddings`` rows.

    Raises ModelLoadError for a weight file that is cut off or missing, a tokenizer that is not there, or one with more
    tokens than the model. Control tokens that the chat template does not write may have no row: no text becomes one.
    """
    for path in _weight_files(folder):
        if not path.exists():
            raise ModelLoadError(f"The model in {folder} is not whole: its file {path.name} is missing.")
        fault = _safetensors_fault(path) if path.suffix == ".safetensors" else _pickle_fault(path)
        if fault:
            raise ModelLoadError(f"The file {path} {fault}: copy or download it again.")
    if not any(any(folder.glob(name)) for name in _TOKENIZERS):
        raise ModelLoadError(f"The folder {folder} has no tokenizer: put its tokenizer.json beside the weights.")
    greatest = _greatest_token(folder)
    if greatest >= embeddings:
        raise ModelLoadError(
            f"The tokenizer in {folder} has the token {greatest}, but the model has only {embeddings} embeddings: "
            "it is another model's tokenizer, or tokens were added without the model."
        )


def _weight_files(folder: Path) -> list[Path]:
    """What the weights are loaded from: one file, or those that an index names."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{name}.index.json"
        if (folder / name).exists():
            return [folder / name]
        if index.exists():
            shards = _read_json(index).get("weight_map")
            if not isinstance(shards, dict):
                raise ModelLoadError(f"The file {index} does not say which weights are where: download it again.")
            return [folder / str(shard) for shard in sorted(set(shards.values()))]
    raise ModelLoadError(
        f"The folder {folder} has no weights by the names that transformers looks for: model.safetensors, or "
        "pytorch_model.bin, or an index of their parts."
    )


def _safetensors_fault(path: Path) -> str:
    """What is wrong with a safetensors file; nothing where its length is what its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(size - 8, _LONGEST_HEADER):
            return "is no safetensors file or is cut off"
        try:
            tensors = json.loads(file.read(length))
            ends = [int(tensor["data_offsets"][1]) for name, tensor in tensors.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "has a header that is no safetensors file's"
    expected = 8 + length + max(ends, default=0)
    return "" if size == expected else f"is not whole ({size} bytes instead of {expected})"


def _pickle_fault(path: Path) -> str:
    """What is wrong with torch's file, an archive whose directory is its end; older files do not tell."""
    with path.open("rb") as file:
        start = file.read(2)
    if not start:
        return "is empty"
    return "is cut off" if start == b"PK" and not zipfile.is_zipfile(path) else ""


def _greatest_token(folder: Path) -> int:
    """Greatest id that a prompt can hold by tokenizer.json; -1 where there is none, or it does not say."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return -1
    try:
        tokenizer = msgspec.json.decode(path.read_bytes(), type=_Tokenizer)
    except msgspec.DecodeError as error:
        raise ModelLoadError(f"The file {path} is no tokenizer's: {error}.") from error
    vocabulary = tokenizer.model.vocab
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    template = _chat_template(folder)
    unusable = {token.id for token in tokenizer.added_tokens if token.special and token.content not in template}
    added = [token.id for token in tokenizer.added_tokens]
    return max((id for id in (*ids, *added) if id not in unusable), default=-1)


def _chat_template(folder: Path) -> str:
    file, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if file.exists():
        return file.read_text()
    return str(_read_json(config).get("chat_template") or "") if config.exists() else ""


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"The file {path} is not whole: {error}.") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"The file {path} is not whole: it holds no object.")
    return content
