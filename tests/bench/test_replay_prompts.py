"""A replayed prompt has the trace's length where the context has room, and shares what the trace says."""

from __future__ import annotations

import pytest

from bench.traces.content import Content
from bench.traces.fitting import fit
from tests.bench.replaying import traced


def test_blocks_have_the_same_tokens_wherever_they_are_the_same() -> None:
    content = Content(1, 0, 255)
    longer = content.prompt(traced(0, 90, blocks=(1, 2, 3), block_tokens=32), 0)
    shorter = content.prompt(traced(0, 64, "rival", blocks=(1, 4), block_tokens=32), 1)
    assert len(longer) == 90
    assert longer[:32] == shorter[:32]
    assert longer[32:64] != shorter[32:]
    assert min(longer) >= 0
    assert max(longer) <= 255
    assert content.prompt(traced(0, 90, blocks=(1, 2, 3), block_tokens=32), 7) == longer
    assert Content(2, 0, 255).prompt(traced(0, 90, blocks=(1, 2, 3), block_tokens=32), 0) != longer


def test_requests_of_which_the_trace_says_nothing_share_nothing() -> None:
    content = Content(1, 0, 255)
    assert content.prompt(traced(0, 40), 0)[:16] != content.prompt(traced(0, 40), 1)[:16]


def test_long_requests_are_cut_at_the_end_or_left_out_and_counted() -> None:
    requests = [traced(0, 50, output=20), traced(1, 150, output=80), traced(2, 10, output=300), traced(3, 0, output=1)]
    fitted = fit(requests, 100, "cut")
    assert [(each.prompt_tokens, each.output_tokens) for each in fitted.requests] == [(50, 20), (50, 50), (10, 90)]
    assert (fitted.cut, fitted.too_long, fitted.empty) == (2, 0, 1)
    fitted = fit(requests, 100, "skip")
    assert [each.at_s for each in fitted.requests] == [0]
    assert (fitted.cut, fitted.too_long, fitted.empty) == (0, 2, 1)


@pytest.mark.parametrize("context", [2, 3, 4])
def test_the_smallest_contexts_keep_a_token_of_the_prompt_and_of_the_answer(context: int) -> None:
    requests = [traced(0, prompt, output=output) for prompt in (1, 2, 90) for output in (1, 2, 90)]
    fitted = fit(requests, context, "cut")
    assert len(fitted.requests) == len(requests)
    assert all(each.prompt_tokens >= 1 and each.output_tokens >= 1 for each in fitted.requests)
    assert all(each.prompt_tokens + each.output_tokens <= context for each in fitted.requests)


def test_a_context_of_one_token_has_room_for_nothing() -> None:
    fitted = fit([traced(0, 1, output=1), traced(1, 90, "rival", output=90)], 1, "cut")
    assert (fitted.requests, fitted.too_long) == ([], 2)
