"""Throughput of a batch over that of the same requests sent directly, as many at a time; and the largest input.

The whole installation runs: engine (SmolLM2-135M-Instruct), web process, worker, SQLite. Rounds take turns (batch,
direct, direct, batch); every round has fresh prompts. A batch is timed from its creation to the moment its output file
is there, a direct round from the first request sent to the last answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx

from bench import batch_upload
from bench.batch_installation import Installation, installation
from bench.progress import progress
from bench.results import Results

IN_FLIGHT = 32
"""PAGODA_BATCH_LINES_IN_FLIGHT has the same default."""
ENDPOINT = "/v1/chat/completions"
LOOK_S = 0.1


@dataclass(frozen=True)
class Sample:
    """Pairs of rounds, requests of a round, words of a prompt, tokens of an answer; the share of the largest file."""

    pairs: int
    requests: int
    words: int
    tokens: int
    share: float


FULL, QUICK = Sample(4, 384, 60, 48, 1.0), Sample(2, 96, 30, 24, 0.1)


def run(results: Results, options: argparse.Namespace) -> None:
    sample = QUICK if options.quick else FULL
    if options.repeats:
        sample = replace(sample, pairs=options.repeats)
    asyncio.run(_run(results, sample))


async def _run(results: Results, sample: Sample) -> None:
    rng = random.Random(20261130)
    batch_s: list[float] = []
    direct_s: list[float] = []
    results.add_value("batch.sample", sample)
    async with installation() as site, site.client() as client:
        await batch_upload.measure(results, site, client, sample.share)
        await _direct(client, _bodies(site, sample, rng)[:IN_FLIGHT])  # warm up
        await _batch(client, _bodies(site, sample, rng)[:IN_FLIGHT])
        with results.keeping("batch", {"batch_s": batch_s, "direct_s": direct_s}):
            for number in progress(range(sample.pairs), "batch"):
                for kind in ("batch", "direct") if number % 2 == 0 else ("direct", "batch"):
                    bodies = _bodies(site, sample, rng)
                    if kind == "batch":
                        batch_s.append(await _batch(client, bodies))
                    else:
                        direct_s.append(await _direct(client, bodies))
    tokens = sample.requests * sample.tokens
    results.add("batch.batch_tok_s", [tokens / seconds for seconds in batch_s], unit="tok/s")
    results.add("batch.direct_tok_s", [tokens / seconds for seconds in direct_s], unit="tok/s")
    ratios = [direct / batch for batch, direct in zip(batch_s, direct_s, strict=True)]
    results.add("batch.throughput_ratio", ratios, goal=">=0.9")


def _bodies(site: Installation, sample: Sample, rng: random.Random) -> list[dict[str, Any]]:
    """Questions that no cache has, with answers of one length."""
    return [
        {
            "model": site.model,
            "messages": [
                {"role": "user", "content": " ".join(f"{rng.randrange(10**4):04d}" for _ in range(sample.words))}
            ],
            "max_tokens": sample.tokens,
            "ignore_eos": True,
        }
        for _ in range(sample.requests)
    ]


async def _direct(client: httpx.AsyncClient, bodies: Sequence[dict[str, Any]]) -> float:
    """Seconds for all of them, IN_FLIGHT at a time."""
    waiting = iter(bodies)

    async def ask() -> None:
        for body in waiting:
            (await client.post("/chat/completions", json=body)).raise_for_status()

    begun = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(ask())
    return time.perf_counter() - begun


async def _batch(client: httpx.AsyncClient, bodies: Sequence[dict[str, Any]]) -> float:
    """Seconds from a batch's creation to its end. Raises RuntimeError where a line failed."""
    lines = [
        json.dumps({"custom_id": str(number), "method": "POST", "url": ENDPOINT, "body": body})
        for number, body in enumerate(bodies)
    ]
    upload = {"purpose": (None, "batch"), "file": ("lines.jsonl", "\n".join(lines))}
    file = (await client.post("/files", files=upload)).raise_for_status().json()
    wanted = {"input_file_id": file["id"], "endpoint": ENDPOINT, "completion_window": "24h"}
    begun = time.perf_counter()
    batch = (await client.post("/batches", json=wanted)).raise_for_status().json()
    while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
        await asyncio.sleep(LOOK_S)
        batch = (await client.get(f"/batches/{batch['id']}")).raise_for_status().json()
    seconds = time.perf_counter() - begun
    if batch["request_counts"]["completed"] != len(bodies):
        raise RuntimeError(f"the batch ended as {batch['status']}: {batch['request_counts']}, {batch['errors']}")
    return seconds
