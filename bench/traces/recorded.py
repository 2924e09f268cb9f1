"""Traces of whole services, one request a row: arrivals and lengths, with clients or blocks where they have them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from bench.traces.request import TracedRequest
from bench.traces.tables import Row, rows

AZURE_FOLDER, AZURE_COLUMNS = "azure2023", ("t_s", "context_tokens", "generated_tokens")
ARENA_FOLDER, ARENA_COLUMNS = "arena_multiclient", ("t_s", "client", "input_tokens", "output_tokens")
SERVEGEN_FOLDER, SERVEGEN_COLUMNS = "servegen_clients", ("t_s", "tenant", "input_tokens", "output_tokens")
LLAMA2_FOLDER, LLAMA2_COLUMNS = "sharegpt_llama2_lengths", ("prefill_tokens", "decode_tokens")
MOONCAKE_FOLDER, MOONCAKE_COLUMNS = "mooncake", ("timestamp", "input_length", "output_length", "hash_ids")
MOONCAKE_BLOCK_TOKENS = 512


def read_azure(path: Path) -> list[TracedRequest]:
    """A production chat service (Splitwise, ISCA'24)."""
    return _from_first(
        TracedRequest(row.seconds("t_s"), row.tokens("context_tokens"), row.tokens("generated_tokens"))
        for row in rows(path)
    )


def read_arena(path: Path) -> list[TracedRequest]:
    """Chatbot Arena; a client is a model that was asked, used as a tenant (VTC, OSDI'24)."""
    return _from_first(_of_client(row, "client") for row in rows(path))


def read_servegen(path: Path) -> list[TracedRequest]:
    """Requests made from the statistics of real clients (ServeGen)."""
    return _from_first(_of_client(row, "tenant") for row in rows(path))


def _of_client(row: Row, column: str) -> TracedRequest:
    tokens = row.tokens("input_tokens"), row.tokens("output_tokens")
    return TracedRequest(row.seconds("t_s"), *tokens, client=row.text(column))


def read_llama2_lengths(path: Path) -> list[TracedRequest]:
    """ShareGPT turns with their contexts up to 8,192 tokens (Sarathi-Serve, OSDI'24); no arrivals, no conversations."""
    return [TracedRequest(0.0, row.tokens("prefill_tokens"), row.tokens("decode_tokens")) for row in rows(path)]


def read_mooncake(path: Path) -> list[TracedRequest]:
    """A production chat service with the hashes of its prompts' blocks (Mooncake, FAST'25); stamps in milliseconds."""
    return _from_first(_of_blocks(row) for row in rows(path))


def _of_blocks(row: Row) -> TracedRequest:
    tokens, blocks = row.tokens("input_length"), row.list("hash_ids", int)
    if len(blocks) != -(-tokens // MOONCAKE_BLOCK_TOKENS):
        raise row.wrong(f"{len(blocks)} hash_ids for {tokens} tokens in blocks of {MOONCAKE_BLOCK_TOKENS}")
    return TracedRequest(
        at_s=row.seconds("timestamp") / 1000,
        prompt_tokens=tokens,
        output_tokens=row.tokens("output_length"),
        blocks=tuple(blocks),
        block_tokens=MOONCAKE_BLOCK_TOKENS,
    )


def _from_first(requests: Iterable[TracedRequest]) -> list[TracedRequest]:
    """In the order of arrival, the first one at 0: a part of a trace begins when its first request does."""
    ordered = sorted(requests, key=lambda request: request.at_s)
    begin = ordered[0].at_s if ordered else 0.0
    return [replace(request, at_s=request.at_s - begin) for request in ordered] if begin else ordered
