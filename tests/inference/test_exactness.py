"""The whole daemon in float32 against ``model.generate``: together, cold and warm, in chunks, and after preemption."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pagoda_inference.client import EngineClient
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.settings import default_home
from tests.inference.running_engine import Answer, RunningEngine, Tenant

pytestmark = [pytest.mark.model, pytest.mark.slow]

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was a lighthouse keeper who",
    "한국의 수도는",
    "List three fruits:",
    "def fibonacci(n):\n",
    "The fox ran through the quiet wood and met a friend. " * 12,
    "Explain why the sky is blue to a child, then to a physicist. " * 4,
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,",
]
OUTPUT = 32
NEAR_TIE = 1e-3
"""Where the reference's two greatest logits are closer than this, either may be chosen."""

StartEngine = Callable[..., Awaitable[RunningEngine]]


class Reference:
    """transformers' own model and tokenizer; ``outputs`` are what ``generate`` answers to the padded batch."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.prompts: list[list[int]] = [AutoTokenizer.from_pretrained(folder).encode(text) for text in PROMPTS]
        longest = max(map(len, self.prompts))
        padded = [[0] * (longest - len(prompt)) + prompt for prompt in self.prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in self.prompts]
        with torch.inference_mode():
            generated = self.model.generate(
                torch.tensor(padded),
                attention_mask=torch.tensor(mask),
                max_new_tokens=OUTPUT,
                eos_token_id=-1,
                do_sample=False,
                pad_token_id=0,
            )
        self.outputs: list[list[int]] = generated[:, longest:].tolist()

    def near_ties(self, outputs: list[list[int]]) -> int:
        """How many outputs part from generate's at a near tie; AssertionError for one that parts anywhere else."""
        import torch

        parted = 0
        for prompt, ours, theirs in zip(self.prompts, outputs, self.outputs, strict=True):
            if ours == theirs:
                continue
            same = next(index for index in range(OUTPUT) if ours[index] != theirs[index])
            with torch.inference_mode():
                logits = self.model(torch.tensor([prompt + theirs[:same]])).logits[0, -1]
            first, second = logits.topk(2).values.tolist()
            assert first - second < NEAR_TIE, f"token {same} differs and is no tie: {first} and {second}"
            parted += 1
        return parted


HOME = Path(os.environ.get("PAGODA_HOME", default_home()))
"""Where the model and the native kernels are kept: with the rest of what is generated."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepare_default_model(HOME)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


async def all_together(engine: RunningEngine, reference: Reference, account: str) -> list[Answer]:
    client = EngineClient(engine.address)
    await client.connect(timeout=300)
    tenant = Tenant(account, client)
    options = {"max_tokens": OUTPUT, "ignore_eos": True}
    async with client:
        return await asyncio.gather(
            *(tenant.answer(prompt_token_ids=tuple(prompt), **options) for prompt in reference.prompts)
        )


def tokens(answers: list[Answer]) -> list[list[int]]:
    return [list(answer.token_ids) for answer in answers]


async def test_cold_and_warm_outputs_in_chunks_are_those_of_generate(
    start_engine: StartEngine, folder: Path, reference: Reference
) -> None:
    engine = await start_engine(
        home=HOME, model=str(folder), dtype="float32", pool_tokens=8192, token_budget=32, max_running=8
    )
    cold = await all_together(engine, reference, "acme")
    warm = await all_together(engine, reference, "acme")
    rival = await all_together(engine, reference, "rival")
    for answers in (cold, warm, rival):
        assert reference.near_ties(tokens(answers)) <= 1
    expected = [(len(prompt) - 1) // 16 * 16 for prompt in reference.prompts]
    assert [answer.started.cached_tokens for answer in warm] == expected
    assert {answer.started.cached_tokens for answer in rival} == {0}


async def test_outputs_after_a_forced_preemption_are_those_of_generate(
    start_engine: StartEngine, folder: Path, reference: Reference
) -> None:
    engine = await start_engine(
        home=HOME, model=str(folder), dtype="float32", pool_tokens=400, token_budget=64, max_running=8
    )
    answers = await all_together(engine, reference, "acme")
    assert sum(answer.finished.usage.preemptions for answer in answers) >= 1
    assert reference.near_ties(tokens(answers)) <= 1
