"""What a paged kernel has to know about a step: which rows are whose, and where their KV lies."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class PagedBatch:
    """One step of S sequences whose T query tokens lie one after the other in a single stream.

    query_starts: int32 [S + 1], sequence s owns rows query_starts[s] .. query_starts[s + 1] - 1, at least one.
    context_lengths: int32 [S], tokens of the sequence up to and including its last query token.
    block_tables: int32 [S, B], physical block of each logical block; entries behind the context are ignored but valid.
    slots: int64 [T], where each token's KV is written: block * block_size + offset.
    All on the pools' device, contiguous.
    """

    query_starts: torch.Tensor
    context_lengths: torch.Tensor
    block_tables: torch.Tensor
    slots: torch.Tensor
