"""What a chunk may ask for besides one token: a token for each of several answers, or the candidates of a beam."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from pagoda_inference.decoding.beam_search import BeamSearch, Hypothesis
from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model import verification
from pagoda_inference.model.backend import Backend, Candidates, Chunk, ChunkError, Result
from pagoda_inference.model.echo import END, EchoBackend, EchoTokenizer
from pagoda_inference.model.kv_memory import KvMemory
from pagoda_inference.model.transformers_backend import TransformersBackend
from pagoda_inference.protocol import ChatMessage
from pagoda_kernels import torch_kernels
from tests.inference.decoding.reference_beams import candidates, search_naively, search_through_blocks
from tests.inference.tiny_models import VOCABULARY, tiny_model

BLOCKS = 160
TOKENIZER = EchoTokenizer()
PROMPT = TOKENIZER.encode_chat([ChatMessage("user", "안녕 🙂 how are you?")])
RIVAL = TOKENIZER.encode_chat([ChatMessage("user", "A rival asks.")])


def tiny_backend(not_a_number: bool = False) -> TransformersBackend:
    model = tiny_model("llama")
    if not_a_number:
        with torch.no_grad():
            model.get_input_embeddings().weight[VOCABULARY - 1] = torch.nan
    kernels = torch_kernels()
    layers = verification.layer_shapes(tiny_model("llama"), kernels)
    device = torch.device("cpu")
    memory = KvMemory(layers, total_blocks=BLOCKS, block_size=4, dtype=torch.float32, device=device, kernels=kernels)
    return TransformersBackend(model, memory, context_length=256)


def echo_backend() -> EchoBackend:
    return EchoBackend(block_size=4, pool_tokens=4 * BLOCKS)


@pytest.fixture(params=["echo", "transformers"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return echo_backend() if request.param == "echo" else tiny_backend()


def prompt_of(backend: Backend, tokens: Sequence[int]) -> list[int]:
    return [token % backend.vocabulary_size for token in tokens]


def test_each_fork_takes_the_token_that_its_sampler_would_take_alone(backend: Backend) -> None:
    prompt, rival = prompt_of(backend, PROMPT), prompt_of(backend, RIVAL)
    samplers = [Sampler(3.0, seed=5).stream(index) for index in range(20)]
    alone = [backend.run([Chunk(prompt, 0, range(20), sampler)])[0] for sampler in samplers]
    other = Chunk(rival, 0, range(20, 40), Sampler())
    [of_rival] = backend.run([other])
    together = backend.run([other, Chunk(prompt, 0, range(20), samplers[0], samplers[1:]), other])
    assert together == [of_rival, tuple(alone), of_rival]
    assert len(set(alone)) > 3


def test_candidates_are_those_of_the_chunk_alone_whatever_stands_beside_it(backend: Backend) -> None:
    prompt, rival = prompt_of(backend, PROMPT), prompt_of(backend, RIVAL)
    [few] = backend.run([Chunk(prompt, 0, range(20), candidates=3)])
    [many] = backend.run([Chunk(prompt, 0, range(20), candidates=8)])
    beside = backend.run(
        [
            Chunk(rival, 0, range(20, 40), Sampler()),
            Chunk(prompt, 0, range(40, 60), candidates=8),
            Chunk(rival, 0, range(60, 80)),
            Chunk(rival, 0, range(80, 100), candidates=2),
        ]
    )
    few, many, found = candidates(few), candidates(many), candidates(beside[1])
    assert (many.token_ids[:3], found.token_ids) == (few.token_ids, many.token_ids)
    assert found.logprobs == pytest.approx(many.logprobs, abs=1e-4)
    assert len(set(many.token_ids)) == 8
    assert sorted(many.logprobs, reverse=True) == list(many.logprobs)
    assert many.logprobs[0] < 0
    assert isinstance(beside[0], int)
    assert beside[2] is None
    assert len(candidates(beside[3]).token_ids) == 2


def test_greedy_takes_the_first_candidate_of_a_model() -> None:
    backend = tiny_backend()
    prompt = prompt_of(backend, PROMPT)
    [token] = backend.run([Chunk(prompt, 0, range(20), Sampler())])
    [found] = backend.run([Chunk(prompt, 0, range(20), candidates=4)])
    assert candidates(found).token_ids[0] == token


def test_forks_and_candidates_of_logits_that_are_not_numbers_fail_alone() -> None:
    backend = tiny_backend(not_a_number=True)
    bad = [1, VOCABULARY - 1]
    results = backend.run(
        [
            Chunk([1, 2, 3], 0, [0], candidates=2),
            Chunk(bad, 0, [1], candidates=2),
            Chunk(bad, 0, [2], Sampler(1.0), [Sampler(1.0, seed=1)]),
            Chunk([1, 2, 3], 0, [3], Sampler(), [Sampler(1.0, seed=1)]),
        ]
    )
    assert isinstance(results[0], Candidates)
    assert isinstance(results[1], ChunkError)
    assert isinstance(results[2], ChunkError)
    assert isinstance(results[3], tuple)


def test_a_rivals_block_in_the_table_changes_the_candidates_of_the_echo_model() -> None:
    backend = echo_backend()
    backend.run([Chunk(PROMPT, 0, range(20)), Chunk(RIVAL, 0, range(20, 40))])
    last = len(PROMPT) - 1

    def of(table: Sequence[int]) -> Result:
        return backend.run([Chunk(PROMPT[-1:], last, table, candidates=8)])[0]

    own = of(range(20))
    for wrong in range(len(PROMPT) // 4):
        assert of([20 + index if index == wrong else index for index in range(20)]) != own
    assert of(range(20)) == own


def test_beams_of_the_echo_model_are_readable_and_end() -> None:
    reasons = set()
    for number in range(6):
        prompt = TOKENIZER.encode_chat([ChatMessage("user", f"question {number}")])
        for found in search_through_blocks(echo_backend(), prompt, BeamSearch(4, 4, eos_ids=[END], max_tokens=60)):
            text = TOKENIZER.decode(found.token_ids)
            assert found.reason == "length" or ("\ufffd" not in text and 20 <= len(found.token_ids) <= 60)
            reasons.add(found.reason)
    assert "stop" in reasons


@pytest.mark.parametrize("early_stopping", [True, False, "never"], ids=str)
def test_beams_through_copied_blocks_are_those_computed_from_the_first_token(early_stopping, backend: Backend) -> None:
    prompt = prompt_of(backend, PROMPT)

    def search() -> BeamSearch:
        return BeamSearch(3, 3, 1.0, early_stopping, [END, 2, 40, 77], max_tokens=30)

    through_blocks = search_through_blocks(backend, prompt, search())
    if isinstance(backend, EchoBackend):
        assert through_blocks == search_from_the_first_token(prompt, search())
    else:
        expected = search_naively(tiny_model("llama"), prompt, search())
        assert [found.token_ids for found in through_blocks] == [found.token_ids for found in expected]
    assert len({found.token_ids for found in through_blocks}) == 3


def search_from_the_first_token(prompt: list[int], search: BeamSearch) -> list[Hypothesis]:
    """On the echo model, every beam anew at every step."""
    beams = [prompt]
    while beams:
        chunks = [Chunk(beam, 0, range(40), candidates=search.candidates_per_beam) for beam in beams]
        picks = search.advance([candidates(echo_backend().run([chunk])[0]) for chunk in chunks])
        beams = [[*beams[parent], token] for parent, token in picks]
    return search.hypotheses()
