"""The default model through the paged pool: the tokens that transformers' ``generate`` gives, in float32."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Backend, Chunk
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.model.loading import load_model
from pagoda_inference.model.tokenizer import ChatTokenizer
from pagoda_inference.protocol import ChatMessage

pytestmark = pytest.mark.model

QUESTIONS = [
    "Hi",
    "Write one sentence about the sea.",
    "한국의 수도는 어디인가요?",
    "List three fruits.",
    "What is 12 times 12? Explain step by step.",
    "Translate 'good morning' to French. " * 3,
    "Here is a story. " + "The fox ran through the quiet wood and met a friend. " * 12 + "Summarise it.",
    "Explain why the sky is blue to a child, then to a physicist. " * 4,
]
OUTPUT = 24
NEAR_TIE = 1e-3


@pytest.fixture(scope="module")
def folder(build_home: Path) -> Path:
    return prepare_default_model(build_home)


@pytest.fixture(scope="module")
def loaded(folder: Path, build_home: Path) -> tuple[Backend, ChatTokenizer]:
    backend, tokenizer, _ = load_model(str(folder), dtype="float32", device="cpu", pool_tokens=8192, home=build_home)
    return backend, tokenizer


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def decode_together(backend: Backend, prompts: list[list[int]], chunk: int) -> list[list[int]]:
    """Greedy decoding of all prompts, started one step after another, prefilled in chunks, blocks in random order."""
    blocks = random.Random(0).sample(range(backend.total_blocks), backend.total_blocks)
    tables = [[blocks.pop() for _ in range(-(-(len(p) + OUTPUT) // backend.block_size))] for p in prompts]
    known = [list(prompt) for prompt in prompts]
    computed = [0] * len(prompts)
    step = 0
    while any(len(k) < len(p) + OUTPUT for k, p in zip(known, prompts, strict=True)):
        step += 1
        chunks, owners = [], []
        for index in range(min(step, len(prompts))):
            if len(known[index]) < len(prompts[index]) + OUTPUT:
                part = known[index][computed[index] :][:chunk]
                ends = computed[index] + len(part) == len(known[index])
                chunks.append(Chunk(part, computed[index], tables[index], Sampler() if ends else None))
                owners.append(index)
        for index, computing, token in zip(owners, chunks, backend.run(chunks), strict=True):
            computed[index] += len(computing.token_ids)
            if token is not None:
                assert isinstance(token, int)
                known[index].append(token)
    return [k[len(p) :] for k, p in zip(known, prompts, strict=True)]


def first_differences(reference: Any, prompts: list[list[int]], outputs: list[list[int]]) -> list[float]:
    """For each output that is not generate's: the gap of the reference's two greatest logits where they part."""
    gaps = []
    for prompt, output in zip(prompts, outputs, strict=True):
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt + output[:-1]])).logits[0, len(prompt) - 1 :]
        for row, token in zip(logits, output, strict=True):
            greatest = row.topk(2)
            if int(greatest.indices[0]) != token:
                gaps.append(float(greatest.values[0] - greatest.values[1]))
                break
    return gaps


def test_greedy_tokens_are_those_of_generate(loaded: tuple[Backend, ChatTokenizer], reference: Any) -> None:
    backend, tokenizer = loaded
    prompts = [tokenizer.encode_chat([ChatMessage("user", question)]) for question in QUESTIONS]
    outputs = decode_together(backend, prompts, chunk=19)
    gaps = first_differences(reference, prompts, outputs)
    assert all(gap < NEAR_TIE for gap in gaps)
    assert len(gaps) <= 1
    with torch.inference_mode():
        generated = reference.generate(
            torch.tensor([prompts[1]]), max_new_tokens=OUTPUT, do_sample=False, eos_token_id=-1, pad_token_id=0
        )
    assert outputs[1] == generated[0, len(prompts[1]) :].tolist()


def test_outputs_do_not_depend_on_the_chunks(loaded: tuple[Backend, ChatTokenizer]) -> None:
    backend, tokenizer = loaded
    prompts = [tokenizer.encode_chat([ChatMessage("user", question)]) for question in QUESTIONS[:3]]
    assert decode_together(backend, prompts, 7) == decode_together(backend, prompts, 1000)


def test_the_tokenizer_is_the_models(loaded: tuple[Backend, ChatTokenizer], folder: Path) -> None:
    from transformers import AutoTokenizer

    _, tokenizer = loaded
    own = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token_ids == {own.convert_tokens_to_ids("<|im_end|>")}
    expected = own.apply_chat_template(
        [{"role": "user", "content": QUESTIONS[2]}], add_generation_prompt=True, tokenize=False
    )
    assert tokenizer.encode_chat([ChatMessage("user", QUESTIONS[2])]) == own.encode(expected, add_special_tokens=False)
    assert tokenizer.decode(tokenizer.encode(QUESTIONS[2])) == QUESTIONS[2]


def test_an_answer_with_a_blank_line_keeps_its_tokens(loaded: tuple[Backend, ChatTokenizer]) -> None:
    _, tokenizer = loaded
    blank = tokenizer.encode("\n\n")
    generated = [*tokenizer.encode("One."), *blank, *tokenizer.encode("Two.")]
    assert len(blank) == 1
    assert generated != tokenizer.encode("One.\n\nTwo.")
    first = [ChatMessage("user", "Count")]
    seen = [*tokenizer.encode_chat(first), *generated, *tokenizer.eos_token_ids]
    answer = ChatMessage("assistant", "One.\n\nTwo.", (*generated, *tokenizer.eos_token_ids))
    assert tokenizer.encode_chat([*first, answer, ChatMessage("user", "On")])[: len(seen)] == seen
    partial = ChatMessage("assistant", "One.\n\nTwo.", tuple(generated))
    assert tokenizer.encode_chat([*first, partial], continue_final=True) == seen[:-1]
    as_text = tokenizer.encode_chat([*first, ChatMessage(answer.role, answer.content), ChatMessage("user", "On")])
    assert as_text[: len(seen)] != seen
