"""The benchmark of serving asks everybody the same, in turns, and reports what it has goals for."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence

import pytest

from bench import interleaved, serving
from bench.interleaved import Server, measure, ratios
from bench.peers.peer import PeerFailed, Round
from bench.results import Results


class FakeServer:
    """Answers with a token of its own, in a time of its own; ``fails_at``: the round in which it ends."""

    def __init__(self, name: str, token: int, seconds: float = 1.0, fails_at: int | None = None) -> None:
        self.name, self.token, self.seconds, self.fails_at = name, token, seconds, fails_at
        self.start_s = 2.0
        self.asked: list[tuple[list[list[int]], list[int]]] = []

    async def run_round(self, prompts: Sequence[Sequence[int]], outputs: Sequence[int]) -> Round:
        if self.fails_at is not None and len(self.asked) >= self.fails_at:
            raise PeerFailed("ended with status 1: out of memory")
        self.asked.append(([list(prompt) for prompt in prompts], list(outputs)))
        return Round(self.seconds, [[self.token] * count for count in outputs])

    def resident_bytes(self) -> int:
        return 1 << 20


SMALL = serving.Sample(rounds=2, chats=3, turns=2)


def values(results: Results) -> dict[str, float]:
    return {result["name"]: result["value"] for result in results.results}


async def test_rounds_begin_with_somebody_else_each_time() -> None:
    order: list[str] = []

    async def run(server: Server, work: int) -> float:
        order.append(f"{server.name}{work}")
        return float(work)

    servers = [FakeServer(name, 1) for name in ("a", "b", "c")]
    taken = await measure(Results("serving"), "x", servers, [0, 1, 2], run)
    assert order == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2"]
    assert taken == {name: [0.0, 1.0, 2.0] for name in ("a", "b", "c")}


async def test_a_slow_server_is_left_out_of_later_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10000, 10))
    monkeypatch.setattr(interleaved, "SLOW_ROUND_S", 15.0)
    monkeypatch.setattr(interleaved.time, "perf_counter", lambda: float(next(clock)))

    async def run(server: Server, work: int) -> float:
        if server.name == "slow":
            next(clock)
        return 1.0

    servers = [FakeServer(name, 1) for name in ("quick", "slow")]
    taken = await measure(Results("serving"), "x", servers, [0, 1, 2, 3], run)
    assert {name: len(each) for name, each in taken.items()} == {"quick": 4, "slow": 2}


async def test_a_peer_that_ends_is_left_out_and_the_results_say_why() -> None:
    results = Results("serving")
    servers = [FakeServer("ours", 1), FakeServer("vllm", 2, fails_at=1)]
    taken = await measure(results, "serving.x", servers, [([[1]], [4])] * 3, serving.tokens_per_second)
    assert taken == {"ours": [4.0] * 3, "vllm": [4.0]}
    assert results.skipped == [
        {"name": "serving.x.vllm", "why": "not run: ended with status 1: out of memory"},
    ]


def test_ratios_are_of_the_rounds_that_both_ran() -> None:
    assert ratios([2.0, 4.0, 6.0], [1.0, 1.0]) == [2.0, 4.0]


async def test_conversations_go_on_from_the_servers_own_answers() -> None:
    turns = [[[10], [20]], [[11], [21]]]
    for token in (1, 2):
        server = FakeServer("ours", token)
        assert await serving.converse(server, turns) == 2.0
        answer = [token] * serving.ANSWER
        assert [prompts for prompts, _ in server.asked] == [[[10], [20]], [[10, *answer, 11], [20, *answer, 21]]]


async def test_everybody_is_asked_the_same_and_the_results_carry_ratios_and_goals() -> None:
    results = Results("serving")
    servers = [FakeServer("ours", 1, 1.0), FakeServer("vllm", 2, 2.0), FakeServer("hf_cb", 3, 8.0)]
    await serving.squares(results, "bf16", servers, SMALL, random.Random(1))
    assert all(server.asked == servers[0].asked for server in servers)
    warm_up, *rounds = servers[0].asked
    assert warm_up[1] == [serving.WARM_UP_TOKENS] * 16
    assert len(rounds) == 2
    assert rounds[0] != rounds[1]
    found = values(results)
    assert found["serving.bf16.ours_tok_s"] == 1024
    assert found["serving.bf16.ratio_vllm"] == 2
    assert {result["name"]: result["ok"] for result in results.results if "goal" in result} == {
        "serving.bf16.ratio_vllm": True,
        "serving.bf16.ratio_hf_cb": True,
    }


async def test_chats_are_cut_and_a_small_cache_is_compared_with_an_ample_one() -> None:
    results = Results("serving")
    servers = [FakeServer("ours", 1, 1.0), FakeServer("vllm", 2, 1.0)]
    servers += [FakeServer("ours_cut", 1, 1.25), FakeServer("vllm_cut", 2, 2.0)]
    await serving.chats(results, servers, serving.Sample(2, 32, 1), random.Random(1), None)
    for prompts, outputs in servers[0].asked[1:]:
        assert len(prompts) == 32
        assert max(map(len, prompts)) <= 512
        assert max(outputs) <= 128
    found = values(results)
    assert found["serving.kvcut.ratio"] == 0.8
    assert found["serving.kvcut.vllm_ratio"] == 0.5
    assert "serving.sharegpt.ratio_vllm" in found
    assert not any("cut" in name for name in found if name.startswith("serving.sharegpt"))


async def test_conversations_and_single_streams_are_compared() -> None:
    results = Results("serving")
    ours, vllm = FakeServer("ours", 1, 1.0), FakeServer("vllm", 2, 2.0)
    four_bit, llama = FakeServer("ours_int4", 1, 0.5), FakeServer("llama", 3, 0.75)
    await serving.conversations(results, [ours, vllm], SMALL, random.Random(1))
    await serving.single_stream(results, [ours, vllm, four_bit, llama], SMALL, random.Random(1))
    found = values(results)
    assert found["serving.multiturn.ratio_vllm"] == 0.5
    assert found["serving.single.ratio_vllm"] == 2
    assert found["serving.single.ratio_llama"] == 1.5
    assert found["serving.single.ours_bf16_tok_s"] == serving.SINGLE_OUTPUT
    assert all(result["ok"] for result in results.results if "goal" in result)


def test_a_name_that_is_not_known_is_refused() -> None:
    options = argparse.Namespace(quick=True, repeats=None, peers="vllm,rival", cases=None)
    with pytest.raises(SystemExit, match="rival"):
        serving.run(Results("serving"), options)
