"""Beam search on the default model, through paged blocks in float32: the hypotheses of transformers' ``generate``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.decoding.beam_search import EarlyStopping
from pagoda_inference.model.backend import Backend
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.model.loading import load_model
from tests.inference.decoding.reference_beams import compare_with_generate, search_through_blocks

pytestmark = [pytest.mark.model, pytest.mark.slow]

QUESTIONS = ["What is the capital of France?", "Say hello in Korean.", "Name a colour."]


@pytest.fixture(scope="module")
def folder(build_home: Path) -> Path:
    return prepare_default_model(build_home)


@pytest.fixture(scope="module")
def backend(folder: Path, build_home: Path) -> Backend:
    return load_model(str(folder), dtype="float32", device="cpu", pool_tokens=2048, home=build_home)[0]


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    turns = [[{"role": "user", "content": question}] for question in QUESTIONS]
    return [tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False) for turn in turns]


@pytest.mark.parametrize("early", [True, False, "never"], ids=str)
def test_hypotheses_of_the_default_model_are_those_of_generate(
    backend: Backend, model: Any, prompts: list[list[int]], early: EarlyStopping
) -> None:
    reasons = set()
    for prompt, (width, penalty) in zip(prompts, ((2, 1.0), (3, 0.0), (4, 1.5)), strict=True):
        options = {"length_penalty": penalty, "early_stopping": early, "max_tokens": 20}
        search = partial(search_through_blocks, backend, prompt)
        found = compare_with_generate(search, model, prompt, [2], width, width, **options)
        reasons |= {hypothesis.reason for hypothesis in found}
    assert "stop" in reasons
