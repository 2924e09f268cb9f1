"""A whole engine without its thread over a tiny random model of bytes, with and without room for everybody at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pagoda_inference.decoding.grammars import Grammars
from pagoda_inference.engine import Engine, Outcome
from pagoda_inference.generation_log import GenerationLog, Ledger
from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.tiers.tiers import Tiers
from pagoda_inference.kv.transfers import Transfers
from pagoda_inference.model import verification
from pagoda_inference.model.echo import END, EchoTokenizer
from pagoda_inference.model.kv_memory import KvMemory
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_inference.preparation import prepare
from pagoda_inference.protocol import Delta, Error, Finished, Generate, Sampling, TokenLogprobs
from pagoda_inference.scheduling.scheduler import Scheduler
from pagoda_inference.scheduling.swapping import Mode, PreemptionCost
from pagoda_inference.speculation.costs import DraftCosts
from pagoda_inference.speculation.prompt_lookup import PromptLookup
from pagoda_inference.speculation.speculation import Speculation
from pagoda_kernels import torch_kernels

VOCABULARY, CONTEXT, BLOCK = 260, 256, 4
TOKENIZER = EchoTokenizer()
PROMPT = list(b"say it again: one two three, one two")


@cache
def byte_model(purpose: str = "engine") -> Any:
    """A llama of random weights whose tokens are the echo model's; one for each purpose, all with the same weights."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config).eval()


def own_logits(tokens: Sequence[int]) -> torch.Tensor:
    """float32 [V], after ``tokens``, by the model's own code."""
    model = byte_model("reference")
    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0, -1].float()


@dataclass
class Heard:
    """What a caller heard of its generation, by answer."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, list[TokenLogprobs]] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)
    finished: Finished | None = None

    @property
    def said(self) -> list[list[int]]:
        return [self.tokens[index] for index in sorted(self.tokens)]


class World:
    """blocks: of the pool. mode: how preempted requests come back."""

    def __init__(
        self, *, blocks: int = 512, mode: Mode = "recompute", token_budget: int = 64, speculate: bool = False
    ) -> None:
        kernels, device = torch_kernels(), torch.device("cpu")
        layers = verification.layer_shapes(byte_model(), kernels)
        memory = KvMemory(
            layers, total_blocks=blocks, block_size=BLOCK, dtype=torch.float32, device=device, kernels=kernels
        )
        self.backend = TransformersBackend(byte_model(), memory, context_length=CONTEXT)
        self.pool = Pool(blocks, BLOCK)
        tiers = Tiers(self.backend, host_bytes=1 << 24 if mode == "swap" else 0, disk_bytes=0, folder=None, model="")
        self.scheduler = Scheduler(
            self.pool,
            token_budget=token_budget,
            max_running=8,
            transfers=Transfers(self.pool, tiers),
            cost=PreemptionCost(mode),
        )
        speculation = None
        if speculate:
            speculation = Speculation(PromptLookup(), DraftCosts(), most=4, token_budget=token_budget)
        self.engine = Engine(
            self.backend,
            self.scheduler,
            instance="test",
            deliver=self._hear,
            speculation=speculation,
            debug=True,
        )
        self.grammars = Grammars(TOKENIZER.grammar_tokenizer, VOCABULARY)
        self._heard: dict[GenerationLog, Heard] = {}
        self._ids = itertools.count()

    def ask(self, prompt: Sequence[int] = PROMPT, account: str = "acme", **sampling: Any) -> Heard:
        command = Generate(
            id=str(next(self._ids)),
            account=account,
            scope=f"tenant:{account}",
            prompt_token_ids=tuple(prompt),
            sampling=Sampling(**sampling),
        )
        log = GenerationLog((account, command.id), Ledger())
        heard = self._heard[log] = Heard()
        self.engine.submit(
            prepare(command, log, TOKENIZER, context_length=CONTEXT, vocabulary_size=VOCABULARY, grammars=self.grammars)
        )
        return heard

    def run(self) -> None:
        while True:
            self.engine.turn()
            if not self.scheduler.has_work:
                return

    def close(self) -> None:
        self.grammars.close()

    @property
    def preemptions(self) -> dict[str, int]:
        ledger = next(ledger for ledger in self.pool.accounts if ledger.id == "acme")
        return dict(ledger.preemptions)

    def _hear(self, outcomes: list[Outcome]) -> None:
        for log, event in outcomes:
            heard = self._heard[log]
            assert not isinstance(event, Error), event
            if isinstance(event, Delta):
                heard.tokens.setdefault(event.index, []).extend(event.token_ids)
                heard.texts[event.index] = heard.texts.get(event.index, "") + event.text
                heard.logprobs.setdefault(event.index, []).extend(event.logprobs)
                if event.score is not None:
                    heard.scores[event.index] = event.score
            elif isinstance(event, Finished):
                heard.finished = event
