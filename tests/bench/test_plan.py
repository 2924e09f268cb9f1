"""The capacity planner: costs fitted to steps, demands of traces, and steps that are those of the engine itself."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bench.planning.card import Card, on_device, planned_settings, rates
from bench.planning.engine_run import EngineInProcess
from bench.planning.fitted_cost import FittedCost, fit
from bench.planning.planner import Length, Targets, plan
from bench.planning.shapes import shape_of
from bench.simulation.architectures import OPT_13B, OPT_175B
from bench.simulation.demand import Demand
from bench.simulation.hardware import A100_40GB, A100_80GB, H200
from bench.simulation.job import Job
from bench.simulation.loop import Window, simulate
from bench.simulation.paged import PagedSystem
from bench.simulation.work import StepWork
from bench.traces.request import TracedRequest
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.rates import PROMPT_TOKENS
from pagoda_inference.settings import Settings

COST = FittedCost(0.01, 0.001, 0.0005, 1e-6, 2e-8)
REPOSITORY = Path(__file__).resolve().parents[2]


def some_work(rng: random.Random) -> StepWork:
    rows, prompt = rng.randint(0, 40), rng.choice([0, 0, rng.randint(1, 500)])
    return StepWork(
        rows=rows,
        context=rows * rng.randint(10, 900),
        prompt_tokens=prompt,
        prompt_pairs=prompt * rng.randint(1, 600),
        prompt_rows=1 if prompt else 0,
    )


# --- costs ------------------------------------------------------------------------------------------------------------


def test_a_fitted_cost_finds_the_rates_behind_noisy_steps() -> None:
    rng = random.Random(1)
    steps = [(work, COST.seconds(work) * rng.uniform(0.95, 1.05)) for work in (some_work(rng) for _ in range(400))]
    found = fit(steps)
    for work in (some_work(rng) for _ in range(50)):
        assert found.seconds(work) == pytest.approx(COST.seconds(work), rel=0.03)


def test_a_rate_is_never_below_zero() -> None:
    rng = random.Random(2)
    steps = [(work, 0.05 - 1e-6 * work.context / 2) for work in (some_work(rng) for _ in range(200))]
    assert min(dataclasses.astuple(fit(steps))) >= 0


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        fit([(StepWork(rows=1), 0.1)] * 3)


def test_the_rates_of_a_cost_are_what_the_engine_would_measure() -> None:
    found = rates(COST)
    one = COST.seconds(StepWork(rows=1, context=1))
    assert found.base_s + found.row_s == pytest.approx(one)
    prompt = StepWork(prompt_tokens=PROMPT_TOKENS, prompt_pairs=PROMPT_TOKENS**2 / 2, prompt_rows=1)
    assert found.short_prompt_s == pytest.approx(COST.seconds(prompt), rel=0.03)


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_a_short_trace_comes_again_with_other_contents_and_the_same_tenants() -> None:
    trace = [
        TracedRequest(0.0, 64, 5, client="acme", blocks=(1, 2), block_tokens=32),
        TracedRequest(2.0, 64, 5, client="rival", blocks=(1, 3), block_tokens=32),
        TracedRequest(4.0, 40, 5, client="acme", conversation="c"),
    ]
    demand = Demand.of(trace, 100, seed=7)
    jobs = demand.jobs(10.0, 9)
    assert demand.clients == 2
    assert demand.client_rate == pytest.approx(3 / 4 / 2)
    assert len(jobs) == 9
    assert [job.tenant for job in jobs[:3]] == [job.tenant for job in jobs[3:6]] == ["acme", "rival", "acme"]
    contents = [tuple(job.tokens or ()) for job in jobs]
    assert len(set(contents)) == 9
    assert contents[0][:32] == contents[1][:32]  # the trace's own sharing stays
    assert contents[3][:32] != contents[0][:32]  # and does not reach into the next pass
    gaps = [later.arrival_s - earlier.arrival_s for earlier, later in itertools.pairwise(jobs)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.1, rel=0.15)
    assert min(gaps) > 0


def test_a_trace_without_arrivals_gets_random_ones_and_no_tenants() -> None:
    demand = Demand.of([TracedRequest(0.0, 10, 10)] * 50, 100, seed=1)
    jobs = demand.jobs(5.0, 500)
    assert demand.client_rate is None
    assert jobs[-1].arrival_s == pytest.approx(100, rel=0.2)


def test_a_trace_that_asks_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no request"):
        Demand.of([TracedRequest(0.0, 0, 10)], 100, seed=1)


# --- plans ------------------------------------------------------------------------------------------------------------


def a_card(blocks: int = 4096, **fields: object) -> Card:
    settings = dataclasses.replace(Settings(home=Path("/nowhere")), step_target_ms=0.0, **fields)  # type: ignore[arg-type]
    return Card("a card", blocks, 2048, COST, settings)


LENGTH = Length(requests=150, seconds=20, warm_up=20, tolerance=0.05)


def test_a_plan_keeps_its_targets_and_a_higher_rate_does_not() -> None:
    demand = Demand.of([TracedRequest(0.0, 50, 20)] * 10, 2048, seed=3)
    targets = Targets(ttft_s=0.5, token_s=0.05)
    found = plan(a_card(), demand, targets, LENGTH)
    assert found.sustained.keeps(targets)
    above = next(point for point in found.points if point.rate > found.sustained.rate)
    assert not above.keeps(targets)
    assert above.rate <= found.sustained.rate * 1.05
    assert found.sustained.output_tokens_per_s == pytest.approx(20 * found.sustained.rate, rel=0.25)
    assert found.tenants(found.sustained.rate / 3.5) == 3


def test_looser_targets_and_more_blocks_sustain_no_less() -> None:
    demand = Demand.of([TracedRequest(0.0, 300, 100)] * 10, 2048, seed=3)
    tight, loose = (plan(a_card(256), demand, Targets(ttft, 0.2), LENGTH).sustained.rate for ttft in (0.6, 5.0))
    assert loose >= tight
    assert plan(a_card(4096), demand, Targets(5.0, 0.2), LENGTH).sustained.rate > loose


def test_targets_that_no_rate_keeps_are_refused() -> None:
    demand = Demand.of([TracedRequest(0.0, 50, 20)] * 10, 2048, seed=3)
    with pytest.raises(ValueError, match="at no rate"):
        plan(a_card(), demand, Targets(1e-6, 1e-6), dataclasses.replace(LENGTH, requests=5, warm_up=1))


# --- cards ------------------------------------------------------------------------------------------------------------


def test_a_card_has_the_blocks_that_the_weights_leave() -> None:
    settings = planned_settings("bfloat16", on_cpu=False)
    card = on_device(OPT_13B, A100_80GB, 1, settings)
    tokens = card.blocks * settings.block_size
    assert 0.6 * 50e9 < tokens * OPT_13B.kv_bytes_per_token < 54e9
    assert on_device(OPT_13B, H200, 1, settings).blocks > 1.8 * card.blocks
    assert on_device(OPT_13B, A100_80GB, 2, settings).blocks > 2 * card.blocks
    with pytest.raises(ModelLoadError, match="smaller model"):
        on_device(OPT_175B, A100_40GB, 4, settings)


def test_a_model_is_known_by_name_or_by_its_configuration(tmp_path: Path) -> None:
    assert shape_of("opt-13b") is OPT_13B
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
        "max_position_embeddings": 512,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = shape_of(str(tmp_path))
    assert (shape.layers, shape.hidden, shape.longest) == (3, 64, 512)
    assert shape.kv_bytes_per_token == 2 * 3 * 2 * 16 * 2
    attention, mlp, norms = 2 * 64 * 64 + 2 * 64 * 32, 3 * 64 * 128, 2 * 64
    assert shape.parameters == 3 * (attention + mlp + norms) + 64 + 2 * 100 * 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "abacus", "--model", "opt-13b"], "choose from A100-40GB"),
        (["--model", "opt-13b"], "plan needs a card"),
        (["--gpu", "h200"], "plan needs a model"),
        (["--gpu", "h200", "--model", "opt-13b", "--trace", "law:none"], "no law 'law:none'"),
        (["--gpu", "a100-40gb", "--model", "opt-175b"], "more devices (--devices)"),
    ],
)
def test_what_cannot_be_planned_is_said(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "bench", "plan", "--quick", *arguments]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode != 0
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


# --- the engine itself ------------------------------------------------------------------------------------------------


def test_the_simulation_takes_the_steps_of_the_real_engine() -> None:
    """Same scheduler, same pool, same arrivals: every step computes the same, with two tenants, a shared prefix and
    blocks too few for all.
    """
    settings = dataclasses.replace(
        planned_settings("auto", on_cpu=True), model="echo", pool_tokens=640, max_running=8, step_target_ms=0.0
    )
    rng = random.Random(4)
    system_prompt = [rng.randrange(32, 127) for _ in range(48)]
    jobs = []
    for number in range(24):
        own = [rng.randrange(32, 127) for _ in range(rng.randint(1, 60))]
        tokens = system_prompt + own if number % 3 else own
        jobs.append(
            Job(number, 0.0, len(tokens), rng.randint(1, 50), tenant=("acme", "rival")[number % 2], tokens=tokens)
        )
    copies = [dataclasses.replace(job) for job in jobs]
    engine = EngineInProcess(settings)
    try:
        real = engine.run(jobs)
        blocks = engine.info.total_blocks
    finally:
        engine.close()
    simulated: list[StepWork] = []
    system = PagedSystem(
        blocks, settings.block_size, keep=True, token_budget=settings.token_budget, max_running=settings.max_running
    )
    simulate(system, COST, copies, Window(), observe=lambda now, work: simulated.append(work))
    assert [work for work, _ in real.steps] == simulated
    assert [job.cached for job in jobs] == [job.cached for job in copies]
    assert sum(job.preemptions for job in jobs) == sum(job.preemptions for job in copies) > 0
    assert max(job.cached for job in jobs) == 48
    assert real.output_tokens == sum(job.output for job in jobs)
    assert all(0 < (job.first_token_s or 0) <= (job.end_s or 0) <= real.seconds for job in jobs)
    assert math.isclose(real.tokens_per_s, real.output_tokens / real.seconds)


def test_the_engine_says_what_it_refuses() -> None:
    settings = dataclasses.replace(planned_settings("auto", on_cpu=True), model="echo", pool_tokens=64)
    engine = EngineInProcess(settings)
    try:
        with pytest.raises(RuntimeError, match="KV blocks"):
            engine.run([Job(0, 0.0, 200, 5, tokens=[65] * 200)])
    finally:
        engine.close()
