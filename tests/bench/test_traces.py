"""Traces are read by their columns, laws have the paper's means, arrivals are those asked for, clients stay apart."""

from __future__ import annotations

import bisect
import itertools
import json
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bench.traces import arrivals, catalogue, laws, questions, recorded, sharegpt, synthetic
from bench.traces.errors import TraceMalformed, TraceMissing
from bench.traces.laws import Workload
from bench.traces.request import TracedRequest
from bench.workloads import sharegpt_lengths


def write_csv(path: Path, columns: Sequence[str], *rows: Sequence[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_jsonl(path: Path, *values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def block_row(at_ms: int, tokens: int, *blocks: int) -> dict[str, object]:
    return {"timestamp": at_ms, "input_length": tokens, "output_length": 7, "hash_ids": blocks}


def test_a_trace_is_found_by_its_folder_and_columns_whatever_its_file_is_called(tmp_path: Path) -> None:
    write_csv(tmp_path / "azure2023/aaa.csv", ("t_s", "notes"), (1, "x"))
    write_csv(tmp_path / "azure2023/zzz.csv", ("t_s", "context_tokens", "generated_tokens"), (5.5, 374, 44), (7, 9, 1))
    assert catalogue.read("azure", tmp_path) == [TracedRequest(0.0, 374, 44), TracedRequest(1.5, 9, 1)]


@pytest.mark.parametrize("name", catalogue.FORMATS)
def test_a_missing_trace_says_which_columns_were_looked_for_and_where(name: str, tmp_path: Path) -> None:
    format = catalogue.FORMATS[name]
    with pytest.raises(TraceMissing) as caught:
        catalogue.read(name, tmp_path)
    assert str(tmp_path / format.folder) in str(caught.value)
    assert all(column in str(caught.value) for column in format.columns)


@pytest.mark.parametrize(("read", "column"), [(recorded.read_arena, "client"), (recorded.read_servegen, "tenant")])
def test_clients_keep_their_own_requests(
    read: Callable[[Path], list[TracedRequest]], column: str, tmp_path: Path
) -> None:
    columns = ("t_s", column, "input_tokens", "output_tokens")
    path = write_csv(tmp_path / "x.csv", columns, (0.0, "acme", 13, 199), (0.2, "rival", 36, 137), (0.4, "acme", 4, 1))
    trace = read(path)
    assert [request.prompt_tokens for request in trace if request.client == "acme"] == [13, 4]
    assert [request.prompt_tokens for request in trace if request.client == "rival"] == [36]
    assert catalogue.read_file(path) == trace


def test_stamps_count_from_the_first_request_and_are_in_order(tmp_path: Path) -> None:
    columns = ("t_s", "context_tokens", "generated_tokens")
    path = write_csv(tmp_path / "x.csv", columns, (903.5, 2, 1), (900.0, 1, 1))
    assert [(request.at_s, request.prompt_tokens) for request in recorded.read_azure(path)] == [(0.0, 1), (3.5, 2)]


def test_blocks_of_a_prompt_are_read_with_their_size(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "mooncake/x.jsonl", block_row(2000, 600, 0, 1), block_row(3500, 512, 0))
    first, second = catalogue.read("mooncake", tmp_path)
    assert (first.at_s, first.blocks, first.block_tokens) == (0.0, (0, 1), 512)
    assert (second.at_s, second.blocks, second.prompt_tokens, second.output_tokens) == (1.5, (0,), 512, 7)


def test_rounds_of_a_conversation_are_its_own_and_a_cut_prompt_shares_no_beginning(tmp_path: Path) -> None:
    rows = ((3, 0, 40, 40, 9), (4, 0, 50, 50, 9), (3, 1, 1500, 1024, 9), (3, 2, 1600, 1024, 9))
    write_csv(tmp_path / "sharegpt_lengths/x.csv", sharegpt.ROUND_COLUMNS, *rows)
    rounds = sharegpt.chatbot_rounds(tmp_path)
    assert [(each.conversation, each.turn) for each in rounds] == [("3", 0), ("4", 0), ("3", 1), ("3", 2)]
    assert [each.blocks for each in rounds[:2]] == [(), ()]
    assert len({each.blocks for each in rounds[2:]}) == 2
    assert all(each.block_tokens == 1024 for each in rounds[2:])


def test_a_turns_prompt_holds_everything_before_it(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "sharegpt_lengths/x.jsonl", [[5, 261], [6, 258]], [[17, 73]])
    trace = catalogue.read("multiturn", tmp_path)
    assert [(each.conversation, each.turn, each.prompt_tokens, each.output_tokens) for each in trace] == [
        ("0", 0, 5, 261),
        ("0", 1, 5 + 261 + 6, 258),
        ("1", 0, 17, 73),
    ]


def test_questions_are_those_with_as_many_turns_as_asked_for(tmp_path: Path) -> None:
    for name, turns in (("a", ["Write it.", "Again."]), ("b", ["Why?"])):
        row = {"question_id": 1, "category": "writing", "turns": turns, "turn_tokens": [3] * len(turns)}
        write_jsonl(tmp_path / f"mt_bench/{name}.jsonl", row)
    assert [each.turns for each in questions.questions(tmp_path)] == [("Write it.", "Again.")]
    assert [each.turns for each in questions.questions(tmp_path, turns=1)] == [("Why?",)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1.0,acme,x,2", "line 3: input_tokens is 'x', not a whole number"),
        ("1.0,acme,-4,2", "line 3: input_tokens is '-4', not a whole number from 0"),
        ("soon,acme,4,2", "line 3: t_s is 'soon', not a number"),
        ("nan,acme,4,2", "line 3: t_s is 'nan', not a finite number"),
        ("1.0,,4,2", "line 3: client is '', not a text"),
        ("1.0,acme,4", "line 3: 3 fields for 4 columns"),
    ],
)
def test_a_wrong_row_of_a_table_is_named_by_file_and_line(row: str, said: str, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", recorded.ARENA_COLUMNS, (0.0, "rival", 1, 1), (row,))
    with pytest.raises(TraceMalformed) as caught:
        recorded.read_arena(path)
    assert str(caught.value) == f"{path}, {said}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "line 2: not an object"),
        (json.dumps(block_row(0, 513, 1)), "line 2: 1 hash_ids for 513 tokens in blocks of 512"),
        (json.dumps(block_row(0, 512, 1) | {"hash_ids": ["a"]}), "line 2: hash_ids is not a list of int"),
        (json.dumps(block_row(0, 512, 1) | {"output_length": 1.5}), "line 2: output_length is 1.5, not a whole number"),
        ('{"timestamp": 0, "input_length": 512, "hash_ids": [1]}', "line 2: output_length is missing"),
    ],
)
def test_a_wrong_line_of_json_is_named_by_file_and_line(line: str, said: str, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", block_row(0, 512, 1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(TraceMalformed) as caught:
        recorded.read_mooncake(path)
    assert str(caught.value).startswith(f"{path}, {said}")


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl"])
def test_a_line_that_is_no_text_is_named_however_far_down_it_is(name: str, tmp_path: Path) -> None:
    columns, row = ("t_s", "context_tokens", "generated_tokens"), (1, 2, 3)
    path = (
        write_csv(tmp_path / name, columns, *[row] * 5000)
        if name == "x.csv"
        else write_jsonl(tmp_path / name, *[block_row(0, 512, 1)] * 5001)
    )
    path.write_bytes(path.read_bytes() + b"\xff\xfe\n")
    with pytest.raises(TraceMalformed) as caught:
        catalogue.read_file(path)
    assert str(caught.value) == f"{path}, line 5002: no text in UTF-8"


def test_a_conversation_that_is_none_is_named_by_file_and_line(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "x.jsonl", [[1, 2]], [[1, 2, 3]])
    with pytest.raises(TraceMalformed, match="line 2: not a list of"):
        sharegpt.read_conversations(path)


def test_a_file_with_nobodys_columns_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", ("a", "b"), (1, 2))
    with pytest.raises(TraceMissing, match="azure: t_s, context_tokens, generated_tokens"):
        catalogue.read_file(path)


def skewed_pairs(count: int) -> list[tuple[int, int]]:
    rng = random.Random(5)
    return [laws.draw(Workload.SHAREGPT, rng) for _ in range(count)]


def test_a_sample_with_the_papers_means_is_taken_before_others_and_as_it_is(tmp_path: Path) -> None:
    close = [(161, 338), (162, 338)]
    write_csv(tmp_path / "sharegpt_lengths/a.csv", sharegpt.PAIR_COLUMNS, (10, 20), (400, 800))
    write_csv(tmp_path / "sharegpt_lengths/b.csv", sharegpt.PAIR_COLUMNS, *close)
    assert sharegpt.paper_pairs(tmp_path) == close
    assert sorted(sharegpt_lengths(2, random.Random(1), tmp_path)) == close


def test_another_sample_is_drawn_again_to_the_papers_means_out_of_its_own_pairs(tmp_path: Path) -> None:
    sample = [(1 + prompt // 2, output * 2) for prompt, output in skewed_pairs(4000)]
    write_csv(tmp_path / "sharegpt_lengths/a.csv", sharegpt.PAIR_COLUMNS, *sample)
    pairs = sharegpt.paper_pairs(tmp_path)
    assert set(pairs) <= set(sample)
    assert statistics.mean(prompt for prompt, _ in pairs) == pytest.approx(161.31, rel=0.08)
    assert statistics.mean(output for _, output in pairs) == pytest.approx(337.99, rel=0.08)


def test_means_that_no_sample_reaches_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no weights give 2 pairs the means 161\.31 and 337\.99"):
        sharegpt.calibrated([(1, 1), (2, 3)], (161.31, 337.99), random.Random(1))


@pytest.mark.parametrize("workload", laws.PAPER_MEANS)
def test_a_law_has_the_papers_means(workload: Workload) -> None:
    rng = random.Random(11)
    pairs = [laws.draw(workload, rng) for _ in range(100_000)]
    for lengths, mean in zip(zip(*pairs, strict=True), laws.PAPER_MEANS[workload], strict=True):
        error = statistics.stdev(lengths) / len(lengths) ** 0.5
        assert abs(statistics.mean(lengths) - mean) < 4 * error + 0.005 * mean
    assert max(map(sum, pairs)) <= 2048
    assert min(min(pair) for pair in pairs) >= 1


def test_the_chatbots_law_fills_a_third_of_the_prompts_and_is_cut_as_the_papers_is() -> None:
    rng = random.Random(12)
    prompts, outputs = zip(*(laws.draw(Workload.CHATBOT, rng) for _ in range(50_000)), strict=True)
    assert max(prompts) == max(outputs) == 1024
    assert prompts.count(1024) / len(prompts) == pytest.approx(0.305, abs=0.01)
    assert statistics.mean(prompts) == pytest.approx(566, rel=0.01)
    assert statistics.mean(outputs) == pytest.approx(317.4, rel=0.015)


def test_translations_have_the_assumed_lengths_and_follow_their_source() -> None:
    rng = random.Random(13)
    sources, translations = zip(*(laws.draw(Workload.WMT16, rng) for _ in range(20_000)), strict=True)
    for lengths in (sources, translations):
        assert statistics.mean(lengths) == pytest.approx(30, rel=0.02)
        assert 3 <= min(lengths) <= max(lengths) <= 150
    ranks = [_ranks(sources), _ranks(translations)]
    assert statistics.correlation(*ranks) == pytest.approx(0.9, abs=0.01)


def _ranks(lengths: Sequence[int]) -> list[int]:
    ordered = sorted(lengths)
    return [bisect.bisect(ordered, length) + bisect.bisect_left(ordered, length) for length in lengths]


def test_a_shared_prefix_is_one_block_of_all_and_the_rest_is_each_requests_own() -> None:
    trace = synthetic.shared_prefix(50, laws.ONE_SHOT_PREFIX, random.Random(3))
    assert {request.blocks[0] for request in trace} == {0}
    own = Counter(block for request in trace for block in request.blocks[1:])
    assert set(own.values()) == {1}
    assert all(len(request.blocks) == -(-request.prompt_tokens // request.block_tokens) for request in trace)


def test_groups_share_their_own_prefix_and_none_of_a_rivals() -> None:
    trace = synthetic.grouped_prefixes(random.Random(4), groups=3, each=5)
    assert Counter(request.client for request in trace) == {"group-0": 5, "group-1": 5, "group-2": 5}
    assert len({(request.client, request.blocks[0]) for request in trace}) == 3
    assert len({request.blocks[0] for request in trace}) == 3
    assert {(request.prompt_tokens, request.output_tokens) for request in trace} == {(2048 + 128, 256)}


def lengths_alone(count: int) -> list[TracedRequest]:
    return [TracedRequest(0.0, 1 + number, 1, client=("acme", "rival")[number % 2]) for number in range(count)]


def test_poisson_arrivals_have_the_rate_and_exponential_gaps_and_repeat_with_their_seed() -> None:
    trace = arrivals.poisson(lengths_alone(20_000), 2.5, random.Random(6))
    gaps = [after.at_s - before.at_s for before, after in itertools.pairwise(trace)]
    assert len(trace) / trace[-1].at_s == pytest.approx(2.5, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.03)
    assert [(each.prompt_tokens, each.client) for each in trace[:2]] == [(1, "acme"), (2, "rival")]
    assert arrivals.poisson(lengths_alone(20_000), 2.5, random.Random(6)) == trace


def test_a_traces_own_arrivals_keep_their_pattern_at_another_rate() -> None:
    trace = [TracedRequest(at, 1, 1) for at in (0.0, 1.0, 4.0)]
    assert [each.at_s for each in arrivals.at_rate(trace, 2.0)] == [0.0, 0.25, 1.0]
    assert [each.at_s for each in arrivals.at_speed(trace, 10)] == [0.0, 0.1, 0.4]


def test_rates_that_are_none_are_refused() -> None:
    trace = lengths_alone(3)
    for rate in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="above 0"):
            arrivals.poisson(trace, rate, random.Random(1))
    with pytest.raises(ValueError, match="all come at once"):
        arrivals.at_rate(trace, 1.0)


def test_a_trace_is_cut_to_its_first_requests_and_seconds() -> None:
    trace = [TracedRequest(float(at), 1, 1) for at in range(10)]
    assert [each.at_s for each in arrivals.cut(trace, count=4)] == [0, 1, 2, 3]
    assert [each.at_s for each in arrivals.cut(trace, count=4, seconds=2.0)] == [0, 1]
    assert arrivals.cut(trace) == trace
    assert arrivals.has_arrivals(trace)
    assert not arrivals.has_arrivals(lengths_alone(3))
