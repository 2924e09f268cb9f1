"""Speculation as it is set up: models that are loaded together, settings, a daemon that serves with drafts, metrics."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.loading import load_model
from pagoda_inference.settings import Settings, SettingsError
from pagoda_inference.speculation import start
from pagoda_inference.speculation.costs import DraftCosts
from pagoda_inference.speculation.draft_model import SpeculativeBackend
from tests.inference.model.model_folders import write_safetensors
from tests.inference.running_engine import RunningEngine, Tenant
from tests.inference.speculation.answering import Answers
from tests.inference.test_metrics import samples, scrape, with_metrics

PROMPT = "a pagoda, a garden, a pagoda, a garden, a pagoda"


async def answers_of(engine: RunningEngine) -> list[tuple[tuple[int, ...], str, str]]:
    """Of two tenants beside each other, greedy and sampled."""
    acme, rival = Tenant("acme", await engine.client()), Tenant("rival", await engine.client())
    told = await asyncio.gather(
        acme.answer(PROMPT, max_tokens=120),
        acme.answer(PROMPT, max_tokens=120, temperature=1.0, seed=5),
        rival.answer(PROMPT, max_tokens=120),
        rival.answer(PROMPT, max_tokens=120, temperature=1.0, seed=9, stop=("e",)),
    )
    for answer in told:
        assert answer.seqs == list(range(1, len(answer.events) + 1))
        assert answer.finished.usage.output_tokens == len(answer.token_ids)
    return [(answer.token_ids, answer.text, answer.finished.reason) for answer in told]


async def test_a_daemon_with_drafts_answers_as_one_without(start_engine, monkeypatch):
    # What they cost is measured at start: on a machine with much to do it may be found to be too much.
    monkeypatch.setattr(start, "measure_costs", lambda *_: DraftCosts(base_s=1.0, row_s=0.1, draft_s=0.01))
    plain, (drafting, _, _) = await start_engine(), await with_metrics(start_engine, speculate="lookup")
    assert await answers_of(drafting) == await answers_of(plain)
    found = samples(await scrape(drafting))
    drafted = found["pagoda_spec_decode_num_draft_tokens_total",]
    accepted = found["pagoda_spec_decode_num_accepted_tokens_total",]
    assert 0 <= accepted <= drafted
    assert drafted > 0
    report = await drafting.report()
    tokens = sum(found["pagoda_generation_tokens_total", account.id] for account in report.accounts)
    assert tokens == sum(len(tokens) for tokens, _, _ in await answers_of(plain))


async def test_a_daemon_without_drafts_counts_none(start_engine):
    engine, acme, _ = await with_metrics(start_engine)
    await acme.answer(PROMPT, max_tokens=20)
    assert samples(await scrape(engine))["pagoda_spec_decode_num_draft_tokens_total",] == 0


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"PAGODA_ENGINE_SPECULATE": "draft"}, "PAGODA_ENGINE_DRAFT"),
        ({"PAGODA_ENGINE_DRAFT": "model"}, "PAGODA_ENGINE_SPECULATE"),
        ({"PAGODA_ENGINE_SPECULATE": "always"}, "off, lookup or draft"),
        ({"PAGODA_ENGINE_SPECULATE": "lookup", "PAGODA_ENGINE_DRAFT_TOKENS": "0"}, "PAGODA_ENGINE_DRAFT_TOKENS"),
    ],
)
def test_settings_that_make_no_sense_are_refused(environment, named):
    with pytest.raises(SettingsError, match=named):
        Settings.read(environment)


# --- loading ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_safetensors(tmp_path_factory.mktemp("models") / "tiny-llama")


def load(model: Path | str, home: Path, **settings: Any) -> Any:
    return load_model(str(model), home=home, **{"pool_tokens": 256, "dtype": "float32", "device": "cpu", **settings})


def test_two_models_are_loaded_as_one_and_answer_as_the_larger(folder: Path, build_home: Path):
    alone, _, _ = load(folder, build_home)
    backend, _, model_id = load(folder, build_home, draft=str(folder))
    assert isinstance(backend, SpeculativeBackend)
    assert model_id == "tiny-llama"
    assert backend.total_blocks == alone.total_blocks
    assert backend.bytes_per_block == 2 * alone.bytes_per_block
    told = []
    for each in (Answers(alone), Answers(backend, backend)):
        heard = each.ask([5, 9, 2, 77, 5, 9], max_tokens=20, ignore_eos=True)
        each.run()
        told.append(heard.answer)
    assert told[0] == told[1]
    assert each.accepted == each.drafted > 10


def test_a_pool_by_memory_counts_both_models_blocks(folder: Path, build_home: Path):
    alone, _, _ = load(folder, build_home, pool_tokens=None, pool_gib=0.01)
    backend, _, _ = load(folder, build_home, pool_tokens=None, pool_gib=0.01, draft=str(folder))
    assert backend.total_blocks == alone.total_blocks // 2


def test_a_draft_model_with_another_tokenizer_is_refused(folder: Path, build_home: Path, tmp_path: Path):
    other = write_safetensors(tmp_path / "other")
    path = other / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(ModelLoadError, match=r"other has another tokenizer than tiny-llama \(2 tokens differ\)"):
        load(folder, build_home, draft=str(other))


def test_a_draft_model_that_is_not_there_and_one_for_echo_are_refused(folder: Path, build_home: Path, tmp_path: Path):
    with pytest.raises(ModelLoadError, match="no model at"):
        load(folder, build_home, draft=str(tmp_path / "nothing"))
    with pytest.raises(ModelLoadError, match="PAGODA_ENGINE_DRAFT"):
        load("echo", build_home, draft=str(folder))
