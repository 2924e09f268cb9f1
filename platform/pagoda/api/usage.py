"""The tokens of a request's calls, as its answer tells them."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from pagoda.api.running import Running
from pagoda.api.wire import KvLimit, PromptTokensDetails, Usage
from pagoda_inference.protocol import Error


def of(calls: Running) -> Usage:
    """By the engine's own count, all calls together; what their records in the ledger sum up to."""
    return Usage(
        prompt_tokens=calls.prompt_tokens,
        completion_tokens=calls.output_tokens,
        total_tokens=calls.prompt_tokens + calls.output_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=calls.cached_tokens),
        kv_limit=_kv_limit(calls.cut_short),
    )


def _kv_limit(cut_short: Error | None) -> KvLimit | UnsetType:
    if cut_short is None:
        return UNSET
    return KvLimit(int(cut_short.details["limit_blocks"]), int(cut_short.details["block_size"]))
