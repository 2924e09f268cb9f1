"""What a plan is asked for: settings that are kept, cards that the engine would refuse, and what is left of a run."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import bench.plan
import bench.planning.planner
from bench.planning.card import MAX_RUNNING, TOKEN_BUDGET, Card, on_device, planned_settings
from bench.planning.fitted_cost import FittedCost
from bench.planning.options import add_to
from bench.planning.planner import Length, Plan, Targets, Watcher, plan
from bench.planning.shapes import check_shared, known, shape_of
from bench.results import Results
from bench.simulation.architectures import ARCHITECTURES, OPT_13B
from bench.simulation.demand import Demand
from bench.simulation.hardware import A100_80GB
from bench.traces.request import TracedRequest
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.settings import Settings

COST = FittedCost(0.01, 0.001, 0.0005, 1e-6, 2e-8)
TARGETS = Targets(0.5, 0.05)
SHORT = Length(requests=60, seconds=5, warm_up=10, tolerance=0.2)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for option in ("--model", "--trace", "--traces", "--html"):
        parser.add_argument(option)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--quick", action="store_true")
    add_to(parser)
    return parser.parse_args(arguments)


def a_card(*, blocks: int = 4096) -> Card:
    return Card("a card", blocks, 2048, COST, Settings(home=Path("/nowhere"), step_target_ms=0.0))


def a_demand() -> Demand:
    return Demand.of([TracedRequest(0.0, 50, 20)] * 10, 2048, seed=3)


# --- settings ---------------------------------------------------------------------------------------------------------


def test_larger_steps_are_planned_on_a_gpu_where_the_environment_does_not_say() -> None:
    def steps(on_cpu: bool, **environment: str) -> tuple[int, int]:
        own = {f"PAGODA_ENGINE_{name}": text for name, text in environment.items()}
        settings = planned_settings("bfloat16", on_cpu=on_cpu, environment=own)
        return settings.token_budget, settings.max_running

    assert steps(False) == steps(False, MAX_RUNNING="", TOKEN_BUDGET="") == (TOKEN_BUDGET, MAX_RUNNING)
    assert steps(False, TOKEN_BUDGET="64", MAX_RUNNING="4") == (64, 4)
    assert steps(False, TOKEN_BUDGET="64") == (64, 64)
    assert steps(False, MAX_RUNNING="1024") == (TOKEN_BUDGET, 1024)
    assert steps(True) == (Settings().token_budget, Settings().max_running)


def test_what_the_simulation_knows_nothing_of_is_left_out() -> None:
    own = {
        "PAGODA_ENGINE_SPECULATE": "draft", "PAGODA_ENGINE_DRAFT": "small", "PAGODA_ENGINE_DISK_GIB": "4",
        "PAGODA_ENGINE_POOL_TOKENS": "4096",
    }  # fmt: skip
    settings = planned_settings("float32", on_cpu=True, environment=own)
    assert (settings.speculate, settings.draft, settings.disk_gib, settings.host_gib) == ("off", "", 0, 0)
    assert (settings.pool_tokens, settings.dtype, settings.device) == (4096, "float32", "cpu")


# --- what the engine refuses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "devices"), [("opt-13b", 7), ("LLaMA-13b", 3), ("smollm2-135m", 2)])
def test_heads_that_cannot_be_shared_out_are_refused(model: str, devices: int) -> None:
    with pytest.raises(ModelLoadError, match=f"among {devices} devices: choose a --devices that divides both"):
        check_shared(model, devices)


def test_a_known_model_of_a_kind_without_a_parallel_plan_is_planned_with_a_note() -> None:
    assert "does not serve OPT-13B on 4 devices" in check_shared("opt-13b", 4)
    assert check_shared("llama-13b", 4) == check_shared("opt-13b", 1) == ""


def test_a_configuration_of_a_kind_without_a_parallel_plan_is_refused(tmp_path: Path) -> None:
    config = {"model_type": "opt", "architectures": ["OPTForCausalLM"], "hidden_size": 64, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match="no tensor parallel plan in transformers: set --devices to 1"):
        check_shared(str(tmp_path), 2)


def test_every_known_model_has_its_heads() -> None:
    for name in ARCHITECTURES:
        check_shared(name, 1)
        check_shared(name, 3 if name == "SmolLM2-135M" else 2 if name != "OPT-175B" else 96)


def test_a_number_format_counts_for_a_known_model_too() -> None:
    assert shape_of("opt-13b", 4).weight_bytes == 2 * OPT_13B.weight_bytes
    assert shape_of("opt-13b", 4).kv_bytes_per_token == 2 * OPT_13B.kv_bytes_per_token


def test_a_context_beyond_the_models_own_is_refused() -> None:
    settings = planned_settings("bfloat16", on_cpu=False, environment={"PAGODA_ENGINE_CONTEXT_LENGTH": "9999"})
    with pytest.raises(ModelLoadError, match="9999 is above the model's own, 2048"):
        on_device(OPT_13B, A100_80GB, 1, settings)


# --- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--ttft-ms", "--token-ms", "--tenant-rate", "--devices"])
@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf", "much"])
def test_numbers_that_mean_nothing_are_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"{option}={value}")
    assert f"argument {option}: expected a " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--gpu cpu --devices 3", "this machine is one"),
        ("--gpu h200 --model opt-13b --dtype int8", "--dtype int8 is served on a CPU alone"),
        ("--gpu h200 --model echo", "the echo model computes nothing"),
        ("--gpu cpu --model echo", "the echo model computes nothing"),
        ("--gpu cpu --model opt-13b", "opt-13b is a shape alone"),
        ("--gpu h200 --model opt-13b --trace bad/missing", "bad/missing"),
        ("--gpu h200 --model opt-13b --trace arena", "--traces DIR"),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_a_status(
    arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results = Results("plan")
    with pytest.raises(SystemExit) as ended:
        bench.plan.run(results, parsed(*arguments.split()))
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith("bench: ")
    assert message in told
    assert told.count("\n") == 1
    assert not results.results
    assert not results.skipped


def test_a_trace_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(b"\xff\xfe\x00\x80" * 40)
    with pytest.raises(SystemExit):
        bench.plan.run(Results("plan"), parsed("--gpu", "h200", "--model", "opt-13b", "--trace", str(trace)))
    assert str(trace) in capsys.readouterr().err


def test_the_default_model_is_served_by_its_name(tmp_path: Path) -> None:
    assert bench.plan._served_here("smollm2-135M") == ""
    assert bench.plan._served_here("owner/name") == "owner/name"
    assert known("nothing") is None


# --- what is left of a run --------------------------------------------------------------------------------------------


class Interrupted(Watcher):
    def __init__(self, inner: Watcher, after: int) -> None:
        self._inner = inner
        self._left = after

    def tried(self, point: Any) -> None:
        self._inner.tried(point)
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def run_with(monkeypatch: pytest.MonkeyPatch, html: Path, *, after: int = 0) -> Results:
    """The run of a plan for a card of ours, interrupted after so many rates; its results."""
    results = Results("plan")

    def shortly(card: Card, demand: Demand, targets: Targets, length: Length, watcher: Watcher) -> Plan:
        return plan(card, demand, targets, SHORT, Interrupted(watcher, after))

    made = bench.plan.Asked(a_card(), "a trace", a_demand(), TARGETS, ["a note"])
    monkeypatch.setattr(bench.plan, "_asked", lambda options: made)
    monkeypatch.setattr(bench.plan, "plan", shortly)
    options = argparse.Namespace(check=False, quick=True, tenant_rate=30.0, html=str(html))
    if after:
        with pytest.raises(KeyboardInterrupt):
            bench.plan.run(results, options)
    else:
        bench.plan.run(results, options)
    return results


def valued(results: Results) -> dict[str, Any]:
    return {one["name"]: one["value"] for one in json.loads(results.to_json())["results"]}


def test_a_run_has_every_rate_in_its_results_and_on_its_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "plan.html"
    monkeypatch.setattr(bench.planning.planner, "LATE", 0.1)  # so that a short run is lost
    values = valued(run_with(monkeypatch, html))
    by_rate = values["plan.by_rate"]
    assert [point["rate"] for point in by_rate] == sorted(point["rate"] for point in by_rate)
    lost = [point for point in by_rate if point["lost"]]
    assert lost
    assert all(point["ttft_s"] is None and not point["keeps"] for point in lost)
    assert values["plan.rate"] == max(point["rate"] for point in by_rate if point["keeps"])
    assert values["plan.tenants"] == int(values["plan.rate"] / 0.5)
    assert capsys.readouterr().err.count(" requests/s: ") == len(by_rate)
    page = html.read_text()
    for text in ("a note", "a trace", "KV pool", "65,536 tokens", "requests cut", "Every rate that was tried"):
        assert text in page
    assert page.count("<td>lost</td>") == len(lost)
    assert "e+0" not in page


def test_an_interrupted_run_leaves_what_it_has_and_its_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    html = tmp_path / "plan.html"
    values = valued(run_with(monkeypatch, html, after=3))
    assert len(values["plan.by_rate.unfinished"]) == 3
    assert values["plan.card"]["kv_tokens"] == 65_536
    assert "plan.rate" not in values
    page = html.read_text()
    assert "Not complete" in page
    assert "Every rate that was tried" in page


def test_output_that_is_asked_for_is_the_rate_times_the_mean_answer() -> None:
    for point in plan(a_card(), a_demand(), TARGETS, SHORT).points:
        assert point.asked_tokens_per_s == pytest.approx(20 * point.rate)
        assert point.refused == 0


def test_targets_that_no_rate_keeps_say_what_there_is_instead() -> None:
    with pytest.raises(ValueError, match=r"at no rate: at [\d.e-]+ requests/s they are 0\.\d+ s and 0\.\d+ s"):
        plan(a_card(), a_demand(), Targets(0.001, 0.05), Length(requests=5, seconds=1, warm_up=1))
