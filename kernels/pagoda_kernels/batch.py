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
    longest_query, longest_context: the most query tokens and the longest context of any sequence, or more: known on
    the host, where kernels on a GPU choose how they are launched. Without them ``longest`` reads them back.
    """

    query_starts: torch.Tensor
    context_lengths: torch.Tensor
    block_tables: torch.Tensor
    slots: torch.Tensor
    longest_query: int | None = None
    longest_context: int | None = None

    def longest(self) -> tuple[int, int]:
        """Longest query and longest context. Waits for the device unless the caller has told both; asked only once."""
        if self.longest_query is None:
            self.longest_query = int(self.query_starts.diff().max())
        if self.longest_context is None:
            self.longest_context = int(self.context_lengths.max())
        return self.longest_query, self.longest_context
