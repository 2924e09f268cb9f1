"""From a model's name to a backend that serves it: find, check, plan memory, load, verify.

Imports torch only when a model is loaded: the KV-echo model and the scheduler's tests do without.
"""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda_inference.model import hub
from pagoda_inference.model.backend import Backend
from pagoda_inference.model.default_model import converted_gguf, prepare_default_model
from pagoda_inference.model.echo import EchoBackend, EchoTokenizer
from pagoda_inference.model.echo_settings import check_echo, echo_pool_tokens
from pagoda_inference.model.errors import BackendLost, ModelLoadError, first_line
from pagoda_inference.model.fingerprint import folder_fingerprint
from pagoda_inference.model.tokenizer import ChatTokenizer, TransformersTokenizer
from pagoda_inference.model.unused_weights import unused_weights
from pagoda_inference.speculation.draft_model import SpeculativeBackend, check_same_tokens

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch

    from pagoda_inference.model.kv_memory import KvMemory, LayerShape
    from pagoda_inference.model.paged_model import PagedModel
    from pagoda_inference.model.ranks import Job, Ranks
    from pagoda_kernels import Kernels

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
    draft: str = "",
    tensor_parallel: int = 1,
    graph_rows: int = 0,
    compile: bool = False,
    home: Path,
) -> tuple[Backend, ChatTokenizer, str]:
    """Load what PAGODA_MODEL names: (backend, tokenizer, model id).

    model: '' for the default model, a folder with safetensors, a GGUF file or a folder with one, a hub id, or "echo".
    dtype: auto, float32, bfloat16, float16; int8 or q4 on a CPU: weights of 8 or 4 bits.
    device: auto, cpu, cuda, cuda:N. block_size: 1..256 tokens.
    pool_tokens, pool_gib: size of the KV pool (None: a share of the memory, see memory_plan). context_length: at most
    the model's own, which is the default. step_ms: least duration of a step of the echo model.
    draft: a smaller model with the same tokenizer, named like ``model``, whose guesses the backend makes; '' for none.
    tensor_parallel: devices that share the model's layers. graph_rows: on CUDA, most sequences of a decode step that
    runs as a CUDA graph; 0 for no graphs. compile: on CUDA, whether all other steps go through torch.compile.
    home: PAGODA_HOME. Raises ModelLoadError, whose text is one sentence.
    """
    if not 1 <= block_size <= 256:
        raise ModelLoadError(f"The block size must be 1 to 256 tokens, not {block_size}.")
    if model == ECHO:
        check_echo(dtype, device, draft, tensor_parallel)
        echo = EchoBackend(
            block_size=block_size,
            pool_tokens=echo_pool_tokens(block_size, pool_tokens, pool_gib),
            context_length=context_length or 4096,
            step_ms=step_ms,
        )
        return echo, EchoTokenizer(), ECHO
    source, model_id = find_model(model, home)
    if tensor_parallel > 1:
        if draft:
            raise ModelLoadError("PAGODA_ENGINE_DRAFT does not work with PAGODA_ENGINE_TENSOR_PARALLEL: choose one.")
        sizes = (block_size, pool_tokens, pool_gib)
        return *_load_parallel(source, dtype, device, sizes, context_length, tensor_parallel, home), model_id
    loaded = [_load(source, dtype, device, context_length, home)]
    tokenizer = _tokenizer(source, loaded[0].model)
    if draft:
        draft_source, draft_id = find_model(draft, home)
        loaded.append(_load(draft_source, dtype, device, None, home))
        check_same_tokens(tokenizer, _tokenizer(draft_source, loaded[1].model), model_id, draft_id)
    total_blocks = _blocks(loaded, block_size, pool_tokens, pool_gib)
    backends = [_with_pool(each, total_blocks, block_size, graph_rows, compile) for each in loaded]
    return SpeculativeBackend(*backends) if draft else backends[0], tokenizer, model_id


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
    hub.reach(model)
    return model, model


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model that has been loaded and looked at, and has no pool yet.

    Sizes in bytes; ``available``: before it came.
    """

    source: str
    model: Any
    kernels: Kernels
    layers: list[LayerShape]
    reference: torch.Tensor
    dtype: torch.dtype
    device: torch.device
    context_length: int
    available: int
    weights: int
    activations: int
    bits: int
    """Of the weights, where they are integers: 4 or 8; else 0."""

    def bytes_per_block(self, block_size: int) -> int:
        return sum(layer.elements_per_token() for layer in self.layers) * block_size * self.dtype.itemsize


def _load_parallel(
    source: str,
    dtype: str,
    device: str,
    sizes: tuple[int, int | None, float | None],
    context_length: int | None,
    count: int,
    home: Path,
) -> tuple[Backend, ChatTokenizer]:
    """The first rank of a tensor parallel model, with the others begun and loaded. sizes: of a block, and of the pool
    of all ranks together."""
    from pagoda_inference.model.architecture import check
    from pagoda_inference.model.ranks import Job, Ranks
    from pagoda_inference.model.tensor_parallel import check_divisible, device_of_ranks

    block_size, pool_tokens, pool_gib = sizes
    kind = device_of_ranks(device, count)
    check_divisible(check(source)[0], count)

    def job(rank: int, meeting: Path) -> Job:
        return Job(rank, count, meeting, source, dtype, kind, block_size, context_length, home)

    ranks: Ranks | None = None
    try:
        ranks = Ranks(count, job)
        loaded = _load(source, dtype, ranks.job.own_device, context_length, home, count, ranks.answers)
        loaded = replace(loaded, available=min(loaded.available, *ranks.answers()))
        blocks = _blocks([loaded], block_size, pool_tokens, None if pool_gib is None else pool_gib / count)
        ranks.tell(blocks)
        return _with_pool(loaded, blocks, block_size, ranks=ranks), _tokenizer(source, loaded.model)
    except BaseException as error:
        if ranks is not None:
            ranks.close()
        if isinstance(error, BackendLost):
            raise ModelLoadError(str(error)) from error
        raise


def load_rank(job: Job, steps: Connection) -> PagedModel:
    """Another rank's part of the model, with its part of the pool; what is agreed on goes through ``steps``."""
    from pagoda_inference.model.paged_model import PagedModel

    loaded = _load(
        job.source, job.dtype, job.own_device, job.context_length, job.home, job.count, lambda: steps.send("weights")
    )
    steps.send(loaded.available)
    total_blocks: int = steps.recv()
    return PagedModel(loaded.model, _pool(loaded, total_blocks, job.block_size))


def _load(
    source: str,
    dtype_name: str,
    device_name: str,
    context_length: int | None,
    home: Path,
    count: int = 1,
    weights_are_there: Callable[[], object] = lambda: None,
) -> _Loaded:
    """count: ranks that share the model. weights_are_there: called between loading and the first run of the model."""
    # Both are read when the libraries are imported, which nothing before this does.
    if Path(source).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a local model asks nobody
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
    import torch

    from pagoda_inference.model import architecture, machine, quantized, verification
    from pagoda_inference.model.fusion import head_copy_bytes
    from pagoda_inference.model.memory_plan import activation_bytes, check_model_fits
    from pagoda_inference.model.tensor_parallel import local_bytes
    from pagoda_kernels.kernels import kernels_for

    if not gc.isenabled():  # while a process starts: what its libraries have made stays, and is not looked through
        gc.freeze()

    device = machine.choose_device(device_name)
    bits = quantized.BITS.get(dtype_name, 0)
    if bits and count > 1:
        raise ModelLoadError(f"Weights of {bits} bits ({dtype_name}) are not shared among devices: take another dtype.")
    dtype = machine.choose_dtype("auto" if bits else dtype_name, device)
    if device.index is not None:
        torch.cuda.set_device(device)  # Triton launches on the thread's current one
    torch.set_num_threads(max(1, machine.physical_cores() // count))
    config, model_class = architecture.check(source)
    text = config.get_text_config()
    own_context = architecture.context_length(text)
    if context_length is not None and context_length > own_context:
        raise ModelLoadError(f"The context length {context_length} is above the model's own, {own_context}.")
    weights = architecture.weight_bytes(model_class, config, dtype) // count
    activations = activation_bytes(
        text.hidden_size, architecture.intermediate_size(text), text.vocab_size, dtype.itemsize
    )
    available = machine.available_memory(device) // (count if device.type == "cpu" else 1)
    check_model_fits(available=available, weights=weights, activations=activations)

    kernels = kernels_for(device, home)
    loaded = _weights(model_class, source, dtype, device, count)
    head_copy = head_copy_bytes(loaded, kernels, bits) if count == 1 else 0
    if bits:
        quantized.round_weights(loaded, kernels, bits)
    weights_are_there()
    return _Loaded(
        source=source,
        model=loaded,
        kernels=kernels,
        reference=verification.reference_logits(loaded),
        layers=verification.layer_shapes(loaded, kernels),
        dtype=dtype,
        device=device,
        context_length=context_length or own_context,
        available=available,
        weights=weights + head_copy if count == 1 else local_bytes(loaded),
        activations=activations,
        bits=bits,
    )


def _blocks(models: Sequence[_Loaded], block_size: int, pool_tokens: int | None, pool_gib: float | None) -> int:
    """Blocks of the pool, when each has room for the KV of all ``models``, in the order in which they were loaded."""
    from pagoda_inference.model.memory_plan import plan_memory

    plan = plan_memory(
        available=models[0].available,
        weights=sum(each.weights for each in models),
        activations=sum(each.activations for each in models),
        bytes_per_block=sum(each.bytes_per_block(block_size) for each in models),
        block_size=block_size,
        on_gpu=models[0].device.type == "cuda",
        pool_tokens=pool_tokens,
        pool_gib=pool_gib,
    )
    logger.info("%s", plan)
    return plan.total_blocks


def _with_pool(
    loaded: _Loaded,
    total_blocks: int,
    block_size: int,
    graph_rows: int = 0,
    compile: bool = False,
    ranks: Ranks | None = None,
) -> Backend:
    """The model over a pool of its own, verified; on a GPU of its own with CUDA graphs and torch.compile where asked
    for, and verified with them."""
    from pagoda_inference.model import machine, quantized, verification
    from pagoda_inference.model.fusion import fuse
    from pagoda_inference.model.transformers_backend import TransformersBackend

    compiled = compile and loaded.kernels.name == "triton"  # fuses for itself, and would look into these
    fused = fuse(loaded.model, loaded.kernels, loaded.bits) if ranks is None and not compiled else None
    if fused:
        machine.return_freed_memory()  # of the weights that packed ones replaced
    logger.info("kernels: %s; replaced modules: %s", loaded.kernels.name, dict(fused or {}) or "none")
    backend = TransformersBackend(
        loaded.model,
        _pool(loaded, total_blocks, block_size),
        context_length=loaded.context_length,
        fingerprint=_fingerprint(loaded.source) + (f" {loaded.bits} bits" if loaded.bits else ""),
        ranks=ranks,
    )
    verification.verify(backend, loaded.reference, quantized.TOLERANCE if loaded.bits else None)
    if ranks is None and loaded.kernels.name == "triton" and (graph_rows or compile):
        if graph_rows:
            backend.capture_decodes(graph_rows)
        if compile:
            backend.compile()
        verification.verify(backend, loaded.reference)
    return backend


def _pool(loaded: _Loaded, total_blocks: int, block_size: int) -> KvMemory:
    from pagoda_inference.model.kv_memory import KvMemory

    return KvMemory(
        loaded.layers,
        total_blocks=total_blocks,
        block_size=block_size,
        dtype=loaded.dtype,
        device=loaded.device,
        kernels=loaded.kernels,
    )


def _fingerprint(source: str) -> str:
    """Of the folder, or of what the hub's cache has of this id by now."""
    from transformers.utils import cached_file

    folder = Path(source) if Path(source).is_dir() else Path(str(cached_file(source, "config.json"))).parent
    return folder_fingerprint(folder)


def _weights(model_class: Any, source: str, dtype: torch.dtype, device: torch.device, count: int) -> Any:
    """The model in eval mode; of several ranks, this one's part."""
    from transformers.distributed import DistributedConfig
    from transformers.utils import logging as transformers_logging

    parallel = {"distributed_config": DistributedConfig(tp_size=count)} if count > 1 else {}
    transformers_logging.disable_progress_bar()  # it would stand between the lines of the log
    transformers_logging.set_verbosity_error()  # and so would its table of weights, of which what matters is told below
    try:
        model, outcome = model_class.from_pretrained(
            source, dtype=dtype, attn_implementation="eager", output_loading_info=True, **parallel
        )
    except Exception as error:  # of transformers, safetensors, pickle or torch
        raise ModelLoadError(f"The weights of {source} could not be loaded: {first_line(error)}") from error
    if missing := sorted(outcome["missing_keys"]):
        # transformers would serve random numbers in their place.
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelLoadError(f"The weights of {source} are not whole: there is no {missing[0]}{others}.")
    if unused := unused_weights(model, outcome["unexpected_keys"]):
        # transformers would serve a part of the model.
        others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise ModelLoadError(
            f"The weights of {source} are not those of its config.json, which makes no use of {unused[0]}{others}: "
            "get the model's own."
        )
    return model.eval().to(device) if count == 1 else model.eval()


def _tokenizer(source: str, model: Any) -> TransformersTokenizer:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # of transformers, tokenizers or sentencepiece
        raise ModelLoadError(f"The tokenizer of {source} could not be loaded: {first_line(error)}") from error
    ends = getattr(model.generation_config, "eos_token_id", None)
    return TransformersTokenizer(tokenizer, ends if isinstance(ends, list) else [] if ends is None else [ends])
