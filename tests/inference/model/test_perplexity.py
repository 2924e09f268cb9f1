"""What weights of fewer bits cost: perplexity of the default model on a text of ours, beside float32."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda_inference.model import fusion, quantized
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.model.probe_step import ProbeStep
from pagoda_kernels import Kernels

TEXT = Path(__file__).with_name("plain_english.txt").read_text()
WINDOW = 512
"""Tokens that are read together."""


@torch.inference_mode()
def perplexity(folder: Path, kernels: Kernels, bits: int, dtype: torch.dtype = torch.float32) -> float:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    if bits:
        quantized.round_weights(model, kernels, bits)
    fusion.fuse(model, kernels, bits)
    tokens = torch.tensor(AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"])
    assert len(tokens) > 2000
    losses = []
    for window in tokens.split(WINDOW):
        positions = torch.arange(len(window))
        output = model(
            input_ids=window[None], position_ids=positions[None], use_cache=False, paged_step=ProbeStep(kernels)
        )
        losses.append(torch.nn.functional.cross_entropy(output.logits[0, :-1].float(), window[1:], reduction="none"))
    return math.exp(float(torch.cat(losses).mean()))


@pytest.mark.model
@pytest.mark.slow
def test_8_bits_cost_less_than_1_percent_and_4_bits_of_a_4_bit_model_less_than_2(
    build_home: Path, kernels: Kernels
) -> None:
    folder = prepare_default_model(build_home)
    whole, eight, four = (perplexity(folder, kernels, bits) for bits in (0, 8, 4))
    print(f"perplexity: float32 {whole:.3f}, 8 bits {eight / whole - 1:+.2%}, 4 bits {four / whole - 1:+.2%}")
    assert abs(eight / whole - 1) < 0.01
    assert abs(four / whole - 1) < 0.02
