"""A benchmark that does not come to its end leaves what it has measured, and no process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as command
from bench.ending import ends_with_us
from bench.results import Results
from pagoda_inference.model.errors import ModelLoadError

WAIT_S = 60
PEER = """
import subprocess, time
from bench.peers.child import serve
own = subprocess.Popen(["sleep", "600"])
serve(lambda: lambda prompts, outputs: time.sleep(600), lambda: {"own": own.pid})
"""
BENCHMARK = """
import asyncio, sys, types
from bench.__main__ import main
from bench.daemon import Daemon
from bench.peers.peer import Peer

async def measure(results):
    results.add("toy.first", 2.5)
    samples = []
    with results.keeping("toy", samples):
        async with STARTED as started:
            samples.append(4)
            print(started._process.pid, getattr(started, "about", {}).get("own", ""), flush=True)
            await (started.run_round([[1]], [1]) if isinstance(started, Peer) else asyncio.sleep(600))

sys.modules["bench.pool"] = types.SimpleNamespace(run=lambda results, options: asyncio.run(measure(results)))
sys.argv = ["bench", "pool", "--json", sys.argv[1]]
sys.exit(main())
"""
STARTED = {
    "peer": f"Peer('toy', [sys.executable, '-P', '-c', {PEER!r}])",
    "daemon": "Daemon('--model', 'echo', '--pool-tokens', '256')",
}


@contextmanager
def benchmark(started: str, out: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A running benchmark and a descriptor of each process that it has started, readable when that one has ended."""
    program = BENCHMARK.replace("STARTED", STARTED[started])
    with subprocess.Popen([sys.executable, "-c", program, str(out)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        processes = [os.pidfd_open(int(pid)) for pid in process.stdout.readline().split()]
        assert processes
        try:
            yield process, processes
        finally:
            process.kill()
            for each in processes:
                os.close(each)


def ended(process: int) -> bool:
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    return bool(waiting.poll(1000 * WAIT_S))


@pytest.mark.parametrize("started", STARTED)
def test_a_benchmark_that_is_asked_to_end_leaves_its_measurements_and_no_process(started: str, tmp_path: Path) -> None:
    with benchmark(started, tmp_path / "out.json") as (process, processes):
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == command.INTERRUPTED
        assert all(map(ended, processes))
    document = json.loads((tmp_path / "out.json").read_text())
    assert {result["name"]: result["value"] for result in document["results"]} == {
        "toy.first": 2.5,
        "toy.unfinished": [4],
    }
    assert (document["complete"], document["incomplete"]) == (False, "interrupted")


@pytest.mark.parametrize("started", STARTED)
def test_a_benchmark_that_is_killed_leaves_no_process(started: str, tmp_path: Path) -> None:
    with benchmark(started, tmp_path / "out.json") as (process, processes):
        process.kill()
        assert all(map(ended, processes))


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    program = ends_with_us(["echo", "began"])
    program[program.index(str(os.getpid()))] = "1" if os.getpid() != 1 else "2"
    assert subprocess.run(program, capture_output=True, check=True).stdout == b""
    assert subprocess.run(ends_with_us(["echo", "began"]), capture_output=True, check=True).stdout == b"began\n"


# --- in this process --------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Runs ``python -m bench`` with a benchmark of the test's own; the file that it writes is tmp_path/out.json."""

    def run(benchmark: Any) -> int:
        monkeypatch.setitem(sys.modules, "bench.pool", types.SimpleNamespace(run=benchmark))
        monkeypatch.setattr(sys, "argv", ["bench", "pool", "--json", str(tmp_path / "out.json")])
        return command.main()

    handler = signal.getsignal(signal.SIGTERM)
    yield run
    signal.signal(signal.SIGTERM, handler)


def test_what_the_engine_cannot_begin_with_is_one_sentence(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def benchmark(results: Results, options: Any) -> None:
        raise ModelLoadError("There is no model at /nowhere.")

    assert run(benchmark) == command.UNUSABLE
    assert capsys.readouterr().err == "bench: There is no model at /nowhere.\n"


@pytest.mark.parametrize("option", [("--repeats", "0"), ("--repeats", "-3"), ("--dtype", "nonsense")], ids=" ".join)
def test_an_option_that_cannot_be_is_named(
    option: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "pool", *option])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert f"argument {option[0]}: " in capsys.readouterr().err


def test_a_benchmark_that_fails_leaves_what_it_has_measured(run: Any, tmp_path: Path) -> None:
    def benchmark(results: Results, options: Any) -> None:
        results.add("toy.ratio", [1.0, 3.0, 2.0], goal=">=1.5")
        raise ValueError("a peer said nothing")

    with pytest.raises(ValueError, match="said nothing"):
        run(benchmark)
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["results"] == [
        {"name": "toy.ratio", "value": 2.0, "min": 1.0, "max": 3.0, "n": 3, "goal": ">=1.5", "ok": True}
    ]
    assert (document["complete"], document["incomplete"]) == (False, "ValueError: a peer said nothing")


def test_a_benchmark_that_ends_says_so(run: Any, tmp_path: Path) -> None:
    def benchmark(results: Results, options: Any) -> None:
        with results.keeping("toy", [1]):
            results.add("toy.ratio", 2.0)

    assert run(benchmark) == 0
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["complete"] is True
    assert "incomplete" not in document
    assert [result["name"] for result in document["results"]] == ["toy.ratio"]


def test_a_benchmark_that_could_not_begin_leaves_earlier_results(run: Any, tmp_path: Path) -> None:
    def benchmark(results: Results, options: Any) -> None:
        raise SystemExit("there is no such case")

    (tmp_path / "out.json").write_text("earlier")
    with pytest.raises(SystemExit, match="no such case"):
        run(benchmark)
    assert (tmp_path / "out.json").read_text() == "earlier"
