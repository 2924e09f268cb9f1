"""The kernels' benchmark compares like with like, reports every case, and says what it needs."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest
import torch

from bench import kernels
from bench.kernel_cases import attention_cases, paged
from bench.results import Results
from pagoda_kernels import layer_reference, torch_kernels
from pagoda_kernels.kernels import Layers

CPU = torch.device("cpu")
TINY = kernels.Sample(2, 1, 3, 64, 2, 2, 16, (16,), (torch.float32,), 500)
REFERENCE = replace(
    torch_kernels(),
    layers=Layers(
        layer_reference.rms_norm, layer_reference.rotate, layer_reference.gated_activation, layer_reference.sample
    ),
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_cuda_device_it_says_that_it_needs_one() -> None:
    with pytest.raises(SystemExit, match="needs a CUDA device"):
        kernels.run(Results("kernels"), argparse.Namespace(quick=True, repeats=None))


def test_it_reports_every_case_beside_a_copy_and_torch() -> None:
    """With the reference in place of Triton's kernels, whose answers torch's attention has to equal."""
    results = Results("kernels")
    kernels.measure(results, TINY, REFERENCE, CPU, rounds=2, compiled=False)
    names = {result["name"] for result in results.results}
    for kind in ("decode", "prefill"):
        assert {f"kernels.{kind}[float32,16].{what}" for what in ("us", "over_sdpa", "over_flex")} <= names
    assert "kernels.decode[float32,16].share" in names
    assert "kernels.prefill[float32,16].share" not in names
    for layer in ("rms_norm.3", "rms_norm.192", "rotate.3", "write_kv.3", "copy_blocks.32", "sample.top_p"):
        assert f"kernels.{layer}[float32].share" in names
    assert all(result["value"] > 0 and result.get("n") == 2 for result in results.results)


def test_an_answer_that_differs_from_torchs_is_noticed() -> None:
    broken = replace(REFERENCE, paged_attention=lambda *arguments, **keywords: torch.zeros(3, 4, 16))
    with pytest.raises(AssertionError, match=r"kernels\.decode"):
        kernels.measure(Results("kernels"), TINY, broken, CPU, rounds=1, compiled=False)


def test_blocks_hold_the_same_keys_and_values() -> None:
    keys, values = torch.randn(2, 3, 32, 8), torch.randn(2, 3, 32, 8)
    key_pool, value_pool, tables = paged(keys, values, 16)
    for sequence in range(2):
        own = tables[sequence].long()
        assert torch.equal(key_pool[own].permute(1, 0, 3, 2).flatten(1, 2), keys[sequence])
        assert torch.equal(value_pool[own].transpose(0, 1).flatten(1, 2), values[sequence])


def test_a_decodes_bytes_are_its_kv() -> None:
    cases = attention_cases(TINY, REFERENCE, CPU, torch.float32, 16, kind="decode", compiled=False)
    assert cases["ours"].bytes == 2 * 3 * 2 * 64 * 16 * 4
