"""Output tokens per second of our daemon beside its peers: transformers' static batch and its continuous batching, and
with ``--peers`` also vLLM and llama.cpp.

``fp32``, ``bf16``: 16 requests of 64 tokens in and 64 out. ``sharegpt``: 32 chats of ShareGPT lengths with prompts of
at most 512 and outputs of at most 128 tokens in 16 slots; with ``--peers`` the same again in a KV cache of 2,560 tokens
(``kvcut``). With ``--peers`` alone: ``multiturn``, 8 conversations of 6 turns in lockstep, each going on from its own
answers; ``single``, one request at a time; ``start`` and ``memory``; ``overhead`` (see bench/step_overhead.py). Every
round sends fresh random prompts, the same to everybody (see bench/interleaved.py); ratios are of rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from bench import step_overhead
from bench.interleaved import Ours, Server, measure, ratios
from bench.peers.known import IN_OUR_ENVIRONMENT, PEERS, make_peer
from bench.peers.peer import PeerFailed
from bench.progress import progress
from bench.results import Results
from bench.roofline import weight_elements
from bench.workloads import random_tokens, sharegpt_lengths
from pagoda_inference.model.default_model import prepare_default_model
from pagoda_inference.settings import Settings

CASES = ("fp32", "bf16", "start", "multiturn", "single", "sharegpt", "overhead")
WITH_PEERS = ("multiturn", "single", "start", "overhead")
SLOTS = 16
AMPLE_TOKENS, CUT_TOKENS = 32768, 2560
QUESTION, ANSWER = 64, 64
"""Tokens of a conversation's question and of its answer, in every turn."""
SINGLE_PROMPT, SINGLE_OUTPUT = 64, 128
WARM_UP_TOKENS, OVERHEAD_STEPS = 4, 32
FOUR_BIT = "q4"
"""What our daemon would be told for 4-bit weights."""

GOALS = {
    "fp32": {"hf_cb": ">=1.5", "hf_static": ">=0.9"},
    "bf16": {"vllm": ">=1.15", "hf_cb": ">=3.0", "hf_static": ">=0.9"},
    "sharegpt": {"vllm": ">=1.1"},
    "multiturn": {"vllm": "<=0.9"},
    "single": {"vllm": ">=1.0"},
}
KV_CUT_GOAL, FOUR_BIT_GOAL = ">=0.8", ">=1.2"

Batch = tuple[list[list[int]], list[int]]
"""Prompts, and the output tokens of each."""


@dataclass(frozen=True)
class Sample:
    """How much is measured: rounds, chats of a round, turns of a conversation."""

    rounds: int
    chats: int
    turns: int


FULL, QUICK = Sample(5, 32, 6), Sample(2, 8, 2)


def run(results: Results, options: argparse.Namespace) -> None:
    sample = QUICK if options.quick else FULL
    if options.repeats:
        sample = Sample(options.repeats, sample.chats, sample.turns)
    peers = list(IN_OUR_ENVIRONMENT) if options.peers is None else _chosen(options.peers, PEERS)
    cases = [case for case in _chosen(options.cases, CASES) if options.peers is not None or case not in WITH_PEERS]
    if options.quick and options.peers is None and "sharegpt" in cases:
        cases.remove("sharegpt")
        results.skip("serving.sharegpt", "left out of --quick")
    asyncio.run(_run(results, options, sample, cases, peers))
    if "overhead" in cases:
        steps = step_overhead.measure(SLOTS, OVERHEAD_STEPS, step_overhead.GREEDY, dtype="bfloat16")
        results.add("serving.step_overhead_ratio", steps.ratios, goal="<=0.1")


def _chosen(names: str | None, known: tuple[str, ...]) -> list[str]:
    """Raises SystemExit for a name that is not known."""
    chosen = list(known) if not names else names.split(",")
    if unknown := set(chosen) - set(known):
        raise SystemExit(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return chosen


async def _run(
    results: Results, options: argparse.Namespace, sample: Sample, cases: list[str], peers: list[str]
) -> None:
    home = Settings.read().home
    stage = Stage(results, prepare_default_model(home), options.peers_home or home / "bench-peers")
    rng = random.Random(20260611)
    if "fp32" in cases:
        async with AsyncExitStack() as stack:
            names = [peer for peer in peers if peer in IN_OUR_ENVIRONMENT]
            servers = await stage.enter(stack, names, "float32", AMPLE_TOKENS)
            await squares(results, "fp32", servers, sample, rng)
    if not set(cases) - {"fp32", "overhead"}:
        return
    async with AsyncExitStack() as stack:
        servers = await stage.enter(stack, peers, "bfloat16", AMPLE_TOKENS)
        if "bf16" in cases:
            await squares(results, "bf16", servers, sample, rng)
        if "start" in cases:
            await stage.report(servers)
        few = [server for server in servers if server.name in ("ours", "vllm")]
        if "multiturn" in cases:
            await conversations(results, few, sample, rng)
        if "single" in cases:
            async with AsyncExitStack() as briefly:
                llama = [server for server in servers if server.name == "llama"]
                four_bit = await stage.enter_four_bit(briefly)
                await single_stream(results, [*few, *four_bit, *llama], sample, rng)
        if "sharegpt" in cases:
            if options.peers is not None:
                names = [peer for peer in peers if peer == "vllm"]
                servers += await stage.enter(stack, names, "bfloat16", CUT_TOKENS, suffix="_cut")
            await chats(results, servers, sample, rng, options.traces)


class Stage:
    """Starts everybody of a case on the same model."""

    def __init__(self, results: Results, model: Path, peers_home: Path) -> None:
        self.model = model
        self._results = results
        self._peers_home = peers_home
        self._missing: set[str] = set()

    async def enter(
        self, stack: AsyncExitStack, peers: list[str], dtype: str, kv_tokens: int, suffix: str = ""
    ) -> list[Server]:
        """Ours first, then the peers that start; the results say why another does not. They end with ``stack``."""
        flags = ("--dtype", dtype, "--max-running", str(SLOTS), "--pool-tokens", str(kv_tokens))
        ours = Ours("--model", str(self.model), *flags, name=f"ours{suffix}")
        servers: list[Server] = [await stack.enter_async_context(ours)]
        for peer in progress([peer for peer in peers if peer not in self._missing], "starting the peers"):
            try:
                made = await asyncio.to_thread(
                    make_peer, peer, self.model, dtype, slots=SLOTS, kv_tokens=kv_tokens, home=self._peers_home,
                    name=f"{peer}{suffix}",
                )  # fmt: skip
                servers.append(await stack.enter_async_context(made))
                if made.about:
                    self._results.add_value(f"serving.peer.{made.name}", made.about)
            except PeerFailed as failure:
                self._missing.add(peer)
                self._results.skip(f"serving.{peer}", f"not run: {failure}")
        return servers

    async def enter_four_bit(self, stack: AsyncExitStack) -> list[Server]:
        """Ours with 4-bit weights, if the engine has them; else the results say so."""
        flags = ("--dtype", FOUR_BIT, "--max-running", str(SLOTS), "--pool-tokens", str(AMPLE_TOKENS))
        try:
            return [await stack.enter_async_context(Ours(*flags, name="ours_int4"))]
        except RuntimeError as failure:
            self._results.skip("serving.single.ours_int4_tok_s", f"not run: {failure}")
            return []

    async def report(self, servers: list[Server]) -> None:
        """Seconds from start to ready, and memory beside that of the weights and the KV cache."""
        elements = weight_elements(self.model)
        for server in servers:
            self._results.add(f"serving.start.{server.name}_s", server.start_s, unit="s")
            resident = server.resident_bytes()
            self._results.add(f"serving.memory.{server.name}_mib", resident / 2**20, unit="MiB")
            if isinstance(server, Ours):
                info = await server.client.models()
                token_bytes = info.bytes_per_block // info.block_size
        needed = 2 * elements + AMPLE_TOKENS * token_bytes
        self._results.add("serving.memory.weights_and_pool_mib", needed / 2**20, unit="MiB")


async def squares(results: Results, case: str, servers: list[Server], sample: Sample, rng: random.Random) -> None:
    """SLOTS requests of 64 tokens in and 64 out."""
    works = [([random_tokens(64, rng) for _ in range(SLOTS)], [64] * SLOTS) for _ in range(sample.rounds)]
    await _warm_up(servers, works[0])
    _add_speeds(results, case, await measure(results, f"serving.{case}", servers, works, tokens_per_second))


async def chats(
    results: Results, servers: list[Server], sample: Sample, rng: random.Random, traces: Path | None
) -> None:
    """Mixed lengths, more requests than slots; in a small KV cache besides where such servers are given."""
    works = []
    for _ in range(sample.rounds):
        lengths = sharegpt_lengths(sample.chats, rng, traces)
        pairs = [(min(prompt, 512), min(output, 128)) for prompt, output in lengths]
        works.append(([random_tokens(prompt, rng) for prompt, _ in pairs], [output for _, output in pairs]))
    await _warm_up(servers, works[0])
    speeds = await measure(results, "serving.sharegpt", servers, works, tokens_per_second)
    cut = {name.removesuffix("_cut"): speeds.pop(name) for name in list(speeds) if name.endswith("_cut")}
    _add_speeds(results, "sharegpt", speeds)
    for name, values in cut.items():
        if not values or not speeds[name]:
            continue
        results.add(f"serving.kvcut.{name}_tok_s", values, unit="tok/s")
        goal = KV_CUT_GOAL if name == "ours" else None
        key = "ratio" if name == "ours" else f"{name}_ratio"
        results.add(f"serving.kvcut.{key}", ratios(values, speeds[name]), goal=goal)


async def conversations(results: Results, servers: list[Server], sample: Sample, rng: random.Random) -> None:
    """Seconds of all turns of 8 conversations; the next turn begins when all answers are there."""
    works = [
        [[random_tokens(QUESTION, rng) for _ in range(8)] for _ in range(sample.turns)] for _ in range(sample.rounds)
    ]
    await _warm_up(servers, (works[0][0], [ANSWER] * 8))
    seconds = await measure(results, "serving.multiturn", servers, works, converse)
    for name, values in seconds.items():
        if values:
            results.add(f"serving.multiturn.{name}_s", values, unit="s")
    if seconds.get("vllm"):
        goal = GOALS["multiturn"]["vllm"]
        results.add("serving.multiturn.ratio_vllm", ratios(seconds["ours"], seconds["vllm"]), goal=goal)


async def converse(server: Server, turns: list[list[list[int]]]) -> float:
    """Seconds of the turns: each has a question for each conversation, which goes on from the server's own answers."""
    histories: list[list[int]] = [[] for _ in turns[0]]
    seconds = 0.0
    for questions in turns:
        for history, question in zip(histories, questions, strict=True):
            history += question
        answered = await server.run_round(histories, [ANSWER] * len(histories))
        seconds += answered.seconds
        for history, answer in zip(histories, answered.token_ids, strict=True):
            history += answer
    return seconds


async def single_stream(results: Results, servers: list[Server], sample: Sample, rng: random.Random) -> None:
    """One request at a time: bf16, and 4-bit weights beside llama.cpp's where the engine has them."""
    works = [([random_tokens(SINGLE_PROMPT, rng)], [SINGLE_OUTPUT]) for _ in range(3 * sample.rounds)]
    await _warm_up(servers, works[0])
    speeds = await measure(results, "serving.single", servers, works, tokens_per_second)
    names = {"ours": "ours_bf16"}
    for name, values in speeds.items():
        if values:
            results.add(f"serving.single.{names.get(name, name)}_tok_s", values, unit="tok/s")
    if speeds.get("vllm"):
        goal = GOALS["single"]["vllm"]
        results.add("serving.single.ratio_vllm", ratios(speeds["ours"], speeds["vllm"]), goal=goal)
    if speeds.get("llama"):
        results.add("serving.single.ratio_llama_bf16", ratios(speeds["ours"], speeds["llama"]))
        if "ours_int4" in speeds:
            against = ratios(speeds["ours_int4"], speeds["llama"])
            results.add("serving.single.ratio_llama", against, goal=FOUR_BIT_GOAL)


async def tokens_per_second(server: Server, work: Batch) -> float:
    prompts, outputs = work
    return sum(outputs) / (await server.run_round(prompts, outputs)).seconds


async def _warm_up(servers: list[Server], work: Batch) -> None:
    prompts, outputs = work
    for server in servers:
        with suppress(PeerFailed):  # it fails in its first measured round again, and there the results say so
            await server.run_round(prompts, [min(WARM_UP_TOKENS, count) for count in outputs])


def _add_speeds(results: Results, case: str, speeds: dict[str, list[float]]) -> None:
    for name, values in speeds.items():
        if values:
            results.add(f"serving.{case}.{name}_tok_s", values, unit="tok/s")
    for name, values in speeds.items():
        if values and name != "ours":
            goal = GOALS[case].get(name)
            results.add(f"serving.{case}.ratio_{name}", ratios(speeds["ours"], values), goal=goal)
