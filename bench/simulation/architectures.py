"""Shapes of the models that are simulated: what a token takes of memory and of arithmetic.

OPT: Zhang et al. 2022, table 1; LLaMA: Touvron et al. 2023, table 2. KV bytes per token and the memory left for KV are
the PagedAttention paper's table 1 where it has them.
"""

from __future__ import annotations

from dataclasses import dataclass

FP16_BYTES = 2


@dataclass(frozen=True)
class Architecture:
    """parameters: of the whole model. layers, hidden: of its decoder. kv_heads_share: width of the keys over the
    hidden size (1 where every head has its own). longest: tokens of the longest sequence. bytes_per_value: of weights
    and KV.
    """

    name: str
    parameters: float
    layers: int
    hidden: int
    longest: int = 2048
    kv_heads_share: float = 1.0
    bytes_per_value: int = FP16_BYTES

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_value

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of all layers."""
        return round(2 * self.layers * self.hidden * self.kv_heads_share * self.bytes_per_value)


OPT_13B = Architecture("OPT-13B", 13e9, 40, 5120)
OPT_66B = Architecture("OPT-66B", 66e9, 64, 9216)
OPT_175B = Architecture("OPT-175B", 173e9, 96, 12288)
"""173e9 parameters are the 346 GB of the paper's table 1."""
LLAMA_13B = Architecture("LLaMA-13B", 13e9, 40, 5120)
SMOLLM2_135M = Architecture("SmolLM2-135M", 134.5e6, 30, 576, 8192, 3 / 9)
ARCHITECTURES = {model.name: model for model in (OPT_13B, OPT_66B, OPT_175B, LLAMA_13B, SMOLLM2_135M)}
