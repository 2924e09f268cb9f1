"""From a model's name to a backend that serves it: find, check, plan memory, load, verify.

Imports torch only when a model is loaded: the KV-echo model and the scheduler's tests do without.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda_inference.model.backend import Backend
from pagoda_inference.model.default_model import converted_gguf, prepare_default_model
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.tokenizer import ChatTokenizer, TransformersTokenizer

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

ECHO = "echo"
_SPINS = "3000"
"""How long idle OpenMP threads spin, about 50 us: through the gaps of a step, not into the web server's time."""
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


def load_model(
    model: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    block_size: int = 16,
    pool_tokens: int | None = None,
    pool_gib: float | None = None,
    context_length: int | None = None,
    step_ms: float = 0,
    home: Path,
) -> tuple[Backend, ChatTokenizer, str]:
    """Load what PAGODA_MODEL names: (backend, tokenizer, model id).

    model: '' for the default model, a folder with safetensors, a GGUF file or a folder with one, a hub id, or "echo".
    dtype: auto, float32, bfloat16 or float16. device: auto, cpu, cuda, cuda:N. block_size: 1..256 tokens.
    pool_tokens, pool_gib: size of the KV pool (None: a share of the memory, see memory_plan). context_length: at most
    the model's own, which is the default. step_ms: least duration of a step of the echo model.
    home: PAGODA_HOME. Raises ModelLoadError, whose text is one sentence.
    """
    if not 1 <= block_size <= 256:
        raise ModelLoadError(f"The block size must be 1 to 256 tokens, not {block_size}.")
    if model == ECHO:
        echo = EchoBackend(
            block_size=block_size,
            pool_tokens=pool_tokens or 16384,
            context_length=context_length or 4096,
            step_ms=step_ms,
        )
        return echo, EchoTokenizer(), ECHO
    source, model_id = find_model(model, home)
    return (*_load(source, dtype, device, block_size, pool_tokens, pool_gib, context_length, home), model_id)


def find_model(model: str, home: Path) -> tuple[str, str]:
    """(folder or hub id to load from, model id to show) of what PAGODA_MODEL names. Raises ModelLoadError."""
    if not model:
        path = prepare_default_model(home)
        return str(path), path.name
    path = Path(model).expanduser()
    if path.is_dir():
        ggufs = sorted(path.glob("*.gguf"))
        if (path / "config.json").exists() and (any(path.glob("*.safetensors")) or any(path.glob("*.bin"))):
            return str(path), path.name
        if len(ggufs) == 1:
            return str(converted_gguf(ggufs[0], home)), path.name
        raise ModelLoadError(
            f"The folder {path} is no model: it needs a config.json with *.safetensors, or exactly one *.gguf file."
        )
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelLoadError(f"{path} is no model: a file has to be a *.gguf, else name a folder.")
        return str(converted_gguf(path, home)), path.stem
    if path.is_absolute() or model.startswith((".", "~")) or not _HUB_ID.fullmatch(model):
        raise ModelLoadError(f"There is no model at {path}: PAGODA_MODEL is a folder, a *.gguf file or a hub id.")
    return model, model


def _load(
    source: str,
    dtype_name: str,
    device_name: str,
    block_size: int,
    pool_tokens: int | None,
    pool_gib: float | None,
    context_length: int | None,
    home: Path,
) -> tuple[Backend, ChatTokenizer]:
    # Both are read when the libraries are imported, which nothing before this does.
    if Path(source).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a local model asks nobody
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    import torch

    from pagoda_inference.model import architecture, machine, verification
    from pagoda_inference.model.fusion import fuse
    from pagoda_inference.model.kv_memory import KvMemory
    from pagoda_inference.model.memory_plan import activation_bytes, check_model_fits, plan_memory
    from pagoda_inference.model.transformers_backend import TransformersBackend
    from pagoda_kernels import cpu_kernels, torch_kernels

    device = machine.choose_device(device_name)
    dtype = machine.choose_dtype(dtype_name, device)
    torch.set_num_threads(machine.physical_cores())
    config, model_class = architecture.check(source)
    text = config.get_text_config()
    own_context = architecture.context_length(text)
    if context_length is not None and context_length > own_context:
        raise ModelLoadError(f"The context length {context_length} is above the model's own, {own_context}.")
    weights = architecture.weight_bytes(model_class, config, dtype)
    activations = activation_bytes(
        text.hidden_size, architecture.intermediate_size(text), text.vocab_size, dtype.itemsize
    )
    available = machine.available_memory(device)
    check_model_fits(available=available, weights=weights, activations=activations)

    kernels = cpu_kernels(home) if device.type == "cpu" else torch_kernels()
    loaded = _weights(model_class, source, dtype, device)
    reference = verification.reference_logits(loaded)
    layers = verification.layer_shapes(loaded, kernels)
    bytes_per_block = sum(layer.elements_per_token() for layer in layers) * block_size * dtype.itemsize
    plan = plan_memory(
        available=available,
        weights=weights,
        activations=activations,
        bytes_per_block=bytes_per_block,
        block_size=block_size,
        on_gpu=device.type == "cuda",
        pool_tokens=pool_tokens,
        pool_gib=pool_gib,
    )
    logger.info("%s", plan)
    fused = fuse(loaded, kernels)
    logger.info("kernels: %s; replaced modules: %s", kernels.name, dict(fused) or "none")
    memory = KvMemory(
        layers, total_blocks=plan.total_blocks, block_size=block_size, dtype=dtype, device=device, kernels=kernels
    )
    backend = TransformersBackend(loaded, memory, context_length=context_length or own_context)
    verification.verify(backend, reference)
    return backend, _tokenizer(source, loaded)


def _weights(model_class: Any, source: str, dtype: torch.dtype, device: torch.device) -> Any:
    try:
        return model_class.from_pretrained(source, dtype=dtype, attn_implementation="eager").eval().to(device)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ModelLoadError(f"The weights of {source} could not be loaded: {_first_line(error)}") from error


def _tokenizer(source: str, model: Any) -> TransformersTokenizer:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelLoadError(f"The tokenizer of {source} could not be loaded: {_first_line(error)}") from error
    ends = getattr(model.generation_config, "eos_token_id", None)
    return TransformersTokenizer(tokenizer, ends if isinstance(ends, list) else [] if ends is None else [ends])


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
